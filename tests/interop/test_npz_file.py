"""NumPy archives are read as NumPy and Marian write them, without evaluating anything."""

import io
import re
import struct
import zipfile

import numpy as np
import pytest

from keras_transformer.interop.npz_file import read_text
from keras_transformer.interop.tensor_files import open_tensors
from tests.interop.weight_files import npz_of, refusal, some_arrays, zip_of


def npy(header, data=b"", version=b"\1\0"):
    """Gives a member with a header of its own."""
    form = "<H" if version == b"\1\0" else "<I"
    header = header if isinstance(header, bytes) else header.encode()
    return b"\x93NUMPY" + version + struct.pack(form, len(header)) + header + data


def one(member):
    return zip_of([("a.npy", member)])


def header(descr="<f4", shape="(1,)", fortran="False"):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def test_arrays_are_read_back(tmp_path):
    arrays = {name: a for name, a in some_arrays().items() if name != "brain"}
    arrays["columns first"] = np.asfortranarray(arrays["embeddings"])
    arrays["cube"] = np.asfortranarray(np.arange(30.0).reshape(2, 3, 5))
    arrays["special:model.yml"] = np.frombuffer(b"type: transformer\n\0", np.int8)
    path = tmp_path / "model.npz"
    path.write_bytes(npz_of(arrays))
    tensors = open_tensors(path)
    assert list(tensors) == list(arrays)
    for name, array in arrays.items():
        assert (tensors[name].shape, tensors[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(tensors.read(name), array)
    assert read_text(tensors, "special:model.yml") == "type: transformer\n"


@pytest.mark.parametrize("version", [b"\1\0", b"\2\0", b"\3\0"])
def test_each_version_of_the_header_is_read(tmp_path, version):
    path = tmp_path / "model.npz"
    path.write_bytes(one(npy(header(), struct.pack("<f", 2.5), version)))
    assert open_tensors(path).read("a").tolist() == [2.5]


def test_the_header_that_marian_writes_is_read(tmp_path):
    # Marian's library pads with spaces and writes no comma behind a shape of two.
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }          \n"
    path = tmp_path / "model.npz"
    path.write_bytes(one(npy(text, struct.pack("<2f", 1, 2))))
    assert open_tensors(path).read("a").tolist() == [[1, 2]]


def objects():
    stream = io.BytesIO()
    np.savez(stream, a=np.array([{"x": 1}], dtype=object))
    return stream.getvalue()


WRONG = {
    "objects": (objects(), "must hold little-endian numbers. Received: descr='|O'"),
    "big-endian": (one(npy(header(">f4"), bytes(4))), "descr='>f4'"),
    "complex": (one(npy(header("<c8"), bytes(8))), "descr='<c8'"),
    "fields": (one(npy("{'descr': [('x', '<f4')], 'shape': (1,)}", bytes(4))), "must tell descr"),
    "a call": (
        one(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (exit(),)}")),
        "must tell descr",
    ),
    "no array": (one(b"PK"), "must be a NumPy array. Received: b'PK'"),
    "cut header": (one(npy(header())[:40]), "must tell descr"),
    "header of 4 GB": (one(npy(header(), version=b"\2\0")[:8] + b"\xff\xff\xff\xff{"), "must tell"),
    "100 GB": (one(npy(header(shape=f"({25 * 2**30},)"), bytes(4))), "107374182400 bytes"),
    "overflow": (one(npy(header(shape=f"({2**40}, {2**40})"))), "that an array can have"),
    "negative": (one(npy(header(shape="(-1,)"), bytes(4))), "must tell descr"),
    "more bytes": (one(npy(header(), bytes(8))), "must have the 4 bytes of its shape"),
    "compressed": (
        zip_of([("a.npy", npy(header(), bytes(4)))], zipfile.ZIP_DEFLATED),
        "must be stored, not compressed",
    ),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused(tmp_path, data, message):
    found = refusal(open_tensors, tmp_path / "model.npz", data)
    assert re.search(re.escape(message), found), found


def test_a_damaged_array_is_refused_when_it_is_read(tmp_path):
    data = bytearray(npz_of({"a": np.ones(64, np.float32)}))
    data[data.index(struct.pack("<2f", 1, 1)) + 3] ^= 1
    path = tmp_path / "model.npz"
    found = refusal(open_tensors, path, bytes(data))
    assert "must have their CRC-32" in found
    assert "a" in open_tensors(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3, np.float32), "must be at most 1048576 bytes. Received: dtype=float32"),
        (np.zeros(2**20 + 1, np.int8), r"shape=\(1048577,\)"),
        (np.array([-1], np.int8), "must be UTF-8"),
    ],
)
def test_an_array_that_is_no_text_is_refused(tmp_path, array, message):
    path = tmp_path / "model.npz"
    path.write_bytes(npz_of({"special:model.yml": array}))
    with pytest.raises(ValueError, match=message):
        read_text(open_tensors(path), "special:model.yml")


def test_a_text_that_is_missing_is_named(tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(npz_of({"Wemb": np.zeros(3)}))
    with pytest.raises(ValueError, match=r"tensor special:model.yml. Received: \['Wemb'\]"):
        read_text(open_tensors(path), "special:model.yml")
