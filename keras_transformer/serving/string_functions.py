"""The translator as TensorFlow functions of strings: the signatures of its SavedModel."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding import BeamSearch
from keras_transformer.decoding.search import IMPOSSIBLE, LARGEST_LENGTH_PENALTY
from keras_transformer.serving.id_functions import CompiledFunction, IdFunctions
from keras_transformer.serving.saved_model import tensorflow_path
from keras_transformer.serving.segments import Segments, SegmentSplitter
from keras_transformer.text.tokenizer import TaggedTexts, Tokenizer, with_tags


def per_text(dtype: tf.DType, name: str | None = None) -> tf.TensorSpec:
    """Returns the specification of a tensor with one value for each text."""
    return tf.TensorSpec([None], dtype, name=name)


def signature(*inputs: tf.TensorSpec) -> Callable[..., Any]:
    """Makes a method a TensorFlow function with these inputs."""
    return tf.function(input_signature=inputs, autograph=False)


TEXT = per_text(tf.string, "text")


class Hypotheses(NamedTuple):
    """Translations of texts or of segments, the best of each first.

    Attributes:
        translations: string (rows, hypotheses).
        scores: float32 (rows, hypotheses).
    """

    translations: tf.Tensor
    scores: tf.Tensor


class Prefixes(NamedTuple):
    """What translations must begin with.

    Attributes:
        ids: int32 (segments, prefix), padding for a segment without a prefix.
        too_long: bool (texts,), whether a text's prefix is longer than the output may be.
    """

    ids: tf.Tensor
    too_long: tf.Tensor


class Options(NamedTuple):
    """The options of `translate`, one value for each text; `StringFunctions` says their defaults.

    Attributes:
        length_penalty: float32 (texts,).
        max_length: int32 (texts,).
        num_hypotheses: int32 (texts,).
        prefix: string (texts,).
        split_sentences: int32 (texts,).
        source_tag: string (texts,), None where no vocabulary has tags.
        target_tag: the same.
    """

    length_penalty: tf.Tensor
    max_length: tf.Tensor
    num_hypotheses: tf.Tensor
    prefix: tf.Tensor
    split_sentences: tf.Tensor
    source_tag: tf.Tensor | None = None
    target_tag: tf.Tensor | None = None


class WrittenPieces(NamedTuple):
    """The translations of segments, and the pieces that they are made of.

    Attributes:
        translations: string (segments,).
        counts: int32 (segments,), how many pieces there are.
        positions: int32 (segments, longest output), the source position of each piece.
        starts: int32 (segments, longest output), its first byte in the translation.
        ends: int32 (segments, longest output), the byte behind its last.
    """

    translations: tf.Tensor
    counts: tf.Tensor
    positions: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


class StringFunctions(tf.Module):
    """Divides texts into segments, gives their ids to `IdFunctions`, and joins what comes back.

    A text is divided into its sentences if `split_sentences` asks for it. A text longer than the
    model reads is divided into segments. The segments of all texts are one batch.

    Args:
        id_functions: the `IdFunctions` of a model.
        source_tokenizer: turns texts into the model's source ids.
        target_tokenizer: turns the model's target ids into texts.
        max_segments: the most segments of a text, or of a sentence where it is divided into these.
            A text that needs more, or has more tokens than so many segments hold, is refused.
        separator: joins the translations of a text's segments.
        split_sentences: whether texts are divided into their sentences.
        source_tag: a tag that the model reads before each segment, where its text has none.
        target_tag: a tag that every translation begins with, and that is not part of its text.
        source_eos: whether sources end in `eos_id`.
    """

    def __init__(
        self,
        id_functions: IdFunctions,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        max_segments: int,
        separator: str,
        split_sentences: bool,
        source_tag: str | None = None,
        target_tag: str | None = None,
        source_eos: bool = True,
    ) -> None:
        super().__init__(name="string_functions")
        self.id_functions = id_functions
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_segments = max_segments
        self.separator = separator
        self.split_sentences = split_sentences
        self.source_eos = source_eos
        self.source_tag, self.target_tag = (
            None if tag is None else tokenizer.tag_id(tag)
            for tag, tokenizer in ((source_tag, source_tokenizer), (target_tag, target_tokenizer))
        )
        has_tags = [
            bool(tokenizer.tags) or tokenizer.leading_tags
            for tokenizer in (source_tokenizer, target_tokenizer)
        ]
        self.has_tags = any(has_tags)
        # `eos_id` comes after the longest text, and a tag may come before it.
        longest, self.longest_target = (
            id_functions.max_source_length - 1 - has for has in has_tags
        )
        self.target_reader = target_tokenizer.without_leading_tags()
        self.splitter = SegmentSplitter(
            source_tokenizer.without_leading_tags(), longest + (not source_eos), max_segments
        )

    @property
    def signatures(self) -> dict[str, Any]:
        """The functions that an export has, with their names."""
        return {
            "serving_default": self.serving_default,
            "n_best": self.n_best,
            "score": self.score,
            "translate": self.translate_with_options,
            "align": self.align,
            "encode": self.encode,
        }

    @property
    def translate_with_options(self) -> Callable[..., dict[str, tf.Tensor]]:
        """The `translate` of an export: tags are among its options where a vocabulary has them."""
        return self.translate_tagged if self.has_tags else self.translate

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a SavedModel of the signatures to the directory `path`."""
        root = tf.Module()
        root.shapes_met = [function.shapes_met for function in self.id_functions.functions]
        met = [shapes.numpy() for shapes in root.shapes_met]
        # Concrete functions are saved as they are. The saver would trace others once more.
        signatures = {
            name: function.get_concrete_function() for name, function in self.signatures.items()
        }
        # The variables themselves, because a loader that is not Python finds none behind Keras's
        # layers. Only those that are read: seeds of dropout differ from process to process. In the
        # model's order, because a graph has none.
        read = {id(v): v for function in signatures.values() for v in function.graph.variables}
        weights = [variable.value for variable in self.id_functions.model.variables]
        root.variables_read = [read.pop(id(weight)) for weight in weights if id(weight) in read]
        root.variables_read += sorted(read.values(), key=lambda variable: variable.name)
        try:
            for shapes in root.shapes_met:  # the server has met none yet
                shapes.assign(tf.zeros_like(shapes))
            # Swish has a gradient of its own, of whose graph `reduce_saved_model` knows nothing.
            options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
            tf.saved_model.save(root, tensorflow_path(path), signatures, options)
        finally:
            for shapes, before in zip(root.shapes_met, met, strict=True):
                shapes.assign(before)

    @signature(TEXT)
    def serving_default(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best translation of each text."""
        answer = self._n_best(text)
        return {
            "translation": answer["translations"][:, 0],
            "score": answer["scores"][:, 0],
            "truncated": answer["truncated"],
        }

    @signature(TEXT)
    def n_best(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best translations of each text, the best first."""
        return self._n_best(text)

    @signature(
        TEXT,
        per_text(tf.float32, "length_penalty"),
        per_text(tf.int32, "max_length"),
        per_text(tf.int32, "num_hypotheses"),
        per_text(tf.string, "prefix"),
        per_text(tf.int32, "split_sentences"),
    )
    def translate(
        self,
        text: tf.Tensor,
        length_penalty: tf.Tensor,
        max_length: tf.Tensor,
        num_hypotheses: tf.Tensor,
        prefix: tf.Tensor,
        split_sentences: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """The best translations of each text, under options of its own.

        A `max_length` or `num_hypotheses` below 1 selects the export's default. So does a negative
        `split_sentences`, and a negative or NaN `length_penalty`.
        """
        return self._translate(
            text, Options(length_penalty, max_length, num_hypotheses, prefix, split_sentences)
        )

    @signature(
        TEXT,
        per_text(tf.float32, "length_penalty"),
        per_text(tf.int32, "max_length"),
        per_text(tf.int32, "num_hypotheses"),
        per_text(tf.string, "prefix"),
        per_text(tf.int32, "split_sentences"),
        per_text(tf.string, "source_tag"),
        per_text(tf.string, "target_tag"),
    )
    def translate_tagged(
        self,
        text: tf.Tensor,
        length_penalty: tf.Tensor,
        max_length: tf.Tensor,
        num_hypotheses: tf.Tensor,
        prefix: tf.Tensor,
        split_sentences: tf.Tensor,
        source_tag: tf.Tensor,
        target_tag: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """`translate` for vocabularies with tags, which are options too.

        An empty tag selects the export's default, and an unknown one refuses its text. A tag that
        the text begins with comes before `source_tag`.
        """
        options = (length_penalty, max_length, num_hypotheses, prefix, split_sentences)
        return self._translate(text, Options(*options, source_tag, target_tag))

    def _translate(self, text: tf.Tensor, options: Options) -> dict[str, tf.Tensor]:
        """The answer of `translate`."""
        message = "there must be as many options of each kind as texts"
        same = [
            tf.debugging.assert_equal(tf.shape(option), tf.shape(text), message)
            for option in options
            if option is not None
        ]
        with tf.control_dependencies(same):
            default = self._by_sentence(text)
        by_sentence = tf.where(options.split_sentences >= 0, options.split_sentences > 0, default)
        sources = self._sources(text, options.source_tag)
        segments = self.splitter.split(sources.texts, by_sentence)
        tokens = with_tags(segments.tokens, sources.gather_tags(segments.texts))
        limits = tf.where(options.max_length > 0, options.max_length, tf.int32.max)
        targets = self._targets(options.prefix, options.target_tag)
        prefixes = self._prefixes(segments, tokens, targets, limits)
        inputs = [self._source_ids(tokens), prefixes.ids]
        of_texts = limits, self._length_penalties(options)
        inputs += [tf.gather(option, segments.texts) for option in of_texts]
        width = self.id_functions.max_hypotheses
        found = self._search(self.id_functions.search_with_options, inputs, width)
        refused = segments.refused | prefixes.too_long | self._has_unknown_tags(options)
        found = self._joined(segments, refused, found)
        asked = options.num_hypotheses
        counts = tf.where(asked > 0, asked, self.id_functions.num_hypotheses)
        is_asked = tf.range(width) < counts[:, None]
        return {
            "translations": tf.where(is_asked, found.translations, ""),
            "scores": tf.where(is_asked, found.scores, IMPOSSIBLE),
            "truncated": refused,
        }

    def _length_penalties(self, options: Options) -> tf.Tensor:
        """The length penalty of each text, float32 (texts,)."""
        search, asked = self.id_functions.search, options.length_penalty
        default = search.length_penalty if isinstance(search, BeamSearch) else 0.0
        return tf.minimum(tf.where(asked >= 0, asked, default), LARGEST_LENGTH_PENALTY)

    def _has_unknown_tags(self, options: Options) -> tf.Tensor:
        """Whether each text asks for a tag that a vocabulary does not have, bool (texts,)."""
        unknown = tf.zeros(tf.shape(options.prefix), tf.bool)
        for tag, tokenizer in (
            (options.source_tag, self.source_tokenizer),
            (options.target_tag, self.target_tokenizer),
        ):
            if tag is not None:
                unknown |= (tag != "") & (tokenizer.tag_ids(tag) < 0)
        return unknown

    @signature(per_text(tf.string, "source"), per_text(tf.string, "target"))
    def score(self, source: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """The log-probability of each target, given its source, and its number of tokens."""
        same = tf.debugging.assert_equal(
            tf.shape(source), tf.shape(target), "source and target must have as many texts"
        )
        with tf.control_dependencies([same]):
            sources, targets = self._sources(source), self._targets(target)
        source_tokens = self.splitter.tokenizer.tokenize(sources.texts)
        target_tokens = self.target_reader.tokenize(targets.texts)
        longest_source, longest_target = self.splitter.longest, self.longest_target
        inputs = [
            self._source_ids(with_tags(source_tokens[:, :longest_source], sources.tags)),
            self._with_eos(with_tags(target_tokens[:, :longest_target], targets.tags)),
        ]
        (log_probs,) = self.id_functions.score_ids.map(inputs, [per_text(tf.float32)])
        is_long_source = source_tokens.row_lengths() > longest_source
        truncated = is_long_source | (target_tokens.row_lengths() > longest_target)
        num_tokens = tf.cast(with_tags(target_tokens, targets.tags).row_lengths(), tf.int32) + 1
        return {
            "log_prob": tf.where(truncated, IMPOSSIBLE, log_probs),
            "num_tokens": num_tokens,
            "truncated": truncated,
        }

    @signature(TEXT)
    def align(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best translation of each text, and which part of the text each piece is read from."""
        sources = self._sources(text)
        located = self.splitter.locate(sources.texts, self._by_sentence(text))
        segments = located.segments
        tags = sources.gather_tags(segments.texts)
        text_starts = (
            tf.zeros_like(segments.texts) if tags is None else tf.cast(tags >= 0, tf.int32)
        )
        longest = self.id_functions.longest_output
        row = tf.TensorSpec([None, longest], tf.int32)
        specs = WrittenPieces(per_text(tf.string), per_text(tf.int32), row, row, row)
        inputs = [self._source_ids(with_tags(segments.tokens, tags)), text_starts]
        written = WrittenPieces(
            *self.id_functions.align_ids.map(inputs, specs, self._written_pieces)
        )
        is_piece = tf.sequence_mask(written.counts, longest)
        before = segments.first_bytes(written.translations, self.separator)[:, None]
        positions = tf.maximum(written.positions - text_starts[:, None], 0)
        read_starts, read_ends = without_edges(
            located.strings,
            self._at(positions, located.starts),
            self._at(positions, located.ends),
        )
        begins = (located.begins + tf.gather(sources.begins, segments.texts))[:, None]
        columns = {
            "source_start": read_starts + begins,
            "source_end": read_ends + begins,
            "target_start": written.starts + before,
            "target_end": written.ends + before,
        }
        counts = tf.math.unsorted_segment_sum(written.counts, segments.texts, tf.size(text))
        columns = {
            name: tf.RaggedTensor.from_row_lengths(tf.boolean_mask(column, is_piece), counts)
            for name, column in columns.items()
        }
        return {
            "translation": segments.join(written.translations, self.separator),
            **{name: column.to_tensor(-1) for name, column in columns.items()},
            "truncated": segments.refused,
        }

    @signature(TEXT)
    def encode(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The mean of the encoder's vectors over the tokens of each text."""
        sources = self._sources(text)
        segments = self.splitter.split(sources.texts, self._by_sentence(text))
        source_ids = self._source_ids(
            with_tags(segments.tokens, sources.gather_tags(segments.texts))
        )
        spec = tf.TensorSpec([None, self.id_functions.model.d_model])
        (sums,) = self.id_functions.encode_ids.map([source_ids], [spec])
        counts = self.id_functions.shapes.num_tokens(source_ids)
        counts = tf.cast(counts, tf.float32)[:, None]
        sums, counts = (
            tf.math.unsorted_segment_sum(part, segments.texts, tf.size(text))
            for part in (sums, counts)
        )
        vectors = sums / tf.maximum(counts, 1.0)  # a text without tokens has none without an eos
        vectors = tf.where(segments.refused[:, None], 0.0, vectors)
        return {"vector": vectors, "truncated": segments.refused}

    def _n_best(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answer of `n_best`."""
        sources = self._sources(text)
        segments = self.splitter.split(sources.texts, self._by_sentence(text))
        tokens = with_tags(segments.tokens, sources.gather_tags(segments.texts))
        inputs, width = [self._source_ids(tokens)], self.id_functions.num_hypotheses
        found = self._search(self.id_functions.search_ids, inputs, width)
        found = self._joined(segments, segments.refused, found)
        return {**found._asdict(), "truncated": segments.refused}

    def _sources(self, text: tf.Tensor, asked: tf.Tensor | None = None) -> TaggedTexts:
        """The `TaggedTexts` of sources; `asked` are tags in place of the default, where not ""."""
        return self.source_tokenizer.read_tags(text, self.source_tag, asked)

    def _targets(self, text: tf.Tensor, asked: tf.Tensor | None = None) -> TaggedTexts:
        """Those of targets, or of what they begin with."""
        return self.target_tokenizer.read_tags(text, self.target_tag, asked)

    def _search(
        self, search: CompiledFunction, inputs: Sequence[tf.Tensor], num_hypotheses: int
    ) -> Hypotheses:
        """The `Hypotheses` of the segments whose ids `inputs` begin with."""
        shape = [None, num_hypotheses]
        specs = Hypotheses(tf.TensorSpec(shape, tf.string), tf.TensorSpec(shape, tf.float32))
        return Hypotheses(*search.map(inputs, specs, self._in_words))

    def _in_words(self, ids: tf.Tensor, scores: tf.Tensor) -> Hypotheses:
        """The `Hypotheses` of ids (rows, hypotheses, length) and scores (rows, hypotheses)."""
        flat = tf.reshape(ids, [-1, tf.shape(ids)[2]])  # -> (rows * hypotheses, length)
        texts = self.target_tokenizer.detokenize(flat)
        # -> (rows, hypotheses)
        return Hypotheses(tf.reshape(texts, tf.shape(scores)), scores)

    def _written_pieces(self, ids: tf.Tensor, positions: tf.Tensor) -> WrittenPieces:
        """The `WrittenPieces` of the ids (rows, length) of hypotheses."""
        model = self.id_functions.model
        if self.target_tag is not None:  # it is not part of the text
            ids = tf.pad(ids[:, 1:], [[0, 0], [0, 1]], constant_values=model.pad_id)
            positions = tf.pad(positions[:, 1:], [[0, 0], [0, 1]])
        is_piece = (ids != model.pad_id) & (ids != model.eos_id)
        counts = tf.reduce_sum(tf.cast(is_piece, tf.int32), axis=1)
        longest = tf.reduce_max(counts)
        kept = tf.where(is_piece, ids, model.pad_id)[:, :longest]
        texts, *offsets = self.target_tokenizer.detokenize_with_offsets(kept)
        spans = without_edges(texts, *offsets)
        padding = [[0, 0], [0, tf.shape(ids)[1] - longest]]
        return WrittenPieces(texts, counts, positions, *(tf.pad(part, padding) for part in spans))

    def _joined(self, segments: Segments, refused: tf.Tensor, found: Hypotheses) -> Hypotheses:
        """The `Hypotheses` of texts from those of their segments.

        Hypothesis k of a text joins hypothesis k of each segment, if every segment has one.
        """
        # The translation of an empty segment is empty.
        is_empty = (segments.tokens.row_lengths() == 0)[:, None]
        translations = tf.where(is_empty, "", found.translations)
        scores = tf.where(is_empty, 0.0, found.scores)
        count = tf.size(refused)
        worst = tf.math.unsorted_segment_min(scores, segments.texts, count)
        none = refused[:, None] | (worst <= IMPOSSIBLE / 2)
        scores = tf.math.unsorted_segment_sum(scores, segments.texts, count)
        joined = segments.join(translations, self.separator)
        return Hypotheses(tf.where(none, "", joined), tf.where(none, IMPOSSIBLE, scores))

    def _by_sentence(self, text: tf.Tensor) -> tf.Tensor:
        """The default of `split_sentences` for each text, bool (texts,)."""
        return tf.fill([tf.size(text)], self.split_sentences)

    def _at(self, positions: tf.Tensor, offsets: tf.RaggedTensor) -> tf.Tensor:
        """The ragged `offsets` (segments, source) at `positions`, int32 (segments, length)."""
        width = self.id_functions.max_source_length
        return tf.gather(offsets.to_tensor(0, shape=[None, width]), positions, batch_dims=1)

    def _prefixes(
        self, segments: Segments, sources: tf.RaggedTensor, targets: TaggedTexts, limits: tf.Tensor
    ) -> Prefixes:
        """The `Prefixes` of `targets` in outputs of at most `limits` tokens (texts,).

        The first segment of a text has its prefix. Where the tokenizer reverses, the last has it.
        The tag is before that of every segment. `sources` are the tokens that are read.
        """
        tokens = self.target_reader.tokenize(targets.texts)
        has_prefix = segments.first
        if self.target_tokenizer.reverse:
            last = tf.concat([segments.first[1:], [True]], axis=0)
            has_prefix = last[: tf.size(segments.first)]  # there may be none
        read = tf.cast(sources.row_lengths(), tf.int32) + self.source_eos
        longest = self.id_functions.limit_lengths(tf.boolean_mask(read, has_prefix))
        most = self.longest_target
        limits = tf.minimum(tf.minimum(limits, longest), most)  # -> (texts,)
        lengths = tf.cast(with_tags(tokens, targets.tags).row_lengths(), tf.int32)
        too_long = lengths > limits
        tokens = tf.gather(tokens[:, :most], segments.texts)
        pad_id = self.id_functions.model.pad_id
        ids = tf.where(has_prefix[:, None], tokens.to_tensor(pad_id), pad_id)
        tags = targets.gather_tags(segments.texts)
        if tags is not None:
            lengths = tf.where(has_prefix, tokens.row_lengths(), 0)
            ids = with_tags(tf.RaggedTensor.from_tensor(ids, lengths), tags).to_tensor(pad_id)
        return Prefixes(ids, too_long)

    def _source_ids(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        """Ids (rows, length) of ragged tokens of sources, as the model reads them."""
        return self._with_eos(tokens, int(self.source_eos))

    def _with_eos(self, tokens: tf.RaggedTensor, count: int = 1) -> tf.Tensor:
        """Ids (rows, length) of ragged tokens, each row with `count` times `eos_id` at its end."""
        model = self.id_functions.model
        eos = tf.fill([tokens.nrows(), count], model.eos_id)
        return tf.concat([tokens, eos], axis=1).to_tensor(model.pad_id)


def without_edges(
    strings: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the bytes of pieces (rows, length) without white space at the edges of a piece.

    `starts` and `ends` are those of each piece in `strings` (rows,), the byte behind its last.
    """
    strings = tf.broadcast_to(strings[:, None], tf.shape(starts))
    pieces = tf.strings.substr(strings, starts, ends - starts)
    right = tf.strings.length(tf.strings.regex_replace(pieces, r"[\s\v]+$", ""))
    left = tf.strings.length(tf.strings.regex_replace(pieces, r"^[\s\v]+", ""))
    return tf.minimum(ends - left, starts + right), starts + right
