"""BPE dropout: each pass over the texts splits them anew."""

import dataclasses

import numpy as np

from keras_transformer import arguments
from keras_transformer.text.token_store import TokenStore

TEXTS_PER_PART = 65_536  # lists of Python's integers take ten times the memory of an array


@dataclasses.dataclass(frozen=True)
class SubwordDropout:
    """The texts of one side, of which each pass has other pieces: a function of its number.

    Args:
        texts: list of str.
        tokenizer: one that has `tokenize_with_dropout`.
        rate: share of the merges left out.
        seed: what the pieces follow from, with the number of the pass and the side.
        side: 0 for sources, 1 for targets.
        plain: the `TokenStore` of the texts without dropout.
    """

    texts: list
    tokenizer: object
    rate: float
    seed: int
    side: int
    plain: TokenStore

    def parts(self, number):
        """Yields the first text's index and the ids of texts of pass `number`, part by part."""
        for start in range(0, len(self.texts), TEXTS_PER_PART):
            words = np.random.SeedSequence([self.seed, number, self.side, start]).generate_state(1)
            texts = self.texts[start : start + TEXTS_PER_PART]
            yield start, self.tokenizer.tokenize_with_dropout(texts, self.rate, int(words[0]))

    def expected_lengths(self):
        """Room for most passes: the tokens of each text in the first one, or without dropout."""
        sampled = [len(row) for _, rows in self.parts(0) for row in rows]
        return np.maximum(np.array(sampled, "int64"), self.plain.lengths)

    def store(self, number, longest):
        """The `TokenStore` of pass `number`; a text longer than its `longest` is not split anew."""
        flats, lengths = [np.zeros(0, "int32")], [0]
        plain, offsets = self.plain.flat, self.plain.offsets
        for start, rows in self.parts(number):
            rows = [
                row if len(row) <= longest[index] else plain[offsets[index] : offsets[index + 1]]
                for index, row in enumerate(rows, start)
            ]
            flats.append(np.concatenate(rows).astype("int32"))
            lengths += map(len, rows)
        return TokenStore(np.concatenate(flats), np.cumsum(lengths))


def both_sides(texts, tokenizers, plain, rate, seed):
    """A `SubwordDropout` for sources and one for targets; None without dropout."""
    rate = arguments.rate("subword_dropout", rate)
    if not rate:
        return None
    for tokenizer in tokenizers:
        if not hasattr(tokenizer, "tokenize_with_dropout"):
            raise ValueError(
                "`subword_dropout` needs tokenizers with `tokenize_with_dropout`, as "
                f"`SentencePieceTokenizer` has it. Received: {type(tokenizer).__name__}"
            )
    return [
        SubwordDropout(*parts, rate, seed, side, store)
        for side, (parts, store) in enumerate(
            zip(zip(texts, tokenizers, strict=True), plain, strict=True)
        )
    ]
