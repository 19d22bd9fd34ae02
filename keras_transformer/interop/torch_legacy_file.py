"""Reads what a `pytorch_model.bin` of before PyTorch 1.6 says of its tensors, without PyTorch.

The file begins with five pickles. They are a magic number, a version, facts of the machine that
wrote it, the tensors, and the keys of their storages. The storages follow in the order of the keys.
Each is the number of its elements in eight bytes, and the elements. The pickles are never run.
"""

import io
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from keras_transformer.interop.files import shown
from keras_transformer.interop.tensor_file import StoredTensor
from keras_transformer.interop.torch_file import (
    MAX_PICKLE,
    Storage,
    TorchTensor,
    checked_tensors,
    described_by,
    stored_tensor,
)

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
VERSION = 1001
MAGIC = b"\x8a\n" + MAGIC_NUMBER.to_bytes(10, "little") + b"."  # as pickles from protocol 2 on


def torch_legacy(path: Path) -> dict[str, StoredTensor]:
    """Returns the tensors of a `pytorch_model.bin` of before PyTorch 1.6.

    Raises:
        ValueError: when the file holds more than a dictionary of tensors, wants to run anything,
            or is damaged.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = io.BytesIO(file.read(min(size, MAX_PICKLE)))
        check_origin(head)
        tensors = checked_tensors(described_by(head))
        keys = described_by(head)
        places = storage_places(file, head.tell(), size, keys, collect_storages(tensors.values()))
    return {
        name: stored_tensor(path, name, tensor, places.get(tensor.storage.key))
        for name, tensor in tensors.items()
    }


def check_origin(head: BinaryIO) -> None:
    """Reads the first three pickles, and raises `ValueError` unless they are as expected."""
    for rule, expected in (("magic number", MAGIC_NUMBER), ("version", VERSION)):
        found = described_by(head)
        if found != expected:
            raise ValueError(f"the {rule} must be {expected}. Received: {shown(found)}")
    machine = described_by(head)
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise ValueError(f"the file must be little-endian. Received: {shown(machine)}")


def collect_storages(tensors: Iterable[TorchTensor]) -> dict[str, Storage]:
    """Returns the storages of tensors by key, or raises `ValueError` for two of one key."""
    storages: dict[str, Storage] = {}
    for tensor in tensors:
        storage = tensor.storage
        known = storages.setdefault(storage.key, storage)
        if (known.dtype, known.size) != (storage.dtype, storage.size):
            raise ValueError(
                f"the storage {shown(storage.key)} must have one type and one size. Received: "
                f"{known.dtype.name}, {known.size} and {storage.dtype.name}, {storage.size}"
            )
    return storages


def storage_places(
    file: BinaryIO, begin: int, size: int, keys: Any, storages: dict[str, Storage]
) -> dict[str, tuple[int, int]]:
    """Returns where the elements of each storage begin, and how many bytes they have.

    Args:
        file: the opened file.
        begin: where the first storage is.
        size: the bytes of the file.
        keys: the keys of the storages in the order of the file.
        storages: what the tensors say of them.
    """
    places: dict[str, tuple[int, int]] = {}
    for key in keys if isinstance(keys, list) else [keys]:
        if not isinstance(key, str) or key not in storages or key in places:
            raise ValueError(
                f"a key must be that of a storage, and stand once. Received: {shown(key)}"
            )
        num_bytes = storages[key].size * storages[key].dtype.itemsize
        file.seek(begin)
        field = file.read(8)
        count = struct.unpack("<q", field)[0] if len(field) == 8 else None
        if count != storages[key].size or begin + 8 + num_bytes > size:
            raise ValueError(
                f"the storage {shown(key)} must be its {storages[key].size} elements inside the "
                f"file of {size} bytes. Received: a count of {count} at {begin}"
            )
        places[key] = (begin + 8, num_bytes)
        begin += 8 + num_bytes
    if begin != size:
        raise ValueError(
            f"the file must end behind its storages. Received: {size - begin} bytes more"
        )
    return places
