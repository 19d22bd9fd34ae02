"""Chooses the few batch shapes that waste the least padding, by dynamic programming."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

MULTIPLE = 4
MAX_LEVELS = 1024  # the programme's tables grow with the square of it


@dataclasses.dataclass(frozen=True)
class Bucket:
    """One batch shape, and the pairs that use it.

    Args:
        rows: pairs in a batch.
        source_length: padded length of a source row.
        target_length: padded length of a target row.
        members: int array, the indices of the pairs, in order.
    """

    rows: int
    source_length: int
    target_length: int
    members: np.ndarray

    @property
    def num_batches(self) -> int:
        """Batches of an epoch; the last one may be filled with rows of padding."""
        return -(-len(self.members) // self.rows)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, source_length, target_length)."""
        return self.rows, self.source_length, self.target_length


def make_buckets(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    tokens_per_batch: int,
    max_shapes: int,
    rows_multiple: int = 1,
) -> list[Bucket]:
    """Returns at most `max_shapes` buckets with the fewest padded tokens in all.

    Pairs are sorted by their longer side, rounded up; a bucket is a run of that order. Its rows
    are as many as keep rows * longer side within `tokens_per_batch`, evened out over its batches
    and a multiple of `rows_multiple`.

    Args:
        source_lengths: int array (pairs,).
        target_lengths: int array (pairs,).
        tokens_per_batch: at least `rows_multiple` times the longest side of any pair, rounded up.
        max_shapes: the largest number of buckets.
        rows_multiple: what divides the rows of every bucket.

    Returns:
        A list of `Bucket`, the shortest pairs first; each pair is in exactly one.
    """
    sources, targets = round_up(source_lengths), round_up(target_lengths)
    longer = np.maximum(sources, targets)
    step = -(-longer.max() // MAX_LEVELS)
    levels, level_of_pair, counts = np.unique(
        -(-longer // step), return_inverse=True, return_counts=True
    )
    level_sources, level_targets = np.zeros_like(levels), np.zeros_like(levels)
    np.maximum.at(level_sources, level_of_pair, sources)
    np.maximum.at(level_targets, level_of_pair, targets)
    limits = tokens_per_batch, rows_multiple
    costs = _costs(counts, level_sources, level_targets, *limits)
    buckets = []
    for start, stop in cheapest_runs(costs, max_shapes):
        members = np.flatnonzero((level_of_pair >= start) & (level_of_pair < stop))
        source, target = level_sources[start:stop].max(), level_targets[start:stop].max()
        rows = _rows(len(members), max(source, target), *limits)
        buckets.append(Bucket(int(rows), int(source), int(target), members))
    return buckets


def round_up(lengths: ArrayLike) -> np.ndarray:
    """Returns the lengths rounded up to a multiple of 4."""
    return -(-np.asarray(lengths) // MULTIPLE) * MULTIPLE


def cheapest_runs(costs: np.ndarray, max_runs: int) -> list[tuple[int, int]]:
    """Cuts 0..n into at most `max_runs` runs with the least sum of costs.

    Args:
        costs: (n, n) array; `costs[i, j]`, for i <= j, is the cost of the items i to j inclusive.
        max_runs: the largest number of runs.

    Returns:
        A list of `(start, stop)`, in order; of equal sums, the one with the fewest runs.
    """
    size = len(costs)
    costs = np.where(np.triu(np.ones(costs.shape, bool)), costs, np.inf)
    totals, starts = [costs[0]], [np.zeros(size, dtype=int)]
    for _ in range(1, min(max_runs, size)):
        # -> (start, last): the best with one run less up to start - 1, then one run to last
        candidates = totals[-1][:-1, None] + costs[1:]
        starts.append(candidates.argmin(axis=0) + 1)
        totals.append(candidates.min(axis=0))
    num_runs = int(np.argmin([total[-1] for total in totals])) + 1
    runs, stop = [], size
    for run in reversed(range(num_runs)):
        start = int(starts[run][stop - 1])
        runs.append((start, stop))
        stop = start
    return runs[::-1]


def _costs(
    counts: np.ndarray, sources: np.ndarray, targets: np.ndarray, *limits: int
) -> np.ndarray:
    """Returns the padded tokens of an epoch for each run of levels."""
    costs = np.zeros((len(counts), len(counts)))
    for start in range(len(counts)):
        pairs = np.cumsum(counts[start:])
        source = np.maximum.accumulate(sources[start:])
        target = np.maximum.accumulate(targets[start:])
        rows = _rows(pairs, np.maximum(source, target), *limits)
        costs[start, start:] = -(-pairs // rows) * rows * (source + target)
    return costs


def _rows(num_pairs: Any, length: Any, tokens_per_batch: int, multiple: int) -> Any:
    """Returns the rows of a bucket, an int; or those of several, of arrays."""
    most = tokens_per_batch // length // multiple * multiple
    num_batches = -(-num_pairs // most)
    return -(-num_pairs // (num_batches * multiple)) * multiple
