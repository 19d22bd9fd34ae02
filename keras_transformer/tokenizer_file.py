"""The one-file form of a tokenizer: a line of JSON that says what follows, then the bytes.

The first line holds the format's name and version, the class, its options, and the length and
SHA-256 of the rest. They tell a truncated file, or another kind of file.
"""

import hashlib
import json
import os
from os import PathLike
from typing import Any

FORMAT = "keras_transformer.tokenizer"
VERSION = 1


def pack(kind: str, options: dict[str, Any], payload: bytes) -> bytes:
    """Returns the bytes of a file that holds `payload` for the class named `kind`."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "options": options,
        "num_bytes": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
    }
    return json.dumps(header, sort_keys=True).encode("ascii") + b"\n" + payload


def unpack(data: bytes) -> tuple[str, dict[str, Any], bytes]:
    """Returns `(kind, options, payload)` of bytes made by `pack`, or raises `ValueError`."""
    first_line, _, payload = bytes(data).partition(b"\n")
    try:
        header = json.loads(first_line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(
            "`data` must be a tokenizer written by this package's `save` or `to_bytes`. "
            f"Received: data={bytes(data[:40])!r}..."
        )
    if header.get("version") != VERSION:
        raise ValueError(
            f"A tokenizer's format version must be {VERSION}; a later one needs a later release "
            f"of this package. Received: version={header.get('version')!r}"
        )
    if hashlib.sha256(payload).hexdigest() != header.get("sha256"):
        raise ValueError(
            f"A tokenizer's content must be the {header.get('num_bytes')} bytes that were saved; "
            f"the file is damaged or cut short. Received: num_bytes={len(payload)}"
        )
    return header["kind"], header["options"], payload


def read(path: str | PathLike[str]) -> tuple[str, dict[str, Any], bytes]:
    """Returns `unpack` of the file at `path`; its errors name the file."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return unpack(data)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error
