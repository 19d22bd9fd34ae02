"""SymbolTokenizer: one id for each symbol between spaces, for phones, tags, actions and words."""

from collections.abc import Iterable
from typing import Any, Self

import tensorflow as tf

from keras_transformer import arguments
from keras_transformer.symbols import is_symbol, split_symbols
from keras_transformer.text import vocabulary
from keras_transformer.text.folding import Folding
from keras_transformer.text.strings import valid_text
from keras_transformer.text.tokenizer import Tokenizer, TokensWithOffsets


class SymbolTokenizer(Tokenizer):
    """Maps each symbol of a string, separated by spaces, to an id.

    "t uː l" has three symbols. Runs of white space, that of ASCII, read back as one space, and a
    symbol outside the vocabulary becomes `unk_id`, which reads back as U+FFFD. The ops are those
    of TensorFlow alone, unless `normalization` is another than "identity".

    Args:
        symbols: iterable of distinct str without white space; the first gets the id 4.
        reverse: whether ids are in the order from the last symbol to the first. For targets: the
            model writes the end of a text first. This helps where an ending depends on less than
            what comes before it. Texts are as ever; a prefix that a search begins with is what
            its text ends in. See Liu et al. 2016, "Agreement on Target-bidirectional Neural
            Machine Translation".
        normalization: the Unicode normal form that a text gets first, "nfc" or "nfkc", or
            "identity" for none.
        lowercase: whether a text is lower-cased first, as `str.lower` does.

    Returns:
        A tokenizer with `vocab_size = 4 + number of symbols`.

    Raises:
        ValueError: when `symbols` is empty, repeats one, or holds an empty one or white space, or
            an option is bad.

    Example:

    >>> tokenizer = SymbolTokenizer(["uː", "l", "t"])
    >>> tokenizer.tokenize(["t uː l", "x"])
    <tf.RaggedTensor [[6, 4, 5], [1]]>
    >>> tokenizer.detokenize([[6, 4, 5, 3]]).numpy()[0].decode()
    't uː l'
    >>> SymbolTokenizer(["uː", "l", "t"], reverse=True).tokenize(["t uː l"])
    <tf.RaggedTensor [[5, 4, 6]]>
    """

    def __init__(
        self,
        symbols: Iterable[str],
        reverse: bool = False,
        normalization: str = "identity",
        lowercase: bool = False,
    ) -> None:
        self.reverse = arguments.boolean("reverse", reverse)
        symbols = list(symbols)
        whole = all(isinstance(item, str) and is_symbol(valid_text(item)) for item in symbols)
        if not symbols or not whole or len(set(symbols)) < len(symbols):
            raise ValueError(
                "`symbols` must be one or more distinct strings without white space. "
                f"Received: symbols={symbols!a:.120}"
            )
        folding = Folding(normalization, lowercase)
        super().__init__([*vocabulary.SPECIAL_PIECES, *symbols], folding)
        self._symbols = [valid_text(symbol) for symbol in symbols]

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int | None = None,
        reverse: bool = False,
        normalization: str = "identity",
        lowercase: bool = False,
    ) -> Self:
        """Learns the symbols of `texts`, the most frequent first, then by code point.

        Args:
            texts: iterable of str.
            vocab_size: the largest vocabulary, special ids included; None keeps every symbol.
            reverse: whether ids are in the order from the last symbol to the first.
            normalization: the Unicode normal form that every text gets first, "nfc" or "nfkc", or
                "identity" for none.
            lowercase: whether every text is lower-cased first, as `str.lower` does.

        Returns:
            A `SymbolTokenizer`; its `vocab_size` is smaller when there are fewer symbols.

        Raises:
            TypeError: when `texts` is not an iterable of str.
            ValueError: when `texts` hold no symbol, or `vocab_size` leaves no room for one, or an
                option is bad.

        Example:

        >>> SymbolTokenizer.train(["b a b"]).pieces([4, 5])
        ['b', 'a']
        """
        folding = Folding(normalization, lowercase)
        symbols = vocabulary.most_frequent(texts, split_symbols, vocab_size, "symbol", folding)
        return cls(symbols, reverse, normalization, lowercase)

    @property
    def symbols(self) -> list[str]:
        """The symbols, a list of str; the first has the id 4."""
        return list(self._symbols)

    def tokenize_graph(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Looks each symbol up by its 63-bit fingerprint."""
        with tf.init_scope():
            prints = vocabulary.fingerprints(tf.constant(self._symbols)).numpy()
        symbols = tf.strings.split(strings)
        values = symbols.with_flat_values(vocabulary.fingerprints(symbols.flat_values))
        return self._ordered(vocabulary.look_up_ids(values, prints, self.unk_id))

    def tokenize_with_offsets_graph(self, strings: tf.Tensor) -> TokensWithOffsets:
        """A symbol is a run of bytes that are not white space."""
        texts = tf.strings.bytes_split(strings)
        inside = ~tf.strings.regex_full_match(texts.flat_values, r"[\s\v]")  # RE2's \s has no \v
        places = tf.ragged.range(texts.row_lengths())
        # Whether the byte on either side is in the same string and in a symbol.
        follows = tf.pad(inside, [[1, 0]])[:-1] & (places.flat_values > 0)
        goes_on = tf.pad(inside & (places.flat_values > 0), [[0, 1]])[1:]
        starts = tf.ragged.boolean_mask(places, places.with_flat_values(inside & ~follows))
        ends = tf.ragged.boolean_mask(places, places.with_flat_values(inside & ~goes_on))
        starts, ends = self._ordered(starts), self._ordered(ends + 1)
        return TokensWithOffsets(self.tokenize_graph(strings), starts, ends)

    def surfaces(self) -> list[str]:
        """The symbols, each a word."""
        symbols = [f" {symbol}" for symbol in self._symbols]
        return [*[""] * len(vocabulary.SPECIAL_PIECES), *symbols]

    def detokenize_graph(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Joins the symbols of each row by spaces."""
        return vocabulary.joined(self._ordered(ids), self._symbols, separator=" ")

    def _ordered(self, rows: tf.RaggedTensor) -> tf.RaggedTensor:
        """Ragged rows in the order of the ids from that of the text, or back."""
        return tf.reverse(rows, [1]) if self.reverse else rows

    def _options_and_payload(self) -> tuple[dict[str, Any], bytes]:
        # A file of a tokenizer that does not reverse is the file that it was without the option.
        options = {"reverse": True} if self.reverse else {}
        return options | self._folding.options(), " ".join(self._symbols).encode()

    @classmethod
    def from_payload(cls, options: dict[str, Any], payload: bytes) -> Self:
        """Rebuilds a tokenizer from its symbols, in UTF-8."""
        return cls(payload.decode().split(" "), **options)
