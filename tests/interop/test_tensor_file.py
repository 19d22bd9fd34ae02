"""Tensors of a file are described first, read one at a time, and never written to."""

import gc
import tracemalloc

import numpy as np
import pytest

from keras_transformer.interop.tensor_file import StoredTensor, TensorFile
from keras_transformer.interop.tensor_files import open_tensors
from tests.interop.weight_files import safetensors_of, some_arrays


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_of(some_arrays()))
    return path


def test_a_file_is_a_mapping_of_descriptions(path):
    tensors = open_tensors(path)
    assert list(tensors) == list(some_arrays())
    assert len(tensors) == 5
    assert "half" in tensors
    assert "full" not in tensors
    assert isinstance(tensors["half"], StoredTensor)
    assert (tensors["half"].size, tensors["half"].num_bytes) == (21, 42)


def test_float32_is_given_on_demand(path):
    tensors = open_tensors(path)
    assert tensors.read("half").dtype == np.float16
    for name in ("embeddings", "half", "brain"):
        values = tensors.read_float32(name)
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, some_arrays()[name].astype(np.float32))
    with pytest.raises(ValueError, match="count must be of a float dtype. Received: dtype=int64"):
        tensors.read_float32("count")


def test_a_number_beyond_float32_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, a=np.array([1e300]), b=np.array([np.inf, -1.0]))
    with pytest.raises(ValueError, match="a must be within float32. Received: larger numbers"):
        open_tensors(path).read_float32("a")
    assert open_tensors(path).read_float32("b").tolist() == [np.inf, -1]


def test_what_was_read_cannot_be_written_to(path):
    for name in some_arrays():
        values = open_tensors(path).read(name)
        with pytest.raises(ValueError, match="read-only"):
            values[...] = 0


def test_a_missing_tensor_is_named(path):
    with pytest.raises(ValueError, match=r"must hold the tensor bias. Received: \['embeddings', "):
        open_tensors(path).read("bias")


def test_a_file_that_is_cut_after_it_was_opened_is_refused(path):
    tensors = open_tensors(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="must not change while it is read. Received: "):
        [tensors.read(name) for name in tensors]


def test_an_array_is_held_as_long_as_its_reader_holds_it(path):
    tensors = open_tensors(path)
    values = tensors.read("embeddings")
    assert tensors.read("embeddings") is values
    number = id(values)
    del values
    gc.collect()
    assert not tensors._alive, number


def test_tensors_read_one_at_a_time_need_the_memory_of_one(tmp_path):
    path = tmp_path / "model.safetensors"
    arrays = {str(n): np.full((1000, 500), n, np.float32) for n in range(8)}
    path.write_bytes(safetensors_of(arrays))
    largest = arrays["0"].nbytes
    del arrays
    tracemalloc.start()
    try:
        tensors = open_tensors(path)
        assert isinstance(tensors, TensorFile)
        assert tracemalloc.get_traced_memory()[1] < 200_000
        assert [float(tensors.read(name)[-1, -1]) for name in tensors] == [*range(8)]
        assert tracemalloc.get_traced_memory()[1] < 1.2 * largest
    finally:
        tracemalloc.stop()
