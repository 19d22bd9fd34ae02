"""Divides long texts, as tokens, at sentence ends into segments that the model can read."""

import re
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# How good a place for a break is: within a word, between two words, between two sentences.
WORD, SENTENCE = 1, 2
CLOSING = "\"'»”’)]}"
ENDS_BEFORE_SPACE = re.compile(rf"[.!?…][{re.escape(CLOSING)}]*")
ENDS_ANYWHERE = re.compile(rf"\n|[。！？｡][{re.escape(CLOSING)}」』）]*")


class Segments(NamedTuple):
    """The parts of a batch of texts, in order.

    Attributes:
        tokens: ragged ids (segments, length); each text has at least one, empty for a text
            without tokens or one that is refused.
        texts: int32 (segments,), the text that each belongs to.
        first: bool (segments,), whether it begins its text.
        refused: bool (texts,), whether the text is longer than all its segments may be.
    """

    tokens: Any
    texts: Any
    first: Any
    refused: Any


class SegmentSplitter(tf.Module):
    """Divides rows of tokens into segments of at most `longest`, at most `max_segments` of them.

    A row that fits is one segment. A longer one is divided again and again behind the last
    sentence end that leaves a part that fits; where there is none behind the last word, and where
    there is no such, anywhere. Tokens say themselves where a sentence ends: by one of `.!?…`,
    closing quotes and brackets after it included, before white space; by a mark such as `。`, or
    a line break, anywhere.

    Args:
        surfaces: list of str, the text of each id as `Tokenizer.surfaces` has it.
        longest: the most tokens of a segment.
        max_segments: the most segments of a text. A text that needs more is refused.
    """

    def __init__(self, surfaces, longest, max_segments):
        super().__init__(name="segment_splitter")
        self.longest = longest
        self.max_segments = max_segments
        surfaces = [*surfaces, ""]  # for what is no token
        self.is_space = np.array([text != "" and text.isspace() for text in surfaces])
        self.starts_word = np.array([text[:1].isspace() for text in surfaces])
        self.closes = np.array([text != "" and not text.strip(CLOSING) for text in surfaces])
        self.ends = np.array([ends_with(ENDS_BEFORE_SPACE, text) for text in surfaces])
        self.ends_anywhere = np.array([ends_with(ENDS_ANYWHERE, text) for text in surfaces])

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)], autograph=False)
    def __call__(self, tokens):
        """Returns the `Segments` of ragged tokens (texts, length)."""
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        possible = lengths <= self.longest * self.max_segments
        tokens = emptied(tokens, ~possible)
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        # -> (texts, max_segments), where each segment ends: most texts fit as they are
        cuts = tf.broadcast_to(lengths[:, None], [tf.size(lengths), self.max_segments])
        is_long = lengths > self.longest
        long_cuts = self._cuts(tf.ragged.boolean_mask(tokens, is_long))
        cuts = tf.tensor_scatter_nd_update(cuts, tf.where(is_long), long_cuts)
        sizes = tf.concat([cuts[:, :1], cuts[:, 1:] - cuts[:, :-1]], axis=1)
        refused = ~possible | (cuts[:, -1] < lengths)
        sizes = tf.where(refused[:, None], 0, sizes)
        tokens = emptied(tokens, refused)
        first = tf.broadcast_to(tf.range(self.max_segments) == 0, tf.shape(sizes))
        places = tf.where((sizes > 0) | first)
        return Segments(
            tf.RaggedTensor.from_row_lengths(tokens.flat_values, tf.gather_nd(sizes, places)),
            tf.cast(places[:, 0], tf.int32),
            places[:, 1] == 0,
            refused,
        )

    def _cuts(self, tokens):
        """Where each segment of texts that do not fit ends, (texts, max_segments)."""
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        quality = tf.pad(self._quality(tokens), [[0, 0], [0, self.longest]])
        window = tf.range(self.longest)
        number = tf.range(self.max_segments)

        def unfinished(index, start, cuts):
            return (index < self.max_segments) & tf.reduce_any(start < lengths)

        def cut(index, start, cuts):
            here = tf.gather(quality, start[:, None] + window, batch_dims=1)
            best = tf.argmax(here * self.longest + window, axis=1, output_type=tf.int32)
            end = tf.where(lengths - start <= self.longest, lengths, start + best + 1)
            cuts = tf.where((number >= index)[None], end[:, None], cuts)
            return index + 1, end, cuts

        start = tf.zeros_like(lengths)
        cuts = tf.zeros([tf.size(lengths), self.max_segments], tf.int32)
        _, _, cuts = tf.while_loop(unfinished, cut, (tf.constant(0), start, cuts))
        return cuts

    def _quality(self, tokens):
        """How good a break behind each token is, int32 (texts, length)."""
        ids = tokens.to_tensor(len(self.ends) - 1)
        is_space, starts_word, closes, ends, ends_anywhere = (
            tf.gather(table, ids)
            for table in (
                self.is_space,
                self.starts_word,
                self.closes,
                self.ends,
                self.ends_anywhere,
            )
        )
        ends |= closes & shifted(ends, 1)
        # A space that is a token of its own belongs to what comes before it.
        ends |= is_space & shifted(ends, 1)
        at_word = is_space | (shifted(starts_word, -1) & ~shifted(is_space, -1))
        at_sentence = ends_anywhere | (ends & at_word)
        return tf.where(at_sentence, SENTENCE, tf.where(at_word, WORD, 0))


def emptied(rows, which):
    """Ragged `rows`, those `which` says without anything in them."""
    kept = tf.ragged.boolean_mask(rows, ~which)
    return tf.RaggedTensor.from_row_lengths(
        kept.flat_values, tf.where(which, tf.zeros_like(rows.row_lengths()), rows.row_lengths())
    )


def ends_with(pattern, text):
    """Whether `text` ends in a match of `pattern`."""
    return any(found.end() == len(text) for found in pattern.finditer(text))


def shifted(rows, by):
    """Booleans (texts, length) moved one place to the end (1) or to the beginning (-1)."""
    if by == 1:
        return tf.pad(rows, [[0, 0], [1, 0]])[:, :-1]
    return tf.pad(rows, [[0, 0], [0, 1]])[:, 1:]
