"""What the model computes for an export, ids in, numbers out, in a few compiled shapes."""

import copy
import math

import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import optimization_barrier

from keras_transformer.decoding import BeamSearch, DecodeResult, Sampling
from keras_transformer.layers.dense import products_apart
from keras_transformer.models.sequence_to_sequence import EXTRA_LENGTH
from keras_transformer.serving.alignment import aligned_positions
from keras_transformer.serving.batching import (
    is_ids,
    largest_batches,
    map_chunks,
    next_size,
    pad_rows,
    powers_of_two,
)

SMALLEST_LENGTH = 16
# XLA on a processor multiplies one row of 8-bit integers three times as slowly as two.
LEAST_QUANTIZED_ROWS = 2
# A step of a search waits as often in few rows as in many, and two searches side by side fill each
# other's waits; but both read all weights. Measured: it pays from one row for so many bytes on.
WEIGHT_BYTES_PER_ROW = 4 * 2**20
SEARCHES = ("search_ids", "search_with", "align_ids")


class CompiledModel(tf.Module):
    """Functions of ids, compiled by XLA unless `jit_compile` is False, and when they were.

    They are called with few shapes only: lengths of `length_sizes`, and as many rows as a power of
    two up to the row limit of that length. The halves of a large batch are searched side by side.
    Source ids end in `eos_id`.
    """

    def __init__(
        self, model, search, max_length, max_source_length, max_batch_tokens, jit_compile, quantized
    ):
        super().__init__(name="compiled_model")
        self.model = model
        self.search = search
        # As `search`, with as many hypotheses as beams, and with alignments.
        hypotheses = {"num_hypotheses": search.beam_size} if isinstance(search, BeamSearch) else {}
        self.whole_search = changed(search, **hypotheses)
        self.aligning_search = changed(search, return_alignments=True)
        self.num_hypotheses = getattr(search, "num_hypotheses", search.rows_per_sentence)
        self.max_length = max_length
        self.jit_compile = jit_compile
        self.quantized = quantized
        self.length_sizes = powers_of_two(SMALLEST_LENGTH, max_source_length)
        self.row_limits = largest_batches(self.length_sizes, max_batch_tokens)
        ids = tf.TensorSpec([None, None], tf.int32)
        limits, penalties = (tf.TensorSpec([None], dtype) for dtype in (tf.int32, tf.float32))
        self.functions = {
            function.__name__: tf.function(
                function, inputs, jit_compile=jit_compile, autograph=False
            )
            for function, inputs in (
                (self.search_ids, [ids]),
                (self.search_with, [ids, ids, limits, penalties]),
                (self.align_ids, [ids]),
                (self.score_ids, [ids, ids]),
                (self.encode_ids, [ids]),
            )
        }
        self.least_rows_to_halve = least_rows_to_halve(model, search, jit_compile, quantized)
        # Each compiled function has one compilation for each shape that it has met.
        self.row_sizes = powers_of_two(1, self.row_limits[0])
        shape = [len(self.row_sizes), len(self.length_sizes)]
        self.shapes_met = {
            name: tf.Variable(tf.zeros(shape, tf.bool), trainable=False, name=f"shapes_{name}")
            for name in self.functions
        }

    @property
    def longest_output(self):
        """The most tokens that a search of the longest source can give."""
        return self.max_length or self.length_sizes[-1] + EXTRA_LENGTH

    def lengths(self, ids):
        """Number of tokens of each row that are not padding, int32 (rows,)."""
        return tf.math.count_nonzero(ids != self.model.pad_id, axis=1, dtype=tf.int32)

    def map(self, name, inputs, output_specs, then=None):
        """Applies the function `name` to rows of `inputs`, and `then` to its outputs.

        `inputs` begin with the source ids; any number of rows, of any length that the model reads.
        """

        def function(*chunk):
            outputs = self.apply(name, *chunk)
            return outputs if then is None else then(*outputs)

        ids = [part for part in inputs if is_ids(part)]
        lengths = [self.lengths(part) for part in ids]
        return map_chunks(
            function,
            inputs,
            lengths[0] if len(lengths) == 1 else tf.maximum(*lengths),
            output_specs,
            self.length_sizes,
            self.row_limits,
            self.model.pad_id,
        )

    def apply(self, name, *inputs):
        """What the function `name` gives for rows of `inputs`, of one of the shapes; a list."""

        def whole():
            self._meet(name, inputs)
            return list(self.functions[name](*inputs))

        def halves():
            first, second = zip(*(tf.split(part, 2) for part in inputs), strict=True)
            self._meet(name, first)
            both = self.functions[name](*first), self.functions[name](*second)
            return [tf.concat(pair, axis=0) for pair in zip(*both, strict=True)]

        if name not in SEARCHES or self.least_rows_to_halve is None:
            return whole()
        return tf.cond(tf.shape(inputs[0])[0] >= self.least_rows_to_halve, halves, whole)

    def rows_at_a_time(self, rows):
        """How many of a batch's rows are searched at a time: all, or half of them."""
        least = self.least_rows_to_halve
        return rows if least is None or rows < least else rows // 2

    def _meet(self, name, inputs):
        """Notes the shape in which a function is called."""
        ids = [part for part in inputs if is_ids(part)]
        row_index, _ = next_size(self.row_sizes, tf.shape(ids[0])[0])
        column_index, _ = next_size(self.length_sizes, tf.shape(ids[0])[1])
        self.shapes_met[name].scatter_nd_update([[row_index, column_index]], [True])

    def search_ids(self, source_ids):
        """Ids (rows, hypotheses, length) and scores (rows, hypotheses)."""
        result = self._generate(source_ids, self.search)
        return result.ids, result.scores

    def search_with(self, source_ids, prefix_ids, length_limits, length_penalty):
        """As `search_ids`, as many hypotheses as there are beams, under options of each row."""
        options = {"prefix_ids": prefix_ids, "length_limits": length_limits}
        if isinstance(self.search, BeamSearch):
            options["length_penalty"] = length_penalty
        result = self._generate(source_ids, self.whole_search, **options)
        return result.ids, result.scores

    def align_ids(self, source_ids):
        """The best hypothesis of each row, and the source position of each token, (rows, length).

        Both as wide as they can ever be, so that results of all shapes go together.
        """
        result = self._generate(source_ids, self.aligning_search)
        is_text = (source_ids != self.model.pad_id) & (source_ids != self.model.eos_id)
        # Nothing to translate: the translation is empty too.
        some = tf.reduce_any(is_text, axis=1, keepdims=True)
        ids = tf.where(some, result.ids[:, 0], self.model.pad_id)
        padding = [[0, 0], [0, self.longest_output - tf.shape(ids)[1]]]
        places = aligned_positions(result.alignments[:, 0], is_text)
        return tf.pad(ids, padding, constant_values=self.model.pad_id), tf.pad(places, padding)

    def score_ids(self, source_ids, target_ids):
        """The log-probability of each row's target, (rows,)."""
        return (self.model.score(source_ids, target_ids).log_prob,)

    def encode_ids(self, source_ids):
        """The sum of the encoder's vectors over each row's tokens, float32 (rows, d_model)."""
        memory = tf.cast(self.model.encode(source_ids, training=False), tf.float32)
        is_token = source_ids != self.model.pad_id
        return (tf.reduce_sum(tf.where(is_token[..., None], memory, 0.0), axis=1),)

    def _generate(self, source_ids, search, **options):
        if not (self.quantized and self.jit_compile and search.rows_per_sentence == 1):
            return self._generate_rows(source_ids, search, options)
        rows = tf.shape(source_ids)[0]
        least = tf.maximum(rows, LEAST_QUANTIZED_ROWS)
        options = {name: pad_rows(part, least) for name, part in options.items()}
        result = self._generate_rows(pad_rows(source_ids, least), search, options)
        return DecodeResult(*(None if part is None else part[:rows] for part in result))

    def _generate_rows(self, source_ids, search, options):
        with products_apart(barrier if self.jit_compile else None):
            return self.model.generate(source_ids, search, self.max_length, **options)


def least_rows_to_halve(model, search, jit_compile, quantized):
    """From how many rows on the halves of a batch are searched side by side; None for never."""
    # Samples are drawn by a row's place in its batch: two halves would draw alike.
    if not jit_compile or isinstance(search, Sampling):
        return None
    size = sum(math.prod(part.shape) * tf.as_dtype(part.dtype).size for part in model.weights)
    least = math.ceil(size / WEIGHT_BYTES_PER_ROW / search.rows_per_sentence)
    return max(least, 2 * LEAST_QUANTIZED_ROWS if quantized else 2)


def changed(search, **options):
    """A copy of `search` with other options, whatever a subclass has beside them."""
    search = copy.copy(search)
    for name, value in options.items():
        setattr(search, name, value)
    return search


def barrier(tensor):
    """`tensor`, which XLA computes apart from what it is made of and from what reads it."""
    return optimization_barrier(tensor)[0]
