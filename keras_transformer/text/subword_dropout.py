"""Texts of which each pass has other pieces."""

import array
import dataclasses
import functools

import numpy as np

from keras_transformer.text.bpe_dropout import BpeDropout
from keras_transformer.text.token_store import TokenStore


@dataclasses.dataclass(frozen=True)
class SubwordDropout:
    """As a `TokenStore`, but each pass has other pieces: a function of the seed and its number.

    Args:
        plain: the `TokenStore` of the texts without dropout.
        dropout: the `BpeDropout` of their tokenizer.
        rate: share of the merges left out.
        seed: tuple of integers.
    """

    plain: TokenStore
    dropout: BpeDropout
    rate: float
    seed: tuple

    @property
    def lengths(self):
        """The number of tokens of each text without dropout."""
        return self.plain.lengths

    @functools.cached_property
    def expected_lengths(self):
        """Room for most passes: the tokens of each text in the first one, or without dropout."""
        sampled = np.fromiter(map(len, self._rows(0)), "int64", len(self.lengths))
        return np.maximum(sampled, self.lengths)

    def of_pass(self, number, longest):
        """The `TokenStore` of pass `number`; a text longer than its `longest` is not split anew."""
        flat, offsets = array.array("i"), np.zeros(len(longest) + 1, "int64")
        for index, ids in enumerate(self._rows(number)):
            flat.extend(ids if len(ids) <= longest[index] else self.plain[index])
            offsets[index + 1] = len(flat)
        return TokenStore(np.array(flat, "int32"), offsets)

    def _rows(self, number):
        seed = int(np.random.SeedSequence([*self.seed, number]).generate_state(1)[0])
        plain = map(self.plain.__getitem__, range(len(self.lengths)))
        return self.dropout.split(plain, self.rate, seed)
