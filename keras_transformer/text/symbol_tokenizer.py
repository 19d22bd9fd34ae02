"""SymbolTokenizer: one id for each symbol between spaces, for phones, tags, actions and words."""

import collections

import numpy as np
import tensorflow as tf

from keras_transformer import arguments
from keras_transformer.text.strings import REPLACEMENT, text_list, valid_text
from keras_transformer.text.tokenizer import Tokenizer

SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
NUM_FINGERPRINTS = 2**63 - 1


class SymbolTokenizer(Tokenizer):
    """Maps each symbol of a string, separated by spaces, to an id.

    "t uː l" has three symbols. Runs of white space read back as one space, and a symbol outside
    the vocabulary becomes `unk_id`, which reads back as U+FFFD. The ops are those of TensorFlow
    alone.

    Args:
        symbols: iterable of distinct str without white space; the first gets the id 4.

    Returns:
        A tokenizer with `vocab_size = 4 + number of symbols`.

    Raises:
        ValueError: when `symbols` is empty, repeats one, or holds an empty one or white space.

    Example:

    >>> tokenizer = SymbolTokenizer(["uː", "l", "t"])
    >>> tokenizer.tokenize(["t uː l", "x"])
    <tf.RaggedTensor [[6, 4, 5], [1]]>
    >>> tokenizer.detokenize([[6, 4, 5, 3]]).numpy()[0].decode()
    't uː l'
    """

    def __init__(self, symbols):
        symbols = list(symbols)
        whole = all(isinstance(item, str) and item.split() == [item] for item in symbols)
        if not symbols or not whole or len(set(symbols)) < len(symbols):
            raise ValueError(
                "`symbols` must be one or more distinct strings without white space. "
                f"Received: symbols={symbols!a:.120}"
            )
        super().__init__([*SPECIAL_PIECES, *symbols])
        self._symbols = [valid_text(symbol) for symbol in symbols]

    @classmethod
    def train(cls, texts, vocab_size=None):
        """Learns the symbols of `texts`, the most frequent first, then by code point.

        Args:
            texts: iterable of str.
            vocab_size: the largest vocabulary, special ids included; None keeps every symbol.

        Returns:
            A `SymbolTokenizer`; its `vocab_size` is smaller when there are fewer symbols.

        Raises:
            TypeError: when `texts` is not an iterable of str.
            ValueError: when `texts` hold no symbol, or `vocab_size` leaves no room for one.

        Example:

        >>> SymbolTokenizer.train(["b a b"]).pieces([4, 5])
        ['b', 'a']
        """
        if vocab_size is not None:
            smallest = len(SPECIAL_PIECES) + 1
            if arguments.positive_integer("vocab_size", vocab_size) < smallest:
                raise ValueError(
                    f"`vocab_size` must be at least {smallest}. Received: vocab_size={vocab_size}"
                )
        counts = collections.Counter()
        for text in text_list("texts", texts):
            counts.update(valid_text(text).split())
        if not counts:
            raise ValueError("`texts` must hold at least one symbol. Received: only empty texts")
        ordered = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        limit = None if vocab_size is None else vocab_size - len(SPECIAL_PIECES)
        return cls(ordered[:limit])

    def tokenize_graph(self, strings):
        """Looks up each symbol's 63-bit fingerprint by binary search: no table to be tracked."""
        with tf.init_scope():
            prints = fingerprints(tf.constant(self._symbols)).numpy()
        order = np.argsort(prints)
        sorted_prints = tf.constant(prints[order])
        sorted_ids = tf.constant((order + len(SPECIAL_PIECES)).astype("int32"))
        symbols = tf.strings.split(strings)
        values = fingerprints(symbols.flat_values)
        places = tf.minimum(tf.searchsorted(sorted_prints, values), len(prints) - 1)
        known = tf.gather(sorted_prints, places) == values
        return symbols.with_flat_values(tf.where(known, tf.gather(sorted_ids, places), self.unk_id))

    def detokenize_graph(self, ids):
        """Joins the symbols of each row by spaces."""
        surfaces = ["", REPLACEMENT, "", "", *self._symbols]
        table = tf.constant(np.array([text.encode() for text in surfaces], dtype=object))
        symbols = ids.with_flat_values(tf.gather(table, ids.flat_values))
        return tf.strings.reduce_join(symbols, axis=1, separator=" ")

    def _options_and_payload(self):
        return {}, " ".join(self._symbols).encode()

    @classmethod
    def from_payload(cls, options, payload):
        """Rebuilds a tokenizer from its symbols, in UTF-8."""
        return cls(payload.decode().split(" "), **options)


def fingerprints(strings):
    """A number below 2**63 for each string; two symbols share one with probability 1e-19."""
    return tf.strings.to_hash_bucket_fast(strings, NUM_FINGERPRINTS)
