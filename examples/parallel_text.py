"""Reads line-aligned text files, plain or gzip, and says in one line what is wrong with them."""

import gzip
import random
import zlib
from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"


def read_lines(path):
    """Returns the lines of a UTF-8 text file, plain or gzip, without their line ends.

    Only line feeds end a line: other separators may stand inside a sentence.
    """
    path = Path(path)
    if not path.is_file():
        kind = "is no file" if path.exists() else "there is no such file"
        raise ValueError(f"{path}: {kind}. Check the path.")
    try:
        data = path.read_bytes()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error}). Make the file anew.") from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}: line {line} is not valid UTF-8. Convert the file, for example with "
            f"`iconv -f ISO-8859-1 -t UTF-8 {path.name}`."
        ) from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.rstrip("\r") for line in lines]


def read_pairs(source_path, target_path):
    """Returns the pairs of two files whose lines are translations of each other."""
    sources, targets = read_lines(source_path), read_lines(target_path)
    if len(sources) != len(targets):
        raise ValueError(
            f"{source_path} has {len(sources):,} lines and {target_path} has {len(targets):,}. "
            "Line n of one must translate line n of the other: give files of equal length."
        )
    if not sources:
        raise ValueError(f"{source_path}: the file is empty. Give a file with text.")
    return list(zip(sources, targets, strict=True))


def without_empty(pairs):
    """Returns the pairs with text on both sides, and how many had none."""
    kept = [(source, target) for source, target in pairs if source.strip() and target.strip()]
    return kept, len(pairs) - len(kept)


def hold_out(pairs, share=0.01, most=1000, seed=0):
    """Takes some pairs away for validation or testing: (remaining, held out).

    No source of a held-out pair is left among the remaining ones.
    """
    count = max(1, min(most, int(len(pairs) * share)))
    held_out = random.Random(seed).sample(pairs, count)
    sources = {source for source, _ in held_out}
    remaining = [pair for pair in pairs if pair[0] not in sources]
    if not remaining:
        raise ValueError(
            f"{len(pairs)} pairs are too few to hold some out. Give more text, or files for "
            "validation and test."
        )
    return remaining, held_out
