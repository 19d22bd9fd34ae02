"""Whatever bytes of a weight file are changed, it is read or refused with a `ValueError`."""

import io
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_transformer.interop.ctranslate2_file import CTranslate2File
from keras_transformer.interop.tensor_file import FLOATS
from keras_transformer.interop.tensor_files import open_tensors
from keras_transformer.interop.torch_file import described_by
from tests.interop.weight_files import (
    INT8_ARRAYS,
    ctranslate2_bytes,
    npz_of,
    read_all,
    safetensors_of,
    some_arrays,
    storage,
    torch_legacy_of,
    torch_of,
    torch_pickle,
    variable,
    view,
)

FILES = {
    "safetensors": (open_tensors, safetensors_of(some_arrays())),
    "torch": (open_tensors, torch_of(some_arrays())),
    "torch before 1.6": (open_tensors, torch_legacy_of(some_arrays())),
    "npz": (open_tensors, npz_of({n: a for n, a in some_arrays().items() if n != "brain"})),
    "ctranslate2": (
        CTranslate2File,
        ctranslate2_bytes(
            [variable(n, a) for n, a in INT8_ARRAYS.items()], [("decoder/weight", "encoder/weight")]
        ),
    ),
    "ctranslate2 of version 2": (
        CTranslate2File,
        ctranslate2_bytes([variable(n, a, 2) for n, a in INT8_ARRAYS.items()], version=2),
    ),
}
BYTES = st.one_of(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), st.integers(0, 255))
EDITS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), BYTES), min_size=1, max_size=4)


def edited(data, edits, cut):
    data = bytearray(data)
    for place, value in edits:
        data[int(place * len(data))] = value
    return bytes(data[: int(cut * len(data))])


def read_or_refuse(open_file, path, size):
    """Opens a file and reads all of it, and looks at the error and the memory."""
    tracemalloc.start()
    try:
        tensors = open_file(path)
        read_all(tensors)
        for name in tensors:
            if isinstance(tensors, CTranslate2File):
                tensors.dequantized(name)
            elif tensors[name].dtype in FLOATS:
                tensors.read_float32(name)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017  (a file that is still right raises none)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= 2 * size + 500_000


@pytest.mark.parametrize("kind", FILES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS, cut=st.sampled_from([1, 1, 1, 0.9]))
def test_changed_bytes_raise_nothing_but_value_errors(tmp_path, kind, edits, cut):
    open_file, data = FILES[kind]
    data = edited(data, edits, cut)
    (tmp_path / "file").write_bytes(data)
    read_or_refuse(open_file, tmp_path / "file", len(data))
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


PROGRAM = torch_pickle({"a": view(storage("0", "FloatStorage", 6), 0, (2, 3), (3, 1)), "b": {}})


@given(edits=EDITS, cut=st.sampled_from([1, 1, 1, 0.9]))
def test_a_changed_pickle_raises_nothing_but_value_errors(edits, cut):
    try:
        described_by(io.BytesIO(edited(PROGRAM, edits, cut)))
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017


@given(st.binary(max_size=60))
def test_any_bytes_as_a_pickle_raise_nothing_but_value_errors(program):
    try:
        described_by(io.BytesIO(program))
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
