"""Reads line-aligned text files, plain or gzip, and says in one line what is wrong with them."""

import gzip
import random
import unicodedata
import zlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Literal

from keras_transformer.line_files import GZIP_MAGIC, check_is_file, check_is_text

Pair = tuple[str, str]


def read_lines(path: str | PathLike[str]) -> list[str]:
    """Returns the lines of a UTF-8 text file, plain or gzip, without their line ends.

    Only line feeds end a line: other separators may stand inside a sentence.
    """
    path = Path(path)
    check_is_file(path)
    try:
        data = path.read_bytes()
        if data.startswith(GZIP_MAGIC):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error}). Make the file anew.") from error
    check_is_text(data, path)
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if nuls := data.count(0):
            raise ValueError(
                f"{path}: is not text: it holds {nuls:,} NUL bytes. Give a file of UTF-8 text."
            ) from error
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}: line {line} is not valid UTF-8. Convert the file, for example from Latin-1 "
            f"with `iconv -f ISO-8859-1 -t UTF-8 {path.name}`."
        ) from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.rstrip("\r") for line in lines]


def read_pairs(source_path: str | PathLike[str], target_path: str | PathLike[str]) -> list[Pair]:
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


def normalize(form: str, text: str) -> str:
    """A text in the normal form "nfc" or "nfkc" of Unicode; "identity" leaves it as it is."""
    forms: dict[str, Literal["NFC", "NFKC"]] = {"nfc": "NFC", "nfkc": "NFKC"}
    return text if form == "identity" else unicodedata.normalize(forms[form], text)


def without_empty(pairs: Sequence[Pair]) -> tuple[list[Pair], int]:
    """Returns the pairs with text on both sides, and how many had none."""
    kept = [(source, target) for source, target in pairs if source.strip() and target.strip()]
    return kept, len(pairs) - len(kept)


def hold_out(
    pairs: Sequence[Pair], share: float = 0.01, most: int = 1000, seed: int = 0
) -> tuple[list[Pair], list[Pair]]:
    """Takes some pairs away for validation or testing: (remaining, held out).

    No source of a held-out pair is left among the remaining ones.
    """
    if not pairs:
        raise ValueError("there are no pairs to hold some out of. Check the files.")
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
