"""Divides texts into segments that the model reads at once: sentences, or what fits of a text."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.serving.sentences import find_sentences
from keras_transformer.text.strings import valid_utf8

# How good a place for a break is: within a word, between two words, between two sentences.
WORD, SENTENCE = 1, 2


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


class Origins(NamedTuple):
    """Where the tokens of segments were read.

    Attributes:
        strings: string (segments,), the sentence or the text that the segment is of.
        begins: int32 (segments,), where that begins in the text, in bytes of valid UTF-8.
        starts, ends: ragged int32 (segments, length), the bytes of each token in `strings`.
    """

    strings: Any
    begins: Any
    starts: Any
    ends: Any


class Parts(NamedTuple):
    """Sentences and whole texts, in order: texts int32, begins int32 and strings (parts,)."""

    texts: Any
    begins: Any
    strings: Any


TEXTS = (tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.bool))


class SegmentSplitter(tf.Module):
    """Divides texts into segments of at most `longest` tokens.

    A text is divided into its sentences where `by_sentence` says so, and is else one part. A part
    that fits is one segment. A longer one is divided again and again behind the last sentence
    that leaves a part that fits; where there is none behind the last word, and where there is no
    such, anywhere.

    Args:
        tokenizer: of the texts.
        longest: the most tokens of a segment.
        max_segments: the most segments of a part, and how many times `longest` a text may have
            tokens. A text that needs more is refused.
    """

    def __init__(self, tokenizer, longest, max_segments):
        super().__init__(name="segment_splitter")
        self.tokenizer = tokenizer
        self.longest = longest
        self.max_segments = max_segments
        surfaces = [*tokenizer.surfaces(), ""]  # for what is no token
        self.is_space = np.array([text != "" and text.isspace() for text in surfaces])
        self.starts_word = np.array([text[:1].isspace() for text in surfaces])

    @tf.function(input_signature=TEXTS, autograph=False)
    def __call__(self, text, by_sentence):
        """Returns the `Segments` of texts (texts,), divided where `by_sentence` (texts,) says."""
        parts = parts_of(valid_utf8(text), by_sentence)
        segments, _, _ = self._segments(parts, self.tokenizer.tokenize(parts.strings), text)
        return segments

    @tf.function(input_signature=TEXTS, autograph=False)
    def with_origins(self, text, by_sentence):
        """Returns the `Segments` and their `Origins`."""
        parts = parts_of(valid_utf8(text), by_sentence)
        tokens, *offsets = self.tokenizer.tokenize_with_offsets(parts.strings)
        segments, rows, numbers = self._segments(parts, tokens, text)
        origins = (tf.gather(column, numbers) for column in (parts.strings, parts.begins))
        return segments, Origins(*origins, *(rows(column.flat_values) for column in offsets))

    def _segments(self, parts, tokens, text):
        """The `Segments` of parts, how to make such rows of flat values, and each one's part."""
        count = tf.size(text)
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        in_text = tf.math.unsorted_segment_sum(lengths, parts.texts, count)
        refused = in_text > self.longest * self.max_segments
        is_long = (lengths > self.longest) & ~tf.gather(refused, parts.texts)
        cuts = self._cuts(tf.boolean_mask(parts.strings, is_long))
        unfinished = tf.cast(cuts[:, -1] < tf.boolean_mask(lengths, is_long), tf.int32)
        long_texts = tf.boolean_mask(parts.texts, is_long)
        refused |= tf.math.unsorted_segment_sum(unfinished, long_texts, count) > 0
        # Where a segment ends in the tokens of all parts, one behind the other.
        part_starts = tf.cast(tokens.row_splits, tf.int32)
        long_starts = tf.boolean_mask(part_starts[:-1], is_long)
        ends = tf.concat([part_starts, tf.reshape(long_starts[:, None] + cuts, [-1])], axis=0)
        marks = tf.scatter_nd(ends[:, None], tf.ones_like(ends), part_starts[-1:] + 1)
        splits = tf.cast(tf.where(marks > 0)[:, 0], tf.int32)
        # -> (segments,), the part of each; parts without tokens have none
        numbers = tf.searchsorted(part_starts[1:], splits[:-1], side="right")
        kept = tf.where(~tf.gather(refused, tf.gather(parts.texts, numbers)))[:, 0]
        behind_all = tf.size(numbers, tf.int64)
        numbers = tf.gather(numbers, kept)
        texts = tf.gather(parts.texts, numbers)
        # A text of which nothing is left has the empty segment, which is put behind the others.
        some = tf.math.unsorted_segment_sum(tf.ones_like(texts), texts, count)
        empty = tf.cast(tf.where(some == 0)[:, 0], tf.int32)
        kept = tf.concat([kept, tf.fill([tf.size(empty)], behind_all)], axis=0)
        numbers = tf.concat([numbers, tf.searchsorted(parts.texts, empty)], axis=0)
        texts = tf.concat([texts, empty], axis=0)
        order = tf.argsort(texts, stable=True)
        kept, numbers, texts = (tf.gather(column, order) for column in (kept, numbers, texts))
        splits = tf.cast(tf.concat([splits, splits[-1:]], axis=0), tf.int64)

        def rows(values):
            return tf.gather(tf.RaggedTensor.from_row_splits(values, splits), kept)

        first = tf.concat([[True], texts[1:] != texts[:-1]], axis=0)[: tf.size(texts)]
        segments = Segments(rows(tokens.flat_values), texts, first, refused)
        return segments, rows, numbers

    def _cuts(self, strings):
        """Where each segment of parts that do not fit ends, (parts, max_segments)."""
        tokens, starts, ends = self.tokenizer.tokenize_with_offsets(strings)
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        at_sentence = tokens.with_flat_values(behind_sentence(strings, starts, ends))
        quality = self._quality(tokens, at_sentence.to_tensor(False))
        quality = tf.pad(quality, [[0, 0], [0, self.longest]])
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

    def _quality(self, tokens, at_sentence):
        """How good a break behind each token is, int32 (parts, length)."""
        ids = tokens.to_tensor(len(self.is_space) - 1)
        is_space, starts_word = (
            tf.gather(table, ids) for table in (self.is_space, self.starts_word)
        )
        # A space that is a token of its own belongs to what comes before it.
        at_word = is_space | (earlier(starts_word) & ~earlier(is_space))
        return tf.where(at_sentence, SENTENCE, tf.where(at_word, WORD, 0))


def parts_of(text, by_sentence):
    """The `Parts` of valid UTF-8: sentences where that is asked for and there are several."""
    count = tf.size(text)
    asked = tf.cast(tf.where(by_sentence)[:, 0], tf.int32)
    found = find_sentences(tf.gather(text, asked))
    texts = tf.gather(asked, found.texts)
    several = tf.math.unsorted_segment_sum(tf.ones_like(texts), texts, count) > 1
    is_part = tf.gather(several, texts)
    whole = tf.cast(tf.where(~several)[:, 0], tf.int32)
    parts = Parts(
        *(
            tf.concat([one, tf.boolean_mask(of_sentences, is_part)], axis=0)
            for one, of_sentences in (
                (whole, texts),
                (tf.zeros_like(whole), found.starts),
                (tf.gather(text, whole), found.strings),
            )
        )
    )
    order = tf.argsort(parts.texts, stable=True)
    return Parts(*(tf.gather(column, order) for column in parts))


def behind_sentence(strings, starts, ends):
    """Whether a sentence of `strings` ends behind each token, bool (tokens,).

    `starts` and `ends` are the bytes of the tokens, ragged (strings, length). A token that has
    something of two sentences is none to end behind.
    """
    sentences = find_sentences(strings)
    base = tf.cumsum(tf.strings.length(strings), exclusive=True)
    rows = tf.cast(starts.value_rowids(), tf.int32)
    starts, ends = (part.flat_values + tf.gather(base, rows) for part in (starts, ends))
    # From here to there is white space between two sentences of one string.
    inner = sentences.texts[1:] == sentences.texts[:-1]
    base = tf.gather(base, sentences.texts)
    here = tf.boolean_mask((sentences.ends + base)[:-1], inner)
    there = tf.boolean_mask((sentences.starts + base)[1:], inner)
    # How many sentences have begun before a token ends, and have ended where it starts.
    begun = tf.searchsorted(there, ends)
    ended = tf.searchsorted(here, starts, side="right")
    is_behind = (begun[1:] > begun[:-1]) & (ended[1:] >= begun[1:])
    return tf.concat([is_behind, [False]], axis=0)[: tf.size(begun)]


def earlier(rows):
    """Booleans (texts, length) moved one place to the beginning."""
    return tf.pad(rows, [[0, 0], [0, 1]])[:, 1:]
