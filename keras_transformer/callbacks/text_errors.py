"""Exact match, word and character error rate: what is counted in each text, and out of how many."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

TEXT_METRICS = ("exact_match", "word_error_rate", "character_error_rate")


def count_errors(name: str, texts: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """What is counted in each text and out of how many: int (texts, 2)."""
    pairs = list(zip(texts, references, strict=True))
    if name == "exact_match":
        return np.array([(ours == theirs, 1) for ours, theirs in pairs])
    split: Callable[[str], Sequence[str]] = list if name.startswith("character") else str.split
    units = [(split(ours), split(theirs)) for ours, theirs in pairs]
    return np.array([(edit_distance(ours, theirs), len(theirs)) for ours, theirs in units])


def edit_distance(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    """The fewest replacements, insertions and removals that make one sequence the other.

    Example:

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(theirs) + 1))
    for i, one in enumerate(ours, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(theirs, start=1):
            least = min(row[j] + 1, row[j - 1] + 1, before + (one != other))
            before, row[j] = row[j], least
    return row[-1]


def percentage(counts: np.ndarray) -> float:
    """The first count in percent of the second; of none, of 1."""
    return 100.0 * float(counts[0]) / max(float(counts[1]), 1.0)
