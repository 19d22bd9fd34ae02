"""Reads what a safetensors file says of its tensors, and writes such a file.

The file is the header's length (8 bytes), the header, and the tensors, one behind the other without
a gap. The header is JSON: name to dtype, shape and offsets.
"""

import json
import math
import os
import struct
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.interop.files import parsed_json, shown
from keras_transformer.interop.tensor_file import (
    BFLOAT16,
    StoredTensor,
    checked_name,
    checked_shape,
)

MAX_HEADER = 8 * 2**20  # bytes: some 60,000 tensors
DTYPES = {
    "BF16": BFLOAT16,
    "BOOL": np.dtype("?"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
}


def safetensors(path: Path) -> dict[str, StoredTensor]:
    """Returns the tensors of a safetensors file.

    Raises:
        ValueError: when the header is damaged, or an offset or a size is not what it must be.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else -1
        if not 2 <= length <= min(MAX_HEADER, size - 8):
            raise ValueError(
                f"the header must be inside the file and have at most {MAX_HEADER} bytes. "
                f"Received: {length} bytes, in a file of {size}"
            )
        try:
            header = parsed_json(file.read(length).decode("utf-8"))
        except ValueError as error:
            raise ValueError(f"the header must be UTF-8 and JSON. Received: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"the header must be a JSON object. Received: {shown(header)}")
    header.pop("__metadata__", None)
    return _tensors(path, header, 8 + length, size)


def _tensors(path: Path, header: dict[str, Any], start: int, size: int) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for name, entry in header.items():
        checked_name(name, tensors)
        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
            raise ValueError(
                "a tensor must have a dtype, a shape and data_offsets. "
                f"Received: {shown(name)}: {shown(entry)}"
            )
        dtype, offsets = entry["dtype"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ValueError(
                f"the dtype of {shown(name)} must be one of {', '.join(DTYPES)}. "
                f"Received: {shown(dtype)}"
            )
        shape = checked_shape(name, entry["shape"])
        num_bytes = math.prod(shape) * DTYPES[dtype].itemsize
        is_pair = isinstance(offsets, list) and [type(n) for n in offsets] == [int, int]
        if not is_pair or offsets[1] - offsets[0] != num_bytes:
            raise ValueError(
                f"the data_offsets of {shown(name)} must be two integers, {num_bytes} bytes apart. "
                f"Received: {shown(offsets)}"
            )
        tensors[name] = StoredTensor(path, start + offsets[0], shape, DTYPES[dtype])
    end = start
    for name, stored in sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].size)):
        if stored.offset != end:
            raise ValueError(
                "a tensor must begin where the one before ends. "
                f"Received: {shown(name)} at {stored.offset - start}, not {end - start}"
            )
        end += stored.num_bytes
    if end != size:
        raise ValueError(
            f"the tensors must end with the file. Received: {end - start} bytes of tensors, "
            f"{size - start} bytes behind the header"
        )
    return tensors


def write_safetensors(path: str | PathLike[str], tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a safetensors file of float32 tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in tensors.items():
        begin, end = end, end + 4 * values.size
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [begin, end]}
    data = json.dumps(header, ensure_ascii=False).encode()
    data += b" " * (-len(data) % 8)  # so that the tensors are aligned
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(data)) + data)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values, "<f4").tobytes())
