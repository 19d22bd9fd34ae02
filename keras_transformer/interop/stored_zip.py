"""The members of a zip file that are stored as they are, which can be read in place.

PyTorch and NumPy write such files. A compressed member is refused: it may claim any size.
"""

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

from keras_transformer.interop.files import shown

LOCAL_HEADER = 30  # bytes, before the name
MAX_DIRECTORY = 8 * 2**20  # bytes: some 100,000 members
DAMAGED = (  # what zipfile raises for a file that is not a zip file
    zipfile.BadZipFile,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    ValueError,
    struct.error,
)


class Member(NamedTuple):
    """Where a member's bytes lie in the zip file, and their CRC-32."""

    offset: int
    size: int
    crc32: int


class SmallReads(io.BufferedReader):
    """A file that `zipfile` cannot read in large parts, whatever size its directory claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Returns the next bytes, or raises `ValueError` when they are too many."""
        left = os.fstat(self.fileno()).st_size - self.tell()
        asked = left if size is None or size < 0 else size
        if asked > MAX_DIRECTORY:
            raise ValueError(f"a directory of at least {asked} bytes, not {MAX_DIRECTORY} at most")
        return super().read(size)


def stored_members(path: Path) -> dict[str, Member]:
    """Returns the members of a zip file by name.

    Raises:
        ValueError: when the file is not a whole zip file, its directory is too large, or a name
            stands twice. When a member is compressed, encrypted, not inside the file or over
            another.
    """
    members: dict[str, Member] = {}
    spans = []
    with SmallReads(io.FileIO(path)) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
        except DAMAGED as error:
            raise ValueError(f"must be a whole zip file. Received: {error}") from None
        for entry in entries:
            name = entry.filename
            if name in members:
                raise ValueError(f"a member's name must stand once. Received: {shown(name)} twice")
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                raise ValueError(
                    "a member must be stored, not compressed (numpy.savez, not "
                    f"savez_compressed) and not encrypted. Received: {shown(name)}"
                )
            offset = _data_offset(file, entry, size)
            members[name] = Member(offset, entry.file_size, entry.CRC)
            spans.append((entry.header_offset, offset + entry.file_size, name))
    end = 0
    for begin, behind, name in sorted(spans):
        if begin < end:
            raise ValueError(
                f"members must not overlap. Received: {shown(name)} at {begin} < {end}"
            )
        end = behind
    return members


def member_bytes(path: Path, member: Member, max_bytes: int) -> bytes:
    """Returns the bytes of a small member after a check of their CRC-32."""
    if member.size > max_bytes:
        raise ValueError(f"must have at most {max_bytes} bytes. Received: {member.size} bytes")
    with open(path, "rb") as file:
        file.seek(member.offset)
        data = file.read(member.size)
    if len(data) != member.size or zlib.crc32(data) != member.crc32:
        raise ValueError(f"the bytes must have their CRC-32. Received: others at {member.offset}")
    return data


def _data_offset(file: BinaryIO, entry: zipfile.ZipInfo, size: int) -> int:
    begin = entry.header_offset
    header = b""
    if 0 <= begin <= size - LOCAL_HEADER:
        file.seek(begin)
        header = file.read(LOCAL_HEADER)
    if not header.startswith(b"PK\3\4"):
        raise ValueError(
            "a member must begin with its header. "
            f"Received: {shown(entry.filename)}, none at {begin}"
        )
    offset = begin + LOCAL_HEADER + sum(struct.unpack_from("<HH", header, 26))
    if entry.compress_size != entry.file_size or offset + entry.file_size > size:
        raise ValueError(
            f"a member must be inside the file of {size} bytes. Received: "
            f"{shown(entry.filename)}, {entry.file_size} bytes at {offset}"
        )
    return offset
