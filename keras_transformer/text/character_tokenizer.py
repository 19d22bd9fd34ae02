"""CharacterTokenizer: one id for each Unicode character, for symbol tasks and small alphabets."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformer.text import vocabulary
from keras_transformer.text.folding import Folding
from keras_transformer.text.strings import valid_text
from keras_transformer.text.tokenizer import Tokenizer, TokensWithOffsets

LONGER_POINTS = (0x80, 0x800, 0x10000)  # from these on a code point has one byte more in UTF-8


class CharacterTokenizer(Tokenizer):
    """Maps each Unicode code point to an id; text of known characters round-trips exactly.

    A character outside the vocabulary becomes `unk_id`, which reads back as U+FFFD. The ops are
    those of TensorFlow alone, unless `normalization` is another than "identity".

    Args:
        characters: str or iterable of distinct characters; the first gets the id 4.
        normalization: the Unicode normal form that a text gets first, "nfc" or "nfkc", or
            "identity" for none.
        lowercase: whether a text is lower-cased first, as `str.lower` does.

    Returns:
        A tokenizer with `vocab_size = 4 + number of characters`.

    Raises:
        ValueError: when `characters` is empty, repeats one, or holds more than one in an item, or
            an option is bad.

    Example:

    >>> tokenizer = CharacterTokenizer("ab ")
    >>> tokenizer.tokenize(["a bc", ""])
    <tf.RaggedTensor [[4, 6, 5, 1], []]>
    >>> tokenizer.detokenize([[2, 4, 6, 5, 3, 4]]).numpy().tolist()
    [b'a b']
    """

    def __init__(
        self, characters: Iterable[str], normalization: str = "identity", lowercase: bool = False
    ) -> None:
        characters = list(characters)
        single = all(isinstance(item, str) and len(item) == 1 for item in characters)
        if not characters or not single or len(set(characters)) < len(characters):
            raise ValueError(
                "`characters` must be one or more distinct single characters. "
                f"Received: characters={characters!r:.120}"
            )
        if any(valid_text(character) != character for character in characters):
            raise ValueError(
                "`characters` must be Unicode characters, which surrogates are not. "
                f"Received: characters={characters!a:.120}"
            )
        folding = Folding(normalization, lowercase)
        super().__init__([*vocabulary.SPECIAL_PIECES, *characters], folding)
        self._characters = characters

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int | None = None,
        normalization: str = "identity",
        lowercase: bool = False,
    ) -> Self:
        """Learns the characters of `texts`, the most frequent first, then by code point.

        Args:
            texts: iterable of str.
            vocab_size: the largest vocabulary, special ids included; None keeps every character.
            normalization: the Unicode normal form that every text gets first, "nfc" or "nfkc", or
                "identity" for none.
            lowercase: whether every text is lower-cased first, as `str.lower` does.

        Returns:
            A `CharacterTokenizer`; its `vocab_size` is smaller when there are fewer characters.

        Raises:
            TypeError: when `texts` is not an iterable of str.
            ValueError: when `texts` hold no character, or `vocab_size` leaves no room for one, or
                an option is bad.

        Example:

        >>> CharacterTokenizer.train(["banana"], vocab_size=6).pieces([4, 5])
        ['a', 'n']
        """
        folding = Folding(normalization, lowercase)
        characters = vocabulary.most_frequent(texts, list, vocab_size, "character", folding)
        return cls(characters, normalization, lowercase)

    def tokenize_graph(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Looks each code point up by binary search in the sorted ones."""
        code_points = np.array([ord(character) for character in self._characters], dtype="int32")
        points = tf.strings.unicode_decode(strings, "UTF-8")
        return vocabulary.look_up_ids(points, code_points, self.unk_id)

    def tokenize_with_offsets_graph(self, strings: tf.Tensor) -> TokensWithOffsets:
        """A piece is a code point, of one to four bytes."""
        points, starts = tf.strings.unicode_decode_with_offsets(strings, "UTF-8")
        starts = tf.cast(starts, tf.int32)
        sizes = 1 + sum(tf.cast(points.flat_values >= least, tf.int32) for least in LONGER_POINTS)
        ends = starts.with_flat_values(starts.flat_values + sizes)
        return TokensWithOffsets(self.tokenize_graph(strings), starts, ends)

    def surfaces(self) -> list[str]:
        """The characters; a space begins a word."""
        return [*[""] * len(vocabulary.SPECIAL_PIECES), *self._characters]

    def detokenize_graph(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Joins the characters of each row."""
        return vocabulary.joined(ids, self._characters)

    def _options_and_payload(self) -> tuple[dict[str, Any], bytes]:
        return self._folding.options(), "".join(self._characters).encode()

    @classmethod
    def from_payload(cls, options: dict[str, Any], payload: bytes) -> Self:
        """Rebuilds a tokenizer from its characters, in UTF-8."""
        return cls(payload.decode(), **options)
