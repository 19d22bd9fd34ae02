"""The target tokens that a batch of sources is likely to need: a step computes no others."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Ids, Tensor

ROUNDS = 4  # of expectation-maximization: later ones change few of the best targets
SENTENCES = 10_000  # that are counted at once
CERTAIN = 1e6  # above any sum of probabilities


class Shortlist:
    """For each source token the target tokens that are likely beside it, and the frequent ones.

    A target's mass in a batch is the sum of `t(target | source)` over all source tokens of the
    batch. A batch of `rows` sources gets the frequent targets and `size * rows` others, those of
    the largest mass. The model computes their logits, and those of a sample of the others, which
    pays with a large vocabulary and few rows. Other tokens are not written. The sample says how
    much probability they have, so that scores are nearly the model's own.

    `learn` finds `t` in the ids of training pairs by expectation-maximization of IBM's model 1:

    `t(target | source) ∝ sum over pairs of t(target | source) / sum over the pair's sources of t`

    Args:
        target_ids: integers (source_vocab, targets), the likely targets of each source token.
        probabilities: numbers (source_vocab, targets), `t` of each; 0 where there are fewer.
        frequent_ids: integers (frequent,), the targets of every batch.
        vocab_size: number of target tokens.
        size: how many other targets each row of a batch adds.

    Raises:
        ValueError: for shapes that do not go together, ids outside of the vocabulary, or
            probabilities outside of 0 to 1.

    Reference: Brown et al. 1993, model 1; Jean et al. 2015, section 3.3, for the lists.

    Example:

    >>> from keras_transformer.decoding import Shortlist
    >>> sources, targets = [[5, 6], [5, 7], [6]], [[8, 9], [8, 4], [9]]
    >>> shortlist = Shortlist.learn(sources, targets, 8, 10, size=1, num_frequent=0)
    >>> [int(token) for token in shortlist.candidate_ids([[6]], always=(0, 1, 2))]
    [0, 1, 2, 9]
    """

    def __init__(
        self,
        target_ids: Ids,
        probabilities: Tensor,
        frequent_ids: Ids,
        *,
        vocab_size: int,
        size: int = 256,
    ) -> None:
        self.target_ids = np.asarray(target_ids, "int32")
        self.probabilities = np.asarray(probabilities, "float32")
        self.frequent_ids = np.asarray(frequent_ids, "int32")
        self.vocab_size = arguments.positive_integer("vocab_size", vocab_size)
        self.size = arguments.positive_integer("size", size)
        if self.target_ids.ndim != 2 or self.target_ids.shape != self.probabilities.shape:
            raise ValueError(
                "`target_ids` and `probabilities` must both be (source_vocab, targets). Received: "
                f"shapes {self.target_ids.shape} and {self.probabilities.shape}"
            )
        if self.frequent_ids.ndim != 1:
            raise ValueError(
                f"`frequent_ids` must be (frequent,). Received: shape {self.frequent_ids.shape}"
            )
        for name in ("target_ids", "frequent_ids"):
            ids = getattr(self, name)
            if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
                raise ValueError(
                    f"`{name}` must be from 0 to below `vocab_size`, {self.vocab_size}. "
                    f"Received: {name} from {ids.min()} to {ids.max()}"
                )
        # NaN fails the comparison.
        if not ((self.probabilities >= 0) & (self.probabilities <= 1)).all():
            raise ValueError(
                "`probabilities` must be from 0 to 1. "
                f"Received: {self.probabilities.min()} to {self.probabilities.max()}"
            )

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments by name."""
        names = ("target_ids", "probabilities", "frequent_ids", "vocab_size", "size")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def learn(
        cls,
        source_rows: Iterable[Sequence[int]],
        target_rows: Iterable[Sequence[int]],
        source_vocab_size: int,
        vocab_size: int,
        *,
        size: int = 256,
        num_targets: int = 64,
        num_frequent: int = 2048,
    ) -> Self:
        """Learns a shortlist from the ids of training pairs, without padding.

        It takes 16 bytes for each pair of a source and a target token of a sentence. 100,000
        sentences are enough: give a sample of more.

        Args:
            source_rows: a row of ids for each source.
            target_rows: a row of ids for each target, in the same order.
            source_vocab_size: number of source tokens.
            vocab_size: number of target tokens.
            size: how many targets each row of a batch adds to the frequent ones.
            num_targets: largest number of targets of a source token.
            num_frequent: number of frequent targets.

        Raises:
            ValueError: for ids outside of the vocabularies, or for no pair with a token on each
                side.
        """
        sizes = source_vocab_size, vocab_size
        pairs = zip(source_rows, target_rows, strict=True)
        chunks, counts = [], np.zeros(vocab_size, "int64")
        while rows := list(itertools.islice(pairs, SENTENCES)):
            found = _make_pairs(rows, sizes)
            chunks.append((found.codes, found.places))
            counts += np.bincount(found.targets, minlength=vocab_size)
        links = np.unique(
            np.concatenate([np.zeros(0, "int64"), *(np.unique(c) for c, _ in chunks)])
        )
        if not links.size:
            raise ValueError(
                "`source_rows` and `target_rows` must have tokens in the same sentence. "
                "Received: no pair of tokens"
            )
        chunks = [(np.searchsorted(links, codes).astype("int32"), p) for codes, p in chunks]
        owner = links // vocab_size
        likely = np.full(len(links), 1.0 / vocab_size)
        for _ in range(ROUNDS):
            total = np.zeros(len(links))
            for link_of, places in chunks:
                shares = likely[link_of]
                shares /= np.bincount(places, shares)[places]
                total += np.bincount(link_of, shares, len(links))
            likely = total / np.bincount(owner, total)[owner]
        order = np.lexsort((-likely, owner))  # by source, the most likely first
        owner = owner[order]
        rank = np.arange(len(order)) - np.searchsorted(owner, owner)
        order, owner, rank = (part[rank < num_targets] for part in (order, owner, rank))
        ids = np.zeros((source_vocab_size, num_targets), "int32")
        probabilities = np.zeros((source_vocab_size, num_targets), "float32")
        ids[owner, rank] = links[order] % vocab_size
        probabilities[owner, rank] = likely[order]
        frequent = np.argsort(-counts, kind="stable")[:num_frequent]
        return cls(ids, probabilities, frequent, vocab_size=vocab_size, size=size)

    def candidate_ids(
        self, source_ids: Ids, always: Sequence[int] = (), further: Ids | None = None
    ) -> Ids:
        """Returns the targets of a batch, (candidates,), in the order of their ids.

        Args:
            source_ids: integers (batch, source). Padding may be of any id that has no targets.
            always: ids that every batch needs, such as those of special tokens.
            further: a tensor of more such ids, of any shape.
        """
        source_ids = ops.cast(source_ids, "int32")
        further = () if further is None else further
        further = ops.reshape(ops.cast(further, "int32"), (-1,))  # -> (further,)
        number = len(self.frequent_ids) + len(always) + ops.shape(further)[0]
        number = number + self.size * ops.shape(source_ids)[0]
        least_of = min if isinstance(number, int) else ops.minimum
        number = least_of(number, self.vocab_size)
        target_ids, probabilities = self._tables()
        # -> (batch, source, targets)
        ids = ops.take(target_ids, source_ids, axis=0)
        masses = ops.take(probabilities, source_ids, axis=0)
        needed = np.zeros(self.vocab_size, "float32")
        needed[[*self.frequent_ids, *always]] = CERTAIN
        of_further = self._sums(further, ops.full(ops.shape(further), CERTAIN))
        mass = ops.convert_to_tensor(needed) + of_further + self._sums(ids, masses)  # (vocab,)
        return ops.sort(ops.cast(ops.top_k(mass, number)[1], "int32"))

    def _sums(self, ids: Ids, masses: Tensor) -> Tensor:
        """The sum of the masses of each target, (vocab,)."""
        ids = ops.reshape(ids, (-1, 1))  # -> (ids, 1)
        masses = ops.reshape(masses, (-1,))  # -> (ids,)
        return ops.scatter(ids, masses, (self.vocab_size,))

    def _tables(self) -> tuple[Tensor, Tensor]:
        return ops.convert_to_tensor(self.target_ids), ops.convert_to_tensor(self.probabilities)


class _Pairs(NamedTuple):
    """All pairs of a source and a target token of some sentences."""

    codes: np.ndarray  # int64 (pairs,), `source * vocab_size + target`
    places: np.ndarray  # int32 (pairs,), where the target stands among `targets`
    targets: np.ndarray  # int64 (tokens,)


def _make_pairs(rows: list[tuple[Sequence[int], Sequence[int]]], sizes: tuple[int, int]) -> _Pairs:
    """The pairs of some sentences, the tokens of a source without repetitions."""
    codes, places, tokens, start = [], [], [], 0
    for row in rows:
        source, target = (
            _checked_row(*side)
            for side in zip(("source_rows", "target_rows"), row, sizes, strict=True)
        )
        source = np.unique(source)
        codes.append((source[None, :] * sizes[1] + target[:, None]).reshape(-1))
        places.append(np.repeat(np.arange(start, start + len(target)), len(source)))
        tokens.append(target)
        start += len(target)
    joined = np.concatenate(places).astype("int32")
    return _Pairs(np.concatenate(codes), joined, np.concatenate(tokens))


def _checked_row(name: str, ids: Sequence[int], size: int) -> np.ndarray:
    """The ids of a sentence, or raises `ValueError` where one is not of the vocabulary."""
    row = np.asarray(ids, "int64")
    if row.size and not 0 <= row.min() <= row.max() < size:
        raise ValueError(
            f"`{name}` must be from 0 to below {size}. "
            f"Received: {name} from {row.min()} to {row.max()}"
        )
    return row
