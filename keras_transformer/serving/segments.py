"""Divides texts into segments, which the model reads at once, and joins their translations."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.serving.sentences import find_sentences
from keras_transformer.text.tokenizer import Tokenizer

# How good a place for a break is: within a word (0), between two words, between two sentences.
WORD, SENTENCE = 1, 2


class Segments(NamedTuple):
    """The segments of a batch of texts, in order.

    Attributes:
        tokens: ragged ids (segments, length). A text has at least one segment. A text without
            tokens, or one that is refused, has an empty one.
        texts: int32 (segments,), the text that each belongs to.
        first: bool (segments,), whether it begins its text.
        refused: bool (texts,), whether the text is longer than all its segments may be.
    """

    tokens: tf.RaggedTensor
    texts: tf.Tensor
    first: tf.Tensor
    refused: tf.Tensor

    def join(self, strings: tf.Tensor, separator: str) -> tf.Tensor:
        """Returns the strings of texts (texts, ...) from those of segments, (segments, ...)."""
        parts = tf.strings.join([self.separators(strings, separator), strings])
        return tf.strings.unsorted_segment_join(parts, self.texts, tf.size(self.refused))

    def first_bytes(self, strings: tf.Tensor, separator: str) -> tf.Tensor:
        """Returns where the string of each segment begins in its text's, int32 (segments,)."""
        separators = tf.strings.length(self.separators(strings, separator))
        ends = tf.cumsum(separators + tf.strings.length(strings), exclusive=True)
        first = tf.boolean_mask(ends, self.first)
        return ends - tf.gather(first, self.texts) + separators

    def separators(self, strings: tf.Tensor, separator: str) -> tf.Tensor:
        """Returns what comes before the string of each segment, (segments, ...).

        Nothing comes before the first of a text that is not empty, and nothing before an empty one.
        """
        some = strings != ""
        before = tf.cumsum(tf.cast(some, tf.int32), exclusive=True)
        first = tf.boolean_mask(before, self.first)  # one for each text, in order
        follows = before > tf.gather(first, self.texts)
        return tf.where(follows & some, separator, "")


class LocatedSegments(NamedTuple):
    """Segments, and where their tokens were read.

    Attributes:
        segments: the `Segments`.
        strings: string (segments,), the sentence or the whole text that holds the segment.
        begins: int32 (segments,), where that begins in the text, in bytes of valid UTF-8.
        starts: ragged int32 (segments, length), the first byte of each token in `strings`.
        ends: ragged int32 (segments, length), the byte behind its last.
    """

    segments: Segments
    strings: tf.Tensor
    begins: tf.Tensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Parts(NamedTuple):
    """Sentences and whole texts, in order.

    Attributes:
        texts: int32 (parts,), the text that each belongs to.
        begins: int32 (parts,), its first byte there.
        strings: string (parts,), itself.
    """

    texts: tf.Tensor
    begins: tf.Tensor
    strings: tf.Tensor


class LongParts(NamedTuple):
    """The parts that do not fit into one segment.

    Attributes:
        is_long: bool (parts,), whether a part is one of them.
        cuts: int32 (long parts, max_segments), where each of its segments ends in its tokens.
        refused: bool (texts,), whether a text needs more segments than it may have.
    """

    is_long: tf.Tensor
    cuts: tf.Tensor
    refused: tf.Tensor

    def join_splits(self, part_starts: tf.Tensor) -> tf.Tensor:
        """Returns where parts and segments begin, and the last ends, int32 (rows + 1,).

        `part_starts` (parts + 1,) says it of parts. Of equal places one is left.
        """
        long_starts = tf.boolean_mask(part_starts[:-1], self.is_long)
        # -> (cuts of all long parts,)
        inner_ends = tf.reshape(long_starts[:, None] + self.cuts, [-1])
        ends = tf.concat([part_starts, inner_ends], axis=0)
        marks = tf.scatter_nd(ends[:, None], tf.ones_like(ends), part_starts[-1:] + 1)
        return tf.cast(tf.where(marks > 0)[:, 0], tf.int32)


class Division(NamedTuple):
    """The tokens of a part that each segment has.

    Attributes:
        splits: int64 (rows + 1,), where rows of the parts' tokens begin, and where the last ends.
        rows: int64 (segments,), the row of each segment.
        parts: int32 (segments,), the part of each.
        texts: int32 (segments,), the text of each.
        refused: bool (texts,), whether a text needs more segments than it may have.
    """

    splits: tf.Tensor
    rows: tf.Tensor
    parts: tf.Tensor
    texts: tf.Tensor
    refused: tf.Tensor

    def gather(self, values: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the values of each segment from those of the tokens of each part."""
        rows = tf.RaggedTensor.from_row_splits(values.flat_values, self.splits)
        return tf.gather(rows, self.rows)  # -> (segments, length)

    def segments(self, tokens: tf.RaggedTensor) -> Segments:
        """Returns the `Segments` of the parts' tokens (parts, length)."""
        texts = self.texts
        first = tf.concat([[True], texts[1:] != texts[:-1]], axis=0)[: tf.size(texts)]
        return Segments(self.gather(tokens), texts, first, self.refused)


TEXTS = (tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.bool))


class SegmentSplitter(tf.Module):
    """Divides texts into segments of at most `longest` tokens.

    Where `by_sentence` is True a text is divided into its sentences, its parts. Elsewhere the whole
    text is one part. A part that fits is one segment. A longer part is divided behind the last
    sentence that leaves a segment that fits. Without such a sentence it is divided behind the last
    word, and without such a word anywhere. What remains is divided in the same way.

    Args:
        tokenizer: the tokenizer of the texts.
        longest: the most tokens of a segment.
        max_segments: the most segments of a part. A text may have `longest * max_segments` tokens.
            A text that needs more is refused.
    """

    def __init__(self, tokenizer: Tokenizer, longest: int, max_segments: int) -> None:
        super().__init__(name="segment_splitter")
        self.tokenizer = tokenizer
        self.longest = longest
        self.max_segments = max_segments
        surfaces = [*tokenizer.surfaces(), ""]  # the last for padding
        self.is_space = np.array([text != "" and text.isspace() for text in surfaces])
        self.starts_word = np.array([text[:1].isspace() for text in surfaces])

    @tf.function(input_signature=TEXTS, autograph=False)
    def split(self, text: tf.Tensor, by_sentence: tf.Tensor) -> Segments:
        """Returns the `Segments` of texts, divided where `by_sentence` (texts,) says.

        `text` (texts,) is valid UTF-8.
        """
        parts = split_parts(text, by_sentence)
        tokens = self.tokenizer.tokenize(parts.strings)
        return self._division(parts, tokens, tf.size(text)).segments(tokens)

    @tf.function(input_signature=TEXTS, autograph=False)
    def locate(self, text: tf.Tensor, by_sentence: tf.Tensor) -> LocatedSegments:
        """Returns the `Segments` of `split`, and where in the texts their tokens were read."""
        parts = split_parts(text, by_sentence)
        tokens, starts, ends = self.tokenizer.tokenize_with_offsets(parts.strings)
        division = self._division(parts, tokens, tf.size(text))
        return LocatedSegments(
            division.segments(tokens),
            tf.gather(parts.strings, division.parts),
            tf.gather(parts.begins, division.parts),
            division.gather(starts),
            division.gather(ends),
        )

    def _division(self, parts: Parts, tokens: tf.RaggedTensor, count: tf.Tensor) -> Division:
        """The `Division` of parts with these tokens (parts, length), of `count` texts."""
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        long_parts = self._cut_long_parts(parts, lengths, count)
        # Where parts begin in the tokens of all, one part behind the other, and the last ends.
        part_starts = tf.cast(tokens.row_splits, tf.int32)
        splits = long_parts.join_splits(part_starts)
        # -> (rows,), the part of each row; a part without tokens has no row
        numbers = tf.searchsorted(part_starts[1:], splits[:-1], side="right")
        refused = long_parts.refused
        kept = tf.where(~tf.gather(refused, tf.gather(parts.texts, numbers)))[:, 0]
        behind_all = tf.size(numbers, tf.int64)
        numbers = tf.gather(numbers, kept)
        texts = tf.gather(parts.texts, numbers)
        # A text without a row gets an empty row, which stands behind all others.
        some = tf.math.unsorted_segment_sum(tf.ones_like(texts), texts, count)
        empty = tf.cast(tf.where(some == 0)[:, 0], tf.int32)
        kept = tf.concat([kept, tf.fill([tf.size(empty)], behind_all)], axis=0)
        numbers = tf.concat([numbers, tf.searchsorted(parts.texts, empty)], axis=0)
        texts = tf.concat([texts, empty], axis=0)
        order = tf.argsort(texts, stable=True)
        kept, numbers, texts = (tf.gather(column, order) for column in (kept, numbers, texts))
        splits = tf.cast(tf.concat([splits, splits[-1:]], axis=0), tf.int64)
        return Division(splits, kept, numbers, texts, refused)

    def _cut_long_parts(self, parts: Parts, lengths: tf.Tensor, count: tf.Tensor) -> LongParts:
        """The `LongParts` among parts of these lengths (parts,), of `count` texts."""
        in_text = tf.math.unsorted_segment_sum(lengths, parts.texts, count)
        refused = in_text > self.longest * self.max_segments
        is_long = (lengths > self.longest) & ~tf.gather(refused, parts.texts)
        cuts = self._cuts(tf.boolean_mask(parts.strings, is_long))
        unfinished = tf.cast(cuts[:, -1] < tf.boolean_mask(lengths, is_long), tf.int32)
        long_texts = tf.boolean_mask(parts.texts, is_long)
        refused |= tf.math.unsorted_segment_sum(unfinished, long_texts, count) > 0
        return LongParts(is_long, cuts, refused)

    def _cuts(self, strings: tf.Tensor) -> tf.Tensor:
        """Where each segment of parts that do not fit ends, (parts, max_segments)."""
        tokens, starts, ends = self.tokenizer.tokenize_with_offsets(strings)
        lengths = tf.cast(tokens.row_lengths(), tf.int32)
        at_sentence = tokens.with_flat_values(behind_sentence(strings, starts, ends))
        quality = self._quality(tokens, at_sentence.to_tensor(False))
        quality = tf.pad(quality, [[0, 0], [0, self.longest]])
        window = tf.range(self.longest)
        number = tf.range(self.max_segments)

        def unfinished(index: tf.Tensor, start: tf.Tensor, cuts: tf.Tensor) -> tf.Tensor:
            return (index < self.max_segments) & tf.reduce_any(start < lengths)

        def cut(index: tf.Tensor, start: tf.Tensor, cuts: tf.Tensor) -> tuple[tf.Tensor, ...]:
            here = tf.gather(quality, start[:, None] + window, batch_dims=1)
            best = tf.argmax(here * self.longest + window, axis=1, output_type=tf.int32)
            end = tf.where(lengths - start <= self.longest, lengths, start + best + 1)
            cuts = tf.where((number >= index)[None], end[:, None], cuts)
            return index + 1, end, cuts

        start = tf.zeros_like(lengths)
        cuts = tf.zeros([tf.size(lengths), self.max_segments], tf.int32)
        _, _, cuts = tf.while_loop(unfinished, cut, (tf.constant(0), start, cuts))
        return cuts

    def _quality(self, tokens: tf.RaggedTensor, at_sentence: tf.Tensor) -> tf.Tensor:
        """How good a break behind each token is, int32 (parts, length)."""
        ids = tokens.to_tensor(len(self.is_space) - 1)
        is_space, starts_word = (
            tf.gather(table, ids) for table in (self.is_space, self.starts_word)
        )
        # A space that is a token of its own belongs to the word before it.
        at_word = is_space | (earlier(starts_word) & ~earlier(is_space))
        return tf.where(at_sentence, SENTENCE, tf.where(at_word, WORD, 0))


def split_parts(text: tf.Tensor, by_sentence: tf.Tensor) -> Parts:
    """Returns the `Parts` of valid UTF-8: the sentences of a text that has several, or the text."""
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


def behind_sentence(
    strings: tf.Tensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tf.Tensor:
    """Returns whether a sentence of `strings` ends behind each token, bool (tokens,).

    `starts` and `ends` are the bytes of the tokens, ragged (strings, length). No sentence ends
    behind a token that has parts of two sentences.
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


def earlier(rows: tf.Tensor) -> tf.Tensor:
    """Returns booleans (texts, length) moved one place to the beginning."""
    return tf.pad(rows, [[0, 0], [0, 1]])[:, 1:]
