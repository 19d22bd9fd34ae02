"""Where the pieces of a text stand in it, in bytes."""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.text.tokenizer import Tokenizer


class Spans(NamedTuple):
    """Where pieces stand in a text.

    Attributes:
        starts: int32 (rows, length), the first byte of each piece.
        ends: int32 (rows, length), the byte behind its last.
    """

    starts: tf.Tensor
    ends: tf.Tensor

    def without_edges(self, texts: tf.Tensor) -> "Spans":
        """Returns the spans in `texts` (rows,) without white space at the edges of a piece."""
        texts = tf.broadcast_to(texts[:, None], tf.shape(self.starts))
        pieces = tf.strings.substr(texts, self.starts, self.ends - self.starts)
        right = tf.strings.length(tf.strings.regex_replace(pieces, r"[\s\v]+$", ""))
        left = tf.strings.length(tf.strings.regex_replace(pieces, r"^[\s\v]+", ""))
        starts, ends = self
        return Spans(tf.minimum(ends - left, starts + right), starts + right)


def find_spans(tokenizer: Tokenizer, ids: tf.Tensor) -> Spans:
    """Returns the `Spans` of ids (rows, length) in the text that each row makes.

    A piece ends where the text of the ids up to it ends. Where the tokenizer reverses, a piece
    begins as far from the end of the text. Padding stands at the end.
    """
    rows, length = tf.shape(ids)[0], tf.shape(ids)[1]
    up_to_here = tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0)
    # -> (rows, length, length), the ids up to each
    beginnings = tf.where(up_to_here[None], ids[:, None, :], tokenizer.pad_id)
    # -> (rows * length, length)
    texts = tokenizer.detokenize(tf.reshape(beginnings, [rows * length, length]))
    ends = tf.reshape(tf.strings.length(texts), [rows, length])  # -> (rows, length)
    # A character that is spelled in several pieces reads as something longer until the last.
    later = tf.linalg.band_part(tf.ones([length, length], tf.bool), 0, -1)
    ends = tf.reduce_min(tf.where(later[None], ends[:, None, :], tf.int32.max), axis=2)
    starts = tf.pad(ends, [[0, 0], [1, 0]])[:, :-1]
    if tokenizer.reverse:
        whole = ends[:, -1:]
        return Spans(whole - ends, whole - starts)
    return Spans(starts, ends)
