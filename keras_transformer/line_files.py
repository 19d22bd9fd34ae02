"""The lines of UTF-8 text files, plain or gzip, one after the other: memory has one at a time."""

import codecs
import contextlib
import gzip
import io
import os
import re
import sys
import unicodedata
import zlib
from collections.abc import Iterator
from os import PathLike
from typing import Any

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What stands in a line of output: a text has one line, and columns beside it.
ONE_LINE = str.maketrans("\t\r\n", "   ")
GZIP_MAGIC = b"\x1f\x8b"
LONGEST_LINE = 2**20  # bytes of a training text; a longer one is too long for any model
# How files begin that are not text in UTF-8, what they are, and what makes such text of them.
KINDS = (
    (GZIP_MAGIC, "is compressed with gzip", "gzip -dk"),
    (rb"\xfd7zXZ\x00", "is compressed with xz", "xz -dk"),
    (rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", "is compressed with bzip2", "bzip2 -dk"),
    (rb"\x28\xb5\x2f\xfd", "is compressed with zstd", "zstd -d"),
    (rb"PK\x03\x04", "is a zip archive", "unzip"),
    (rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff", "is text in UTF-32", "iconv -f UTF-32 -t UTF-8"),
    (rb"\xff\xfe|\xfe\xff", "is text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
)


def each_line(path: str | PathLike[str], longest: int) -> Iterator[bytes]:
    """Yields the lines of a file without their line ends; only line feeds end a line.

    Args:
        path: a text file, plain or gzip.
        longest: the most bytes of a line. A longer one is cut one byte behind them, and tells so.

    Raises:
        ValueError: when there is no such file, it is not text, or it is damaged.
    """
    path = os.fspath(path)
    check_is_file(path)
    with open_lines(path) as stream, damage_named(path):
        check_is_text(stream.peek(), path)
        if stream.peek().startswith(BYTE_ORDER_MARK):
            stream.read(len(BYTE_ORDER_MARK))
        while line := stream.readline(longest + 2):
            rest = line
            while not rest.endswith(b"\n") and (rest := stream.readline(longest)):
                pass  # what is left of a long line
            yield line.rstrip(b"\r\n")[: longest + 1]


def check_is_file(path: str | PathLike[str]) -> None:
    """Raises `ValueError` unless there is a file at `path`."""
    if not os.path.isfile(path):
        kind = "is not a file" if os.path.exists(path) else "there is no such file"
        raise ValueError(f"{os.fspath(path)}: {kind}. Check the path.")


def open_lines(file: str | None) -> io.BufferedReader:
    """Opens a file, or the standard input for None, plain or gzip."""
    stream: Any = sys.stdin.buffer if file is None else open(file, "rb")  # noqa: SIM115
    if stream.peek()[:2] == GZIP_MAGIC:
        return io.BufferedReader(Unpacked(stream))
    return stream


class Unpacked(gzip.GzipFile):
    """What a stream of gzip holds; it closes the stream too."""

    def __init__(self, stream: Any) -> None:
        super().__init__(fileobj=stream)
        self.stream = stream

    def close(self) -> None:
        """Closes both."""
        super().close()
        self.stream.close()


@contextlib.contextmanager
def damage_named(file: str | None) -> Iterator[None]:
    """Says which file is damaged, where gzip finds that while it is read."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        name = file or "standard input"
        raise ValueError(f"{name}: cannot be read ({error}). Make the file anew") from error


def check_is_text(data: bytes, path: str | PathLike[str]) -> None:
    """Raises `ValueError` for data that is plainly something else than UTF-8.

    Args:
        data: bytes, the whole of a file without gzip, or its beginning.
        path: the file, or what it is called.
    """
    for beginning, what, command in KINDS:
        if re.match(beginning, data):
            raise ValueError(f"{path}: {what}. Convert it first, for example with `{command}`.")
    if encoding := encoding_with_nuls(data):
        raise ValueError(
            f"{path}: is text in {encoding}. Convert it first, for example with "
            f"`iconv -f {encoding} -t UTF-8`."
        )


def encoding_with_nuls(data: bytes) -> str | None:
    """The encoding of characters of two or four bytes, told by the NULs in them, or None.

    Other data, as a PDF or Latin-1 with stray NULs, has no line ends in such an encoding, or code
    points that no character has.
    """
    nuls, is_utf8 = data.count(0), True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)  # the end may be cut off
    except UnicodeDecodeError:
        is_utf8 = False
    if not nuls or (is_utf8 and 4 * nuls < len(data)):  # no text in UTF-8 has a quarter of NULs
        return None
    width = 32 if 2 * nuls > len(data) + 4 else 16
    orders = [f"UTF-{width}LE", f"UTF-{width}BE"]
    texts = {order: data.decode(order, "replace") for order in orders}
    order = max(orders, key=lambda name: sum("\n" <= c <= "~" for c in texts[name]))
    text = texts[order]
    has_lines = "\n" in text or b"\n" not in data
    strange = sum(unicodedata.category(c) in ("Cn", "Co", "Cs") or c == "\ufffd" for c in text)
    return order if has_lines and 50 * strange <= len(text) + 50 else None
