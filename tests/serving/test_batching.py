"""map_chunks: any batch in a few shapes, results in the order of the inputs."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.serving.batching import (
    largest_batches,
    map_chunks,
    next_size,
    powers_of_two,
)

LENGTH_SIZES, ROW_LIMITS = [2, 3, 8], [8, 4, 2]
SHAPES = {
    (rows, length)
    for length, most in zip(LENGTH_SIZES, ROW_LIMITS, strict=True)
    for rows in powers_of_two(1, most)
}


def sums(lengths, width, shapes):
    """Applies map_chunks to rows of ones, summing each; `shapes` gathers the chunks' shapes."""
    ids = (np.arange(width) < np.array(lengths)[:, None]).astype("int32")
    numbered = ids * np.arange(1, len(lengths) + 1, dtype="int32")[:, None]

    def function(first, second):
        shapes.append(tuple(first.shape))
        assert first.shape == second.shape
        return [tf.reduce_sum(first + second, axis=1)]

    (result,) = map_chunks(
        function,
        [tf.constant(ids, tf.int32, [len(lengths), width]), tf.constant(numbered)],
        tf.constant(lengths, tf.int32, [len(lengths)]),
        [tf.TensorSpec([None], tf.int32)],
        LENGTH_SIZES,
        ROW_LIMITS,
        pad_id=0,
    )
    return result.numpy().tolist()


@settings(max_examples=60)
@given(st.lists(st.integers(1, 8), max_size=13), st.integers(0, 5))
def test_every_row_comes_back_in_its_place_and_shapes_stay_within_the_sizes(lengths, extra):
    shapes = []
    width = max(lengths, default=1) + extra
    expected = [length * (row + 2) for row, length in enumerate(lengths)]
    assert sums(lengths, width, shapes) == expected
    assert set(shapes) <= SHAPES


def test_short_rows_do_not_pay_for_long_ones():
    shapes = []
    sums([8, 1, 8, 1, 1, 8, 1, 8, 2, 1, 1, 1], 8, shapes)
    assert shapes == [(2, 8), (2, 8), (8, 2)]


def test_no_rows_call_nothing():
    shapes = []
    assert sums([], 3, shapes) == []
    assert shapes == []


@pytest.mark.parametrize(("needed", "size"), [(0, 2), (2, 2), (3, 3), (4, 8), (8, 8)])
def test_the_next_size_is_the_smallest_that_fits(needed, size):
    index, found = next_size(LENGTH_SIZES, tf.constant(needed))
    assert int(found) == LENGTH_SIZES[int(index)] == size


def test_the_longer_the_rows_the_fewer_at_once():
    assert largest_batches([16, 32, 64, 100, 4096], 2048) == [128, 64, 32, 16, 1]
    assert largest_batches([16, 32], 1) == [1, 1]


def test_sizes_double_up_to_the_largest():
    assert powers_of_two(16, 100) == [16, 32, 64, 100]
    assert powers_of_two(1, 1) == [1]
