"""The translator as TensorFlow functions of strings, which become a SavedModel's signatures."""

import tensorflow as tf

from keras_transformer.decoding.search import IMPOSSIBLE, LARGEST_LENGTH_PENALTY
from keras_transformer.models.sequence_to_sequence import EXTRA_LENGTH
from keras_transformer.serving.alignment import piece_offsets, without_edges
from keras_transformer.serving.segments import SegmentSplitter

SIGNATURES = ("serving_default", "n_best", "score", "translate", "align", "encode")


def per_text(dtype, name):
    """The specification of an input with one value for each text."""
    return tf.TensorSpec([None], dtype, name=name)


def signature(*inputs):
    """Makes a method a function of TensorFlow with these inputs."""
    return tf.function(input_signature=inputs, autograph=False)


TEXT = per_text(tf.string, "text")


class TranslationGraph(tf.Module):
    """Divides texts, turns them into ids for a `CompiledModel`, and makes strings of what it gives.

    A text is divided into its sentences if that is asked for, and, where it is longer than the
    model reads, into segments at the ends of sentences. The segments of all texts are one batch,
    and what comes of them is put together again.

    Args:
        compiled: a `CompiledModel`.
        source_tokenizer, target_tokenizer: tokenizers with the ids of its model.
        max_segments: the most segments of a text that is too long; one that needs more is refused.
        separator: str that joins the translations of a text's segments.
        split_sentences: bool, whether texts are divided into their sentences.
    """

    def __init__(
        self,
        compiled,
        source_tokenizer,
        target_tokenizer,
        max_segments,
        separator,
        split_sentences,
    ):
        super().__init__(name="translation_graph")
        self.compiled = compiled
        self.model = compiled.model
        self.search = compiled.search
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_segments = max_segments
        self.separator = separator
        self.split_sentences = split_sentences
        longest = compiled.length_sizes[-1] - 1  # `eos_id` comes after it
        self.split = SegmentSplitter(source_tokenizer, longest, max_segments)

    @signature(TEXT)
    def serving_default(self, text):
        """The best translation of each text."""
        translations, scores, truncated = self._hypotheses(text)
        return {
            "translation": translations[:, 0],
            "score": scores[:, 0],
            "truncated": truncated,
        }

    @signature(TEXT)
    def n_best(self, text):
        """The best translations of each text, the best first."""
        translations, scores, truncated = self._hypotheses(text)
        return {"translations": translations, "scores": scores, "truncated": truncated}

    @signature(
        TEXT,
        per_text(tf.float32, "length_penalty"),
        per_text(tf.int32, "max_length"),
        per_text(tf.int32, "num_hypotheses"),
        per_text(tf.string, "prefix"),
        per_text(tf.int32, "split_sentences"),
    )
    def translate(self, text, length_penalty, max_length, num_hypotheses, prefix, split_sentences):
        """The best translations of each text, under options of its own.

        An option that is not above 0 (of the penalty and of `split_sentences`: not at least 0), or
        is no number, asks for the export's own.
        """
        options = (length_penalty, max_length, num_hypotheses, prefix, split_sentences)
        message = "there must be as many options of each kind as texts"
        same = [
            tf.debugging.assert_equal(tf.shape(option), tf.shape(text), message)
            for option in options
        ]
        with tf.control_dependencies(same):
            own = self._by_sentence(text)
        segments = self.split(text, tf.where(split_sentences >= 0, split_sentences > 0, own))
        limits = tf.where(max_length > 0, max_length, tf.int32.max)
        prefix_ids, too_long = self._prefixes(segments, prefix, limits)
        own_penalty = getattr(self.search, "length_penalty", 0.0)
        penalties = tf.where(length_penalty >= 0, length_penalty, own_penalty)
        penalties = tf.minimum(penalties, LARGEST_LENGTH_PENALTY)
        inputs = [self._with_eos(segments.tokens), prefix_ids]
        inputs += [tf.gather(option, segments.texts) for option in (limits, penalties)]
        most = self.search.rows_per_sentence
        translations, scores = self._search("search_with", inputs, most)
        refused = segments.refused | too_long
        translations, scores = self._joined(segments, refused, translations, scores)
        own_count = self.compiled.num_hypotheses
        counts = tf.where(num_hypotheses > 0, num_hypotheses, own_count)
        asked = tf.range(most) < counts[:, None]
        return {
            "translations": tf.where(asked, translations, ""),
            "scores": tf.where(asked, scores, IMPOSSIBLE),
            "truncated": refused,
        }

    @signature(per_text(tf.string, "source"), per_text(tf.string, "target"))
    def score(self, source, target):
        """The log-probability of each target, given its source, and its number of tokens."""
        same = tf.debugging.assert_equal(
            tf.shape(source), tf.shape(target), "source and target must have as many texts"
        )
        with tf.control_dependencies([same]):
            pair = [self.source_tokenizer.tokenize(source)]
        pair.append(self.target_tokenizer.tokenize(target))
        lengths = [tf.cast(tokens.row_lengths(), tf.int32) for tokens in pair]
        truncated = tf.maximum(*lengths) > self.split.longest
        inputs = [self._with_eos(tokens[:, : self.split.longest]) for tokens in pair]
        (log_probs,) = self.compiled.map("score_ids", inputs, [tf.TensorSpec([None])])
        return {
            "log_prob": tf.where(truncated, IMPOSSIBLE, log_probs),
            "num_tokens": lengths[1] + 1,
            "truncated": truncated,
        }

    @signature(TEXT)
    def align(self, text):
        """The best translation of each text, and which part of the text each piece is read from."""
        segments, origins = self.split.with_origins(text, self._by_sentence(text))
        row = tf.TensorSpec([None, self.compiled.longest_output], tf.int32)
        translations, pieces, places, *written = self.compiled.map(
            "align_ids",
            [self._with_eos(segments.tokens)],
            [per_text(tf.string, None), per_text(tf.int32, None), row, row, row],
            self._written_pieces,
        )
        is_piece = tf.sequence_mask(pieces, self.compiled.longest_output)
        before = self._bytes_before(segments, translations)[:, None]
        read = without_edges(
            origins.strings, self._at(places, origins.starts), self._at(places, origins.ends)
        )
        columns = {
            "source_start": read[0] + origins.begins[:, None],
            "source_end": read[1] + origins.begins[:, None],
            "target_start": written[0] + before,
            "target_end": written[1] + before,
        }
        counts = tf.math.unsorted_segment_sum(pieces, segments.texts, tf.size(text))
        columns = {
            name: tf.RaggedTensor.from_row_lengths(tf.boolean_mask(column, is_piece), counts)
            for name, column in columns.items()
        }
        return {
            "translation": self._join(segments, translations),
            **{name: column.to_tensor(-1) for name, column in columns.items()},
            "truncated": segments.refused,
        }

    @signature(TEXT)
    def encode(self, text):
        """The mean of the encoder's vectors over the tokens of each text."""
        segments = self.split(text, self._by_sentence(text))
        source_ids = self._with_eos(segments.tokens)
        spec = tf.TensorSpec([None, self.model.d_model])
        (sums,) = self.compiled.map("encode_ids", [source_ids], [spec])
        counts = tf.cast(self.compiled.lengths(source_ids), tf.float32)[:, None]
        sums, counts = (
            tf.math.unsorted_segment_sum(part, segments.texts, tf.size(text))
            for part in (sums, counts)
        )
        vectors = tf.where(segments.refused[:, None], 0.0, sums / counts)
        return {"vector": vectors, "truncated": segments.refused}

    def _hypotheses(self, text):
        """Translations and scores (batch, hypotheses), and which texts were too long, (batch,)."""
        segments = self.split(text, self._by_sentence(text))
        inputs = [self._with_eos(segments.tokens)]
        found = self._search("search_ids", inputs, self.compiled.num_hypotheses)
        return *self._joined(segments, segments.refused, *found), segments.refused

    def _search(self, name, inputs, num_hypotheses):
        """Translations and scores of the segments, (segments, hypotheses)."""
        shape = [None, num_hypotheses]
        specs = [tf.TensorSpec(shape, dtype) for dtype in (tf.string, tf.float32)]
        return self.compiled.map(name, inputs, specs, self._in_words)

    def _in_words(self, ids, scores):
        """Texts and scores, (rows, hypotheses), of ids (rows, hypotheses, length)."""
        texts = self.target_tokenizer.detokenize(tf.reshape(ids, [-1, tf.shape(ids)[2]]))
        return [tf.reshape(texts, tf.shape(scores)), scores]

    def _written_pieces(self, ids, places):
        """Of ids (rows, length) that end: texts, numbers of pieces, places, starts and ends."""
        is_piece = (ids != self.model.pad_id) & (ids != self.model.eos_id)
        pieces = tf.reduce_sum(tf.cast(is_piece, tf.int32), axis=1)
        longest = tf.reduce_max(pieces)
        kept = tf.where(is_piece, ids, self.model.pad_id)[:, :longest]
        texts = self.target_tokenizer.detokenize(kept)
        offsets = without_edges(texts, *piece_offsets(self.target_tokenizer, kept))
        padding = [[0, 0], [0, tf.shape(ids)[1] - longest]]
        return [texts, pieces, places, *(tf.pad(part, padding) for part in offsets)]

    def _joined(self, segments, refused, translations, scores):
        """Translations and scores (batch, hypotheses) from those of the segments.

        The hypotheses of a text are made of its segments' hypotheses of the same rank, as far as
        all of them have one.
        """
        # Nothing to translate: the translation is empty too.
        empty = (segments.tokens.row_lengths() == 0)[:, None]
        translations, scores = tf.where(empty, "", translations), tf.where(empty, 0.0, scores)
        count = tf.size(refused)
        worst = tf.math.unsorted_segment_min(scores, segments.texts, count)
        none = refused[:, None] | (worst <= IMPOSSIBLE / 2)
        scores = tf.math.unsorted_segment_sum(scores, segments.texts, count)
        joined = self._join(segments, translations)
        return tf.where(none, "", joined), tf.where(none, IMPOSSIBLE, scores)

    def _join(self, segments, translations):
        """The translations of texts from those of segments, (segments, ...)."""
        parts = tf.strings.join([self._separators(segments, translations), translations])
        return tf.strings.unsorted_segment_join(parts, segments.texts, tf.size(segments.refused))

    def _separators(self, segments, translations):
        """What comes before each translation, (segments, ...): nothing before the first of a text.

        An empty translation is none, and nothing comes before it.
        """
        some = translations != ""
        before = tf.cumsum(tf.cast(some, tf.int32), exclusive=True)
        first = tf.boolean_mask(before, segments.first)  # one for each text, in order
        follows = before > tf.gather(first, segments.texts)
        return tf.where(follows & some, self.separator, "")

    def _bytes_before(self, segments, translations):
        """Where the translation of each segment begins in that of its text, int32 (segments,)."""
        separators = tf.strings.length(self._separators(segments, translations))
        ends = tf.cumsum(separators + tf.strings.length(translations), exclusive=True)
        first = tf.boolean_mask(ends, segments.first)
        return ends - tf.gather(first, segments.texts) + separators

    def _by_sentence(self, text):
        """The export's own choice for each text, bool (batch,)."""
        return tf.fill([tf.size(text)], self.split_sentences)

    def _at(self, places, offsets):
        """Of ragged offsets (segments, length) those at `places`, (segments, length)."""
        width = self.compiled.length_sizes[-1]
        return tf.gather(offsets.to_tensor(0, shape=[None, width]), places, batch_dims=1)

    def _prefixes(self, segments, prefix, limits):
        """Ids of the prefixes (segments, length), and which are too long.

        They are of the first segments, or, where the tokenizer reverses, of the last.
        """
        tokens = self.target_tokenizer.tokenize(prefix)
        begun = segments.first
        if getattr(self.target_tokenizer, "reverse", False):
            begun = tf.concat([segments.first[1:], [True]], axis=0)
        own = self.compiled.max_length
        if own is None:  # as in `Transformer.generate`, `eos_id` counted
            sources = tf.cast(segments.tokens.row_lengths(), tf.int32) + 1
            own = tf.boolean_mask(sources, begun) + EXTRA_LENGTH
        limits = tf.minimum(tf.minimum(limits, own), self.split.longest)
        too_long = tf.cast(tokens.row_lengths(), tf.int32) > limits
        tokens = tf.gather(tokens[:, : self.split.longest], segments.texts)
        ids = tokens.to_tensor(self.model.pad_id)
        return tf.where(begun[:, None], ids, self.model.pad_id), too_long

    def _with_eos(self, tokens):
        """Ids (rows, length) of ragged tokens, each row with `eos_id` at its end."""
        eos = tf.fill([tokens.nrows(), 1], self.model.eos_id)
        return tf.concat([tokens, eos], axis=1).to_tensor(self.model.pad_id)
