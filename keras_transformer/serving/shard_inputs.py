"""What the finished files of a collection are translations of: another input is found."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keras_transformer.atomic_files import lock

RECORD = "translate_shards.inputs"  # a JSON object a line, the last one of a name holds


class Input(NamedTuple):
    """What an input held when it was translated, wherever it was.

    Attributes:
        size: bytes.
        mtime_ns: when it was last changed; the digest tells where that alone differs.
        sha256: of its bytes.
    """

    size: int
    mtime_ns: int
    sha256: str


def read_input(path: str) -> Input:
    """Reads a file whole."""
    with open(path, "rb") as stream:
        status = os.fstat(stream.fileno())
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Input(status.st_size, status.st_mtime_ns, digest)


def is_unchanged(path: str, found: Input) -> bool:
    """Whether a file has the size and time that were found, so that it need not be read."""
    status = os.stat(path)
    return (status.st_size, status.st_mtime_ns) == (found.size, found.mtime_ns)


def note_input(directory: str, name: str, found: Input) -> None:
    """Notes what a file is made of, on disk before the file has its name.

    Several processes may do so at the same time, on any machine whose locks the file system has.
    """
    line = json.dumps({"file": name, **found._asdict()})
    with open(os.path.join(directory, RECORD), "ab") as stream:
        lock(stream, wait=True)
        stream.write(f"\n{line}".encode())  # whatever a crash has left of the line before
        stream.flush()
        os.fsync(stream.fileno())


def read_inputs(directory: str) -> dict[str, Input]:
    """Returns the inputs of the files of a directory by their names."""
    found: dict[str, Input] = {}
    try:
        with open(os.path.join(directory, RECORD), encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # an empty line, or one that a crash has cut off
                name = record.pop("file")
                found[name] = Input(**record)
    except FileNotFoundError:
        pass
    return found


def check_inputs(directory: str, targets: Mapping[str, str]) -> list[str]:
    """Checks that finished files are translations of the inputs that are given.

    An input is the same where its bytes are: it may be moved, copied or downloaded again. It is
    read only where its time differs.

    Args:
        directory: of the finished files.
        targets: the finished file of each input.

    Returns:
        The finished files whose inputs were not noted, as those of earlier versions.

    Raises:
        ValueError: when an input is another than the finished file was made of.
    """
    known = read_inputs(directory)
    others: list[str] = []
    unknown: list[str] = []
    for path, target in targets.items():
        name = os.path.basename(target)
        found = known.get(name)
        if found is None:
            unknown.append(target)
        elif not is_unchanged(path, found):
            if os.path.getsize(path) != found.size or (now := read_input(path))[2] != found[2]:
                others.append(path)
            else:
                note_input(directory, name, now)  # it need not be read again
    if others:
        raise ValueError(describe_others(directory, others, targets))
    return unknown


def describe_others(directory: str, others: Sequence[str], targets: Mapping[str, str]) -> str:
    """Says which inputs are others than before, and what to do."""
    more = f" and of {len(others) - 1:,} more" if len(others) > 1 else ""
    return (
        f"{directory} has the translation of another file under the name of {others[0]}{more}: "
        f"the contents differ. Give another directory, or delete {targets[others[0]]} to have "
        "this one translated."
    )
