"""Safetensors files are read as their library writes them, and refused when damaged."""

import json
import re
import struct

import ml_dtypes
import numpy as np
import pytest

from keras_transformer.interop.tensor_files import open_tensors
from tests.interop.weight_files import refusal, safetensors_bytes, safetensors_of, some_arrays


def entry(shape, offsets, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_arrays_are_read_back(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_of(some_arrays()))
    tensors = open_tensors(path)
    assert {name: (t.shape, t.dtype) for name, t in tensors.items()} == {
        name: (a.shape, a.dtype) for name, a in some_arrays().items()
    }
    for name, array in some_arrays().items():
        np.testing.assert_array_equal(tensors.read(name), array)


@pytest.mark.parity
def test_what_the_library_writes_is_read_back(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    arrays = some_arrays() | {"flags": np.array([True, False]), "small": np.arange(3, dtype="int8")}
    path = tmp_path / "model.safetensors"
    library.save_file(arrays, path, metadata={"format": "pt"})
    tensors = open_tensors(path)
    assert set(tensors) == set(arrays)
    for name, array in arrays.items():
        assert tensors.read(name).dtype == array.dtype
        np.testing.assert_array_equal(tensors.read(name), array)


def test_bfloat16_is_the_upper_half_of_float32(tmp_path):
    # 1.5 is 0x3FC00000 in float32, -2 is 0xC0000000.
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes({"a": entry([2], [0, 4], "BF16")}, b"\xc0\x3f\x00\xc0"))
    tensors = open_tensors(path)
    assert tensors.read("a").dtype == ml_dtypes.bfloat16
    assert tensors.read_float32("a").tolist() == [1.5, -2.0]


TWO = {"a": entry([2], [0, 8]), "b": entry([1], [8, 12])}
WRONG = {
    "empty": (b"", "must be safetensors, a pytorch_model.bin or a .npz"),
    "header behind the end": (b"\xff\0\0\0\0\0\0\0{}", "255 bytes, in a file of 10"),
    "header of 2**63": (struct.pack("<Q", 2**63) + b"{}", "header must be inside the file"),
    "header too large": (struct.pack("<Q", 2**24) + b"{" + bytes(2**24), "at most 8388608 bytes"),
    "not UTF-8": (safetensors_bytes(b'{"\xff": 1}'), "must be UTF-8 and JSON"),
    "half a JSON": (safetensors_bytes('{"a": '), "must be UTF-8 and JSON"),
    "nested": (safetensors_bytes('{"a":' + "[" * 100_000), "nested too deep"),
    "twice": (
        safetensors_bytes('{"a":' + json.dumps(TWO["a"]) + ',"a":' + json.dumps(TWO["a"]) + "}"),
        "the key 'a' stands twice",
    ),
    "an entry of the wrong type": (safetensors_bytes({"a": [1]}), "'a': \\[1\\]"),
    "no offsets": (safetensors_bytes({"a": {"dtype": "F32", "shape": [1]}}), "data_offsets"),
    "a name that is not text": (
        safetensors_bytes('{"\\ud800": ' + json.dumps(TWO["a"]) + "}"),
        "must be printable text",
    ),
    "unknown dtype": (safetensors_bytes({"a": entry([1], [0, 4], "F4")}, bytes(4)), "'F4'"),
    "a dtype that is a list": (
        safetensors_bytes({"a": entry([1], [0, 4], [])}, bytes(4)),
        "\\[\\]",
    ),
    "100 GB": (
        safetensors_bytes({"a": entry([25 * 2**30], [0, 100 * 2**30])}, bytes(4)),
        "107374182400 bytes of tensors, 4 bytes behind the header",
    ),
    "100 GB in 4 bytes": (
        safetensors_bytes({"a": entry([25 * 2**30], [0, 4])}, bytes(4)),
        "107374182400 bytes apart. Received: \\[0, 4\\]",
    ),
    "negative size": (safetensors_bytes({"a": entry([-1], [0, 4])}, bytes(4)), "shape=\\[-1\\]"),
    "a size that is True": (safetensors_bytes({"a": entry([True], [0, 4])}, bytes(4)), "True"),
    "overflow": (safetensors_bytes({"a": entry([2**32, 2**32], [0, 0])}), "that an array can have"),
    "overflow beside 0": (safetensors_bytes({"a": entry([0, 2**62], [0, 0])}), "can have"),
    "many axes": (safetensors_bytes({"a": entry([1] * 99, [0, 4])}, bytes(4)), "at most 16"),
    "negative offsets": (
        safetensors_bytes({"a": entry([1], [-4, 0])}, b""),
        "'a' at -4, not 0",
    ),
    "offsets of floats": (safetensors_bytes({"a": entry([1], [0.0, 4.0])}, bytes(4)), "0.0, 4.0"),
    "overlap": (
        safetensors_bytes({"a": entry([2], [0, 8]), "b": entry([2], [4, 12])}, bytes(12)),
        "'b' at 4, not 8",
    ),
    "gap": (
        safetensors_bytes({"a": entry([1], [0, 4]), "b": entry([1], [8, 12])}, bytes(12)),
        "'b' at 8, not 4",
    ),
    "more behind": (safetensors_bytes(TWO, bytes(13)), "12 bytes of tensors, 13 bytes behind"),
    "less behind": (safetensors_bytes(TWO, bytes(11)), "12 bytes of tensors, 11 bytes behind"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused(tmp_path, data, message):
    found = refusal(open_tensors, tmp_path / "model.safetensors", data)
    assert re.search(message, found), found


def test_a_header_that_is_no_object_is_refused(tmp_path):
    # Only a file that begins as an object does is taken for safetensors.
    found = refusal(open_tensors, tmp_path / "model.safetensors", safetensors_bytes("[1, 2]"))
    assert found.startswith("must be safetensors")


def test_a_file_cut_anywhere_is_refused(tmp_path):
    data = safetensors_of(some_arrays())
    for size in [*range(120), *range(120, len(data), 17)]:
        refusal(open_tensors, tmp_path / "model.safetensors", data[:size])
