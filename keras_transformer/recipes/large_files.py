"""Reads training files that are too large for lists: a sample, and what tells them from others."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.atomic_files import write_atomically
from keras_transformer.line_files import check_is_file, each_line
from keras_transformer.recipes.parallel_text import Pair
from keras_transformer.recipes.settings import FIELDS, FILTERS, Settings
from keras_transformer.reservoir import sample_evenly

LARGE = 2**28  # bytes of both files, from which on they stay on disk
SAMPLE_SIZE = 200_000  # pairs, of which vocabularies are learnt
LONGEST_LINE = 2**20
SAMPLE = "sample.json"


class LargeFiles(NamedTuple):
    """Training files that stay on disk.

    Attributes:
        files: of sources and of targets.
        num_pairs: how many pairs they have.
        digest: 16 characters that tell their texts from others.
        sample: pairs with text on both sides, each as likely as any other.
    """

    files: tuple[str, str]
    num_pairs: int
    digest: str
    sample: list[Pair]


def stay_on_disk(settings: Settings) -> bool:
    """Whether the training files of a run stay on disk: where they are large, or filtered.

    They do not where both directions are trained, or without TensorFlow.
    """
    if any(getattr(settings, name) != FIELDS[name].default for name in FILTERS):
        return True
    if settings.format != "text" or len(settings.train) != 2 or settings.both_directions:
        return False
    for file in settings.train:
        check_is_file(file)
    return settings.backend == "tensorflow" and sum(map(os.path.getsize, settings.train)) >= LARGE


def read_large_files(files: Sequence[str], folder: Path) -> LargeFiles:
    """Reads the files once, from beginning to end, and never again while they stay as they are.

    Args:
        files: of sources and of targets.
        folder: where the sample is kept.

    Raises:
        ValueError: when the files differ in their numbers of lines, or no pair has text.
    """
    sources, targets = files
    states = [[status.st_size, status.st_mtime_ns] for status in map(os.stat, files)]
    kept = folder / SAMPLE
    found: dict[str, Any] = {}
    if kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
    if found.get("states") != states:
        reader = _Reader(sources, targets)
        sample = sample_evenly(reader.pairs(), SAMPLE_SIZE)
        if not sample:
            raise ValueError(f"{sources}: no pair has text on both sides. Check both files.")
        digest = reader.digest.hexdigest()[:16]
        found = dict(states=states, num_pairs=reader.count, digest=digest, sample=sample)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, json.dumps(found, ensure_ascii=False).encode())
    pairs = [(source, target) for source, target in found["sample"]]
    return LargeFiles((sources, targets), found["num_pairs"], found["digest"], pairs)


def filter_pairs(pairs: list[Pair], settings: Settings) -> list[Pair]:
    """Returns the pairs that the settings do not filter out before there are tokens.

    Vocabularies are learnt from these, and tests are held out of them.

    Raises:
        ValueError: when no pair is left, or for a name that is of no script.
    """
    from keras_transformer.text.scripts import are_of_scripts, checked_scripts

    kept = list(dict.fromkeys(pairs)) if settings.drop_duplicates else pairs
    for side, name in enumerate(("source_scripts", "target_scripts")):
        scripts = checked_scripts(name, getattr(settings, name))
        if scripts and kept:
            found = are_of_scripts([pair[side] for pair in kept], scripts)
            kept = [pair for pair, is_own in zip(kept, found, strict=True) if is_own]
    if not kept:
        raise ValueError(
            "`source_scripts` and `target_scripts` must leave some pairs. Received: "
            f"{settings.source_scripts} and {settings.target_scripts}, which leave none of "
            f"{len(pairs):,}"
        )
    return kept


class _Reader:
    """Reads two files, and counts and digests what it has read."""

    def __init__(self, sources: str, targets: str) -> None:
        self.files = sources, targets
        self.count, self.digest = 0, hashlib.sha256()

    def pairs(self) -> Iterator[Pair]:
        """Yields the pairs with text on both sides."""
        counts = [0, 0]
        sides = [each_line(file, LONGEST_LINE) for file in self.files]
        for pair in itertools.zip_longest(*sides):
            counts = [n + (line is not None) for n, line in zip(counts, pair, strict=True)]
            if None in pair:
                continue
            self.digest.update(b"%b\n%b\n" % pair)
            try:
                source, target = (line.decode("utf-8") for line in pair)
            except UnicodeDecodeError:  # the corpus leaves it out and counts it
                continue
            if source.strip() and target.strip():
                yield source, target
        if counts[0] != counts[1]:
            raise ValueError(
                f"{self.files[0]} has {counts[0]:,} lines and {self.files[1]} has {counts[1]:,}. "
                "Line n of one must translate line n of the other: give files of equal length."
            )
        self.count = counts[0]
