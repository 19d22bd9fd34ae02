"""From the ids of all pairs to the batches of a run: what is kept, and in which shapes."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_transformer.batches.buckets import MULTIPLE, Bucket, make_buckets, round_up
from keras_transformer.batches.dataset_report import DatasetReport
from keras_transformer.batches.passes import Passes, Side
from keras_transformer.batches.token_store import SpecialIds


def make_passes(
    sides: Sequence[Side],
    special: SpecialIds,
    *,
    tokens_per_batch: int,
    max_length: int,
    max_shapes: int,
    rows_multiple: int,
    order: int | None,
    per_update: int,
) -> tuple[Passes, DatasetReport]:
    """Chooses the pairs and the shapes of batch.

    Args:
        sides: sources and targets, each a `TokenStore` or what has its methods.
        special: the ids that are not tokens.
        tokens_per_batch: the largest rows * padded length of either side of a batch.
        max_length: the most tokens of a side, its special id included.
        max_shapes: the largest number of shapes.
        rows_multiple: what divides the rows of every batch.
        order: seed of the order of each pass; None for from short to long.
        per_update: batches whose weights are made together.

    Returns:
        The `Passes` and their `DatasetReport`.
    """
    # One more for the special id of each row.
    source_lengths, target_lengths = (side.lengths + 1 for side in sides)
    kept, num_too_long, num_empty = _select(source_lengths, target_lengths, max_length)
    room = [np.minimum(side.expected_lengths + 1, max_length) for side in sides]
    buckets = _buckets(
        room[0],
        room[1],
        kept,
        tokens_per_batch=tokens_per_batch,
        max_shapes=max_shapes,
        rows_multiple=rows_multiple,
    )
    sources, targets = sides
    passes = Passes(
        sources,
        targets,
        buckets,
        seed=order,
        special=special,
        batches_per_update=per_update,
    )
    report = _report(
        passes,
        room,
        kept,
        num_pairs=len(sources.lengths),
        num_too_long=num_too_long,
        num_empty=num_empty,
    )
    return passes, report


def _select(
    source_lengths: np.ndarray, target_lengths: np.ndarray, max_length: int
) -> tuple[np.ndarray, int, int]:
    """Returns `(kept, num_too_long, num_empty)`: the indices that stay, and why others do not."""
    empty = np.minimum(source_lengths, target_lengths) <= 1
    too_long = ~empty & (np.maximum(source_lengths, target_lengths) > max_length)
    # The indices of all pairs stay in memory, those of each pass beside them: half as many bytes.
    kept = np.flatnonzero(~empty & ~too_long).astype("int32" if len(empty) < 2**31 else "int64")
    num_too_long, num_empty = int(too_long.sum()), int(empty.sum())
    if not len(kept):
        raise ValueError(
            f"At least one pair must have text on both sides and at most max_length={max_length} "
            f"tokens a side. Received: {len(empty)} pairs, {num_empty} with an empty side, "
            f"{num_too_long} longer"
        )
    return kept, num_too_long, num_empty


def _buckets(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    kept: np.ndarray,
    *,
    tokens_per_batch: int,
    max_shapes: int,
    rows_multiple: int,
) -> list[Bucket]:
    sources, targets = source_lengths[kept], target_lengths[kept]
    longest = int(round_up(max(sources.max(), targets.max())))
    if tokens_per_batch < longest * rows_multiple:
        raise ValueError(
            f"`tokens_per_batch` must be at least {longest * rows_multiple}, `rows_multiple` times "
            "the longest sentence with its special id, rounded up to a multiple of "
            f"{MULTIPLE}; or lower `max_length`. "
            f"Received: tokens_per_batch={tokens_per_batch}, rows_multiple={rows_multiple}"
        )
    buckets = make_buckets(sources, targets, tokens_per_batch, max_shapes, rows_multiple)
    return [dataclasses.replace(bucket, members=kept[bucket.members]) for bucket in buckets]


def _report(
    passes: Passes,
    lengths: Sequence[np.ndarray],
    kept: np.ndarray,
    *,
    num_pairs: int,
    num_too_long: int,
    num_empty: int,
) -> DatasetReport:
    source_tokens, target_tokens = (int(side[kept].sum()) for side in lengths)
    positions = sum(
        bucket.num_batches * bucket.rows * (bucket.source_length + bucket.target_length)
        for bucket in passes.buckets
    )
    return DatasetReport(
        num_pairs=num_pairs,
        num_kept=len(kept),
        num_too_long=num_too_long,
        num_empty=num_empty,
        num_batches=passes.num_batches,
        shapes=tuple(bucket.shape for bucket in passes.buckets),
        num_tokens=(source_tokens, target_tokens),
        padding_ratio=1 - (source_tokens + target_tokens) / positions,
    )
