"""BPE dropout: each pass over the texts splits them anew."""

import dataclasses
import functools

import numpy as np

from keras_transformer.text.token_store import TokenStore

TEXTS_PER_PART = 65_536  # lists of Python's integers take ten times the memory of an array


@dataclasses.dataclass(frozen=True)
class SubwordDropout:
    """As a `TokenStore`, but each pass has other pieces: a function of the seed and its number.

    Args:
        plain: the `TokenStore` of the texts without dropout.
        texts: list of str.
        tokenizer: one that has `tokenize_with_dropout`.
        rate: share of the merges left out.
        seed: tuple of integers.
    """

    plain: TokenStore
    texts: list
    tokenizer: object
    rate: float
    seed: tuple

    def __post_init__(self):
        if not hasattr(self.tokenizer, "tokenize_with_dropout"):
            raise ValueError(
                "`subword_dropout` needs tokenizers with `tokenize_with_dropout`, as "
                f"`SentencePieceTokenizer` has it. Received: {type(self.tokenizer).__name__}"
            )

    @property
    def lengths(self):
        """The number of tokens of each text without dropout."""
        return self.plain.lengths

    @functools.cached_property
    def expected_lengths(self):
        """Room for most passes: the tokens of each text in the first one, or without dropout."""
        sampled = [len(row) for _, rows in self._parts(0) for row in rows]
        return np.maximum(np.array(sampled, "int64"), self.lengths)

    def of_pass(self, number, longest):
        """The `TokenStore` of pass `number`; a text longer than its `longest` is not split anew."""
        flats, lengths = [np.zeros(0, "int32")], [0]
        plain, offsets = self.plain.flat, self.plain.offsets
        for start, rows in self._parts(number):
            rows = [
                row if len(row) <= longest[index] else plain[offsets[index] : offsets[index + 1]]
                for index, row in enumerate(rows, start)
            ]
            flats.append(np.concatenate(rows).astype("int32"))
            lengths += map(len, rows)
        return TokenStore(np.concatenate(flats), np.cumsum(lengths))

    def _parts(self, number):
        """Yields the first text's index and the ids of texts of pass `number`, part by part."""
        for start in range(0, len(self.texts), TEXTS_PER_PART):
            words = np.random.SeedSequence([*self.seed, number, start]).generate_state(1)
            texts = self.texts[start : start + TEXTS_PER_PART]
            yield start, self.tokenizer.tokenize_with_dropout(texts, self.rate, int(words[0]))
