"""Texts that have other pieces in each pass."""

import contextlib
import dataclasses
import functools
import io
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from keras_transformer.atomic_files import write_atomically
from keras_transformer.batches.token_store import TokenStore
from keras_transformer.text.bpe_dropout import BpeDropout

# A text that came out longer than there is room for is split again so often, and then as ever.
ATTEMPTS = 4
VERSION = 1  # of what is drawn: lengths of other numbers are drawn anew
# Of a pass, what was drawn last; a text that is asked for again is drawn alike.
TEXTS_KEPT = 2**16


@dataclasses.dataclass(frozen=True)
class SubwordDropout:
    """As a `TokenStore`, but each pass has other pieces: a function of the seed and its number.

    Args:
        plain: the `TokenStore` of the texts without dropout.
        dropout: the `BpeDropout` of their tokenizer.
        rate: share of the merges left out.
        seed: tuple of integers.
        folder: where the lengths of the first pass are kept, which take long to draw; None for
            nowhere. It belongs to these texts and this tokenizer alone.
    """

    plain: TokenStore
    dropout: BpeDropout
    rate: float
    seed: tuple[int, ...]
    folder: Path | None = None

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each text without dropout."""
        return self.plain.lengths

    @functools.cached_property
    def expected_lengths(self) -> np.ndarray:
        """Room for most passes: the tokens of each text in the first one, or without dropout."""
        if self.folder is None:
            return self._draw_lengths()
        numbers = "-".join(map(str, (*self.seed, self.rate)))
        file = self.folder / f"dropout.{VERSION}-{numbers}.npy"
        if file.exists():
            return np.load(file)
        lengths, data = self._draw_lengths(), io.BytesIO()
        np.save(data, lengths)
        with contextlib.suppress(OSError):  # a folder that nobody may write to
            write_atomically(file, data.getvalue())
        return lengths

    def _draw_lengths(self) -> np.ndarray:
        texts = range(len(self.lengths))
        endless = np.full(len(texts), np.iinfo("int64").max)
        counts = self.of_pass(0, lambda: endless).count_tokens(texts)
        return np.maximum(counts, self.lengths).astype("int32")

    def of_pass(self, number: int, room: Callable[[], np.ndarray]) -> "SubwordPass":
        """The texts of pass `number`, none of more tokens than `room()` has for it."""
        (seed,) = np.random.SeedSequence([*self.seed, number]).generate_state(1, "uint64")
        return SubwordPass(self, int(seed), room())


class SubwordPass:
    """One pass: of each text, the pieces are drawn when its batch is made.

    Args:
        side: a `SubwordDropout`.
        seed: integer, of the pass.
        longest: int array of the room that each text has.
    """

    def __init__(self, side: SubwordDropout, seed: int, longest: np.ndarray) -> None:
        self._side, self._seed, self._longest = side, seed, longest
        self._drawn: dict[int, np.ndarray] = {}

    def count_tokens(self, members: Iterable[int]) -> np.ndarray:
        """The number of tokens of some texts, as an int array."""
        return np.array([len(self._ids(index)) for index in members], "int64")

    def padded(
        self,
        members: np.ndarray,
        shape: tuple[int, int],
        pad_id: int,
        first_id: int | None = None,
        last_id: int | None = None,
    ) -> np.ndarray:
        """Returns rows of tokens, as `TokenStore.padded`."""
        flat = np.concatenate([np.zeros(0, "int32"), *(self._ids(index) for index in members)])
        store = TokenStore.of_lengths(flat, self.count_tokens(members))
        return store.padded(np.arange(len(members)), shape, pad_id, first_id, last_id)

    def _ids(self, index: int) -> np.ndarray:
        if index not in self._drawn:
            if len(self._drawn) >= TEXTS_KEPT:
                self._drawn.clear()
            self._drawn[index] = np.array(self._draw(index), "int32")
        return self._drawn[index]

    def _draw(self, index: int) -> Sequence[int]:
        side, draws = self._side, random.Random(self._seed + int(index))
        plain = side.plain[index]
        attempts = (side.dropout.split(plain, side.rate, draws) for _ in range(ATTEMPTS))
        return next((ids for ids in attempts if len(ids) <= self._longest[index]), plain)
