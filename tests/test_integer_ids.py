"""Ids as integers: whole floats count, and what is refused."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.integer_ids import dtype_name, integer_ids
from keras_transformer.masking import padding_mask
from tests.backends import array, compiled


def test_booleans_are_no_ids():
    with pytest.raises(ValueError, match="`ids` must be integers. Received: ids of dtype bool"):
        padding_mask(np.array([[True, False]]))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_whole_floats_are_ids(dtype):
    ids = np.array([[256, 7, 0]], "float64")
    ids = ids if dtype == "float64" else ops.cast(ids, dtype)
    found = integer_ids("ids", ids)
    assert dtype_name(found) == "int32"
    assert array(found).tolist() == [[256, 7, 0]]
    assert array(padding_mask(ids, pad_id=7)).tolist() == [[True, False, True]]


@pytest.mark.parametrize(
    ("dtype", "largest"), [("bfloat16", 2**8), ("float16", 2**11), ("float32", 2**24)]
)
def test_a_float_that_its_dtype_may_have_rounded_is_no_id(dtype, largest):
    exact = array(integer_ids("ids", ops.cast(np.array([largest]), dtype)))
    assert exact.tolist() == [largest]
    message = f"`ids` must be .* up to {largest}, which {dtype} .*Received: .* with {largest + 2}.0"
    with pytest.raises(ValueError, match=message):
        integer_ids("ids", ops.cast(np.array([[1, largest + 2]]), dtype))


@pytest.mark.parametrize("number", [0.5, np.nan, np.inf, 2.0**31])
def test_a_number_that_is_not_whole_is_no_id(number):
    read = np.array([[3.0, number]])
    for ids in (read, read.tolist(), ops.cast(read, "float32")):
        with pytest.raises(ValueError, match=f"`ids` must be integers, or whole .* with {number}"):
            padding_mask(ids)


def test_a_compiled_function_takes_floats_that_nobody_can_read_yet():
    ids = np.array([[3, 0]], "float32")
    run = compiled(padding_mask, [ids])
    assert array(run(ids)).tolist() == [[True, False]]
