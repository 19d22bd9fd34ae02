"""Byte offsets of what was read and of what was written for it."""

import tensorflow as tf


def aligned_positions(alignments, is_text):
    """The source position that each output token attended to most, int32 (rows, length).

    `alignments` (rows, length, source); `is_text` (rows, source) leaves out the end of the
    sentence and padding, which stand for no text.
    """
    weights = tf.where(is_text[:, None, :], alignments, -1.0)
    return tf.argmax(weights, axis=-1, output_type=tf.int32)


def piece_offsets(tokenizer, ids):
    """Where each of `ids` stands in the text that they all make: starts and ends, (rows, length).

    A piece ends where the text of the ids up to it ends, or, where the tokenizer reverses, begins
    as far from the end of the text. Padding stands at the end. Bytes, int32.
    """
    rows, length = tf.shape(ids)[0], tf.shape(ids)[1]
    up_to_here = tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0)
    beginnings = tf.where(up_to_here[None], ids[:, None, :], tokenizer.pad_id)
    texts = tokenizer.detokenize(tf.reshape(beginnings, [rows * length, length]))
    ends = tf.reshape(tf.strings.length(texts), [rows, length])
    # A character that is spelled in several pieces reads as something longer until the last.
    later = tf.linalg.band_part(tf.ones([length, length], tf.bool), 0, -1)
    ends = tf.reduce_min(tf.where(later[None], ends[:, None, :], tf.int32.max), axis=2)
    starts = tf.pad(ends, [[0, 0], [1, 0]])[:, :-1]
    if getattr(tokenizer, "reverse", False):
        whole = ends[:, -1:]
        return whole - ends, whole - starts
    return starts, ends


def without_edges(texts, starts, ends):
    """`starts` and `ends` (rows, length) in `texts` (rows,), without white space at the edges."""
    texts = tf.broadcast_to(texts[:, None], tf.shape(starts))
    pieces = tf.strings.substr(texts, starts, ends - starts)
    right = tf.strings.length(tf.strings.regex_replace(pieces, r"[\s\v]+$", ""))
    left = tf.strings.length(tf.strings.regex_replace(pieces, r"^[\s\v]+", ""))
    return tf.minimum(ends - left, starts + right), starts + right
