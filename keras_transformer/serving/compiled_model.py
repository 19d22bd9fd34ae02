"""What the model computes for an export, ids in, numbers out, in a few compiled shapes."""

import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import optimization_barrier

from keras_transformer.decoding import BeamSearch, DecodeResult
from keras_transformer.layers.step_product import products_apart
from keras_transformer.models.decoding_step import EXTRA_LENGTH
from keras_transformer.serving.alignment import aligned_positions
from keras_transformer.serving.batching import (
    largest_batches,
    map_chunks,
    pad_rows,
    powers_of_two,
)

SMALLEST_LENGTH = 16
# XLA on a processor multiplies one row of 8-bit integers three times as slowly as two.
LEAST_QUANTIZED_ROWS = 2


class CompiledModel(tf.Module):
    """Functions of ids, compiled by XLA unless `jit_compile` is False, and when they were.

    They are called with few shapes only: lengths of `length_sizes`, and as many rows as a power of
    two up to the row limit of that length. Source ids end in `eos_id`.
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
        self.num_hypotheses = getattr(search, "num_hypotheses", search.beam_size)
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
        # Each compiled function has one compilation for each shape that it has met.
        shape = [len(powers_of_two(1, self.row_limits[0])), len(self.length_sizes)]
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
            outputs = self.functions[name](*chunk)
            return outputs if then is None else then(*outputs)

        ids = [part for part in inputs if part.shape.rank == 2]
        lengths = [self.lengths(part) for part in ids]
        return map_chunks(
            function,
            inputs,
            lengths[0] if len(lengths) == 1 else tf.maximum(*lengths),
            output_specs,
            self.length_sizes,
            self.row_limits,
            self.model.pad_id,
            self.shapes_met[name],
        )

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
        if not (self.quantized and self.jit_compile and search.beam_size == 1):
            return self._generate_rows(source_ids, search, options)
        rows = tf.shape(source_ids)[0]
        least = tf.maximum(rows, LEAST_QUANTIZED_ROWS)
        options = {name: pad_rows(part, least) for name, part in options.items()}
        result = self._generate_rows(pad_rows(source_ids, least), search, options)
        return DecodeResult(*(None if part is None else part[:rows] for part in result))

    def _generate_rows(self, source_ids, search, options):
        with products_apart(barrier if self.jit_compile else None):
            return self.model.generate(source_ids, search, self.max_length, **options)


def changed(search, **options):
    """A search like `search`, with other options."""
    return type(search).from_config({**search.get_config(), **options})


def barrier(tensor):
    """`tensor`, which XLA computes apart from what it is made of and from what reads it."""
    return optimization_barrier(tensor)[0]
