"""Zip files are read in place, and those that claim what they do not have are refused."""

import os
import re
import struct
import tracemalloc
import zipfile

import pytest

from keras_transformer.interop.stored_zip import member_bytes, stored_members
from keras_transformer.interop.tensor_files import open_tensors
from tests.interop.weight_files import npz_of, refusal, some_arrays, zip_of

CENTRAL = b"PK\1\2"


def changed(data, entry, offset, value, form="<I"):
    """Changes a field of the central directory's entry with that number."""
    data, at = bytearray(data), -1
    for _ in range(entry + 1):
        at = data.index(CENTRAL, at + 1)
    struct.pack_into(form, data, at + offset, value)
    return bytes(data)


def test_members_are_found_in_place(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(zip_of([("a", b"first"), ("b/c", b""), ("d", b"second")]))
    members = stored_members(path)
    assert list(members) == ["a", "b/c", "d"]
    assert {name: member_bytes(path, m, 9) for name, m in members.items()} == {
        "a": b"first",
        "b/c": b"",
        "d": b"second",
    }
    with pytest.raises(ValueError, match="must have at most 5 bytes. Received: 6 bytes"):
        member_bytes(path, members["d"], 5)


TWO = zip_of([("a.npy", b"first"), ("b.npy", b"second")])
WRONG = {
    "no directory": (TWO[:60], "must be a whole zip file"),
    "twice": (TWO.replace(b"b.npy", b"a.npy"), "must stand once. Received: 'a.npy' twice"),
    "compressed": (
        zip_of([("a.npy", b"first" * 99)], zipfile.ZIP_DEFLATED),
        "must be stored, not compressed",
    ),
    "a bomb": (
        zip_of([("a.npy", bytes(10**7))], zipfile.ZIP_DEFLATED),
        "must be stored, not compressed",
    ),
    "encrypted": (changed(TWO, 0, 8, 1, "<H"), "not encrypted"),
    "unknown method": (changed(TWO, 0, 10, 99, "<H"), "must be stored"),
    "larger than stored": (changed(TWO, 0, 24, 2**32 - 2), "4294967294 bytes at"),
    "larger than the file": (
        changed(changed(TWO, 0, 24, 2**31), 0, 20, 2**31),
        "must be inside the file of",
    ),
    "over the next": (changed(changed(TWO, 0, 24, 50), 0, 20, 50), "must not overlap"),
    "the same place": (changed(TWO, 1, 42, 0), "must not overlap"),
    "behind the end": (changed(TWO, 1, 42, 2**31), "must begin with its header"),
    "between headers": (changed(TWO, 1, 42, 3), "must begin with its header"),
    "a name in no UTF-8": (
        changed(TWO, 0, 8, 0x800, "<H").replace(b"a.npy", b"\xff.npy"),
        "must be a whole zip file",
    ),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused(tmp_path, data, message):
    found = refusal(open_tensors, tmp_path / "model.npz", data)
    assert re.search(message, found), found


def test_a_file_cut_anywhere_is_refused(tmp_path):
    arrays = {name: a for name, a in some_arrays().items() if name != "brain"}
    data = npz_of(arrays)
    for size in range(4, len(data), 61):
        refusal(open_tensors, tmp_path / "model.npz", data[:size])


def test_a_directory_of_a_gigabyte_takes_no_memory(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"PK\3\4")
    os.truncate(path, 2**30)  # zeros that take no place on the disk
    with open(path, "ab") as file:
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, 2**30 - 4, 4, 0))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="a directory of at least 1073741820 bytes"):
            open_tensors(path)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
