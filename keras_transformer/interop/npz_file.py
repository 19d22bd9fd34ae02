"""Reads what a NumPy archive (.npz), as Marian writes, says of its arrays.

Each member is an array: its magic, version, the length of a header, the header, the elements. The
header is matched, not evaluated, and an array of Python objects is refused.
"""

import math
import re
import struct
import zlib
from pathlib import Path

import numpy as np

from keras_transformer.interop.files import shown
from keras_transformer.interop.stored_zip import Member, stored_members
from keras_transformer.interop.tensor_file import (
    StoredTensor,
    TensorFile,
    checked_name,
    checked_shape,
)

MAX_TEXT = 2**20  # bytes
HEADER = re.compile(
    r"\{\s*'descr'\s*:\s*'(?P<descr>[^']{1,16})'\s*,"
    r"\s*'fortran_order'\s*:\s*(?P<fortran>True|False)\s*,"
    r"\s*'shape'\s*:\s*\((?P<shape>[0-9, ]{0,400})\)\s*,?\s*\}\s*"
)
DTYPE = re.compile(r"<(f[248]|[iu][248])|[<|>=]([iu]1|b1)")


def npz(path: Path) -> dict[str, StoredTensor]:
    """Returns the arrays of a .npz file.

    Raises:
        ValueError: when a member is not an array of numbers, or has another size than its shape.
    """
    tensors: dict[str, StoredTensor] = {}
    with open(path, "rb") as file:
        for member_name, member in stored_members(path).items():
            name = checked_name(member_name.removesuffix(".npy"), tensors)
            file.seek(member.offset)
            tensors[name] = _tensor(path, name, member, file.read(min(member.size, 2048)))
    return tensors


def read_text(tensors: TensorFile, name: str) -> str:
    """Returns the text that an array of bytes holds, as `special:model.yml` of Marian.

    Raises:
        ValueError: when it is not an array of bytes, is not UTF-8, or is too long for a text.
    """
    if name in tensors and (tensors[name].dtype.itemsize > 1 or tensors[name].size > MAX_TEXT):
        raise ValueError(
            f"{tensors.path}: {name} must be at most {MAX_TEXT} bytes. "
            f"Received: dtype={tensors[name].dtype.name}, shape={tensors[name].shape}"
        )
    try:
        return tensors.read(name).tobytes().rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{tensors.path}: {name} must be UTF-8. Received: {error}") from None


def _tensor(path: Path, name: str, member: Member, start: bytes) -> StoredTensor:
    form = {b"\1\0": "<H", b"\2\0": "<I", b"\3\0": "<I"}.get(start[6:8], "<I")
    begin = 8 + struct.calcsize(form)
    if not start.startswith(b"\x93NUMPY") or len(start) < begin:
        raise ValueError(f"{shown(name)} must be a NumPy array. Received: {shown(start[:10])}")
    end = begin + struct.unpack(form, start[8:begin])[0]
    match = HEADER.fullmatch(start[begin:end].decode("latin-1"))
    if match is None or end > len(start):
        raise ValueError(
            f"the header of {shown(name)} must tell descr, fortran_order and shape. "
            f"Received: {shown(start[begin:end].decode('latin-1'))}"
        )
    if not DTYPE.fullmatch(match["descr"]):
        raise ValueError(
            f"{shown(name)} must hold little-endian numbers. Received: descr={match['descr']!r}"
        )
    shape = checked_shape(name, [int(size) for size in re.findall("[0-9]+", match["shape"])])
    strides = None
    if match["fortran"] == "True" and len(shape) > 1:
        strides = tuple(math.prod(shape[:axis]) for axis in range(len(shape)))
    checksum = (zlib.crc32(start[:end]), member.crc32)
    dtype = np.dtype(match["descr"])
    stored = StoredTensor(path, member.offset + end, shape, dtype, strides, checksum)
    if end + stored.num_bytes != member.size:
        raise ValueError(
            f"{shown(name)} must have the {stored.num_bytes} bytes of its shape {shape}. "
            f"Received: {member.size - end} bytes"
        )
    return stored
