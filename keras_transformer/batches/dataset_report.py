"""DatasetReport: what became of the pairs given to a dataset."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class DatasetReport:
    """What became of the pairs given to `translation_dataset` or `PairDataset`.

    With `subword_dropout` the tokens and the padding are those of pass 0.

    Args:
        num_pairs: pairs given.
        num_kept: pairs in the dataset, each once an epoch.
        num_too_long: pairs left out because a side is longer than `max_length`.
        num_empty: pairs left out because a side has no token.
        num_batches: batches of an epoch.
        shapes: tuple of (rows, source_length, target_length), one for each shape of batch.
        num_tokens: (source, target) tokens of an epoch, one eos for each text included.
        padding_ratio: the share of padding among all positions of an epoch.

    Example:

    >>> DatasetReport(9, 7, 2, 0, 1, ((7, 8, 8),), (42, 42), 0.25).summary(max_length=8)
    'translation_dataset: 7 of 9 pairs in 1 batches of 1 shapes, 25.0% padding; left out 2 longer \
than max_length=8 tokens (a larger max_length keeps them)'
    """

    num_pairs: int
    num_kept: int
    num_too_long: int
    num_empty: int
    num_batches: int
    shapes: tuple[tuple[int, int, int], ...]
    num_tokens: tuple[int, int]
    padding_ratio: float

    def summary(self, max_length: int, name: str = "translation_dataset") -> str:
        """Returns the one line that a dataset of this name writes."""
        line = (
            f"{name}: {self.num_kept:,} of {self.num_pairs:,} pairs in "
            f"{self.num_batches:,} batches of {len(self.shapes)} shapes, "
            f"{self.padding_ratio:.1%} padding"
        )
        if self.num_too_long:
            line += (
                f"; left out {self.num_too_long:,} longer than max_length={max_length} tokens "
                "(a larger max_length keeps them)"
            )
        if self.num_empty:
            line += f"; left out {self.num_empty:,} with an empty side"
        return line
