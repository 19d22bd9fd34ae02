"""The model and its search as functions of ids, which XLA compiles for a few shapes of batches."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import optimization_barrier

from keras_transformer.decoding import BeamSearch, DecodeResult, Sampling, Search, Shortlist
from keras_transformer.layers.dense import given_barrier
from keras_transformer.serving.stored_copy import columns_copy, quantized_copy

SMALLEST_LENGTH = 16
# On a processor XLA multiplies two rows of 8-bit integers three times as fast as one.
LEAST_QUANTIZED_ROWS = 2
# Two halves of a batch run faster side by side from one row for so many bytes of weights on. A
# decoding step waits as often with few rows as with many, and each half fills the other's waits.
# But each half reads all weights. Measured.
WEIGHT_BYTES_PER_ROW = 4 * 2**20


def powers_of_two(smallest: int, largest: int) -> list[int]:
    """Returns `smallest`, 2 * smallest, ... up to `largest`, which is always the last."""
    sizes = []
    while smallest < largest:
        sizes.append(smallest)
        smallest *= 2
    return [*sizes, largest]


def largest_batches(lengths: Sequence[int], max_batch_tokens: int) -> list[int]:
    """Returns for each length the largest power of two of rows that hold so many tokens, or 1."""
    return [2 ** (max(max_batch_tokens // length, 1).bit_length() - 1) for length in lengths]


def size_index(sizes: Sequence[int], needed: tf.Tensor) -> tf.Tensor:
    """Returns the index of the first of the ascending `sizes` that is at least `needed`."""
    sought = tf.reshape(needed, [1])  # -> (1,)
    return tf.searchsorted(tf.constant(sizes, tf.int32), sought)[0]


def is_ids(tensor: tf.Tensor) -> bool:
    """Whether a tensor has columns: ids have, other inputs have one value for each row."""
    return tensor.shape.rank == 2


def pad_rows(tensor: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Repeats the first row of `tensor` (at least one) at its end until there are `rows`.

    A repeated row ends when the first does. A row of padding might run to the length limit.
    """
    missing = rows - tf.shape(tensor)[0]
    repeats = tf.concat([[missing], tf.ones([tf.rank(tensor) - 1], tf.int32)], axis=0)
    return tf.concat([tensor, tf.tile(tensor[:1], repeats)], axis=0)


class Shapes(NamedTuple):
    """The few shapes (rows, length) to which any batch of ids is divided and padded.

    The number of rows is a power of two.

    Attributes:
        lengths: the lengths, ascending.
        row_limits: for each length the largest number of rows, descending.
        pad_id: the id that fills a row up to a length.
    """

    lengths: list[int]
    row_limits: list[int]
    pad_id: int

    @property
    def row_sizes(self) -> list[int]:
        """Every number of rows, ascending."""
        return powers_of_two(1, self.row_limits[0])

    def num_tokens(self, ids: tf.Tensor) -> tf.Tensor:
        """Number of tokens of each row of ids that are not padding, int32 (rows,)."""
        return tf.math.count_nonzero(ids != self.pad_id, axis=1, dtype=tf.int32)

    def map_chunks(
        self,
        function: Callable[..., Sequence[tf.Tensor]],
        inputs: Sequence[tf.Tensor],
        output_specs: Sequence[tf.TensorSpec],
    ) -> list[tf.Tensor]:
        """Applies `function` to chunks of rows of similar length; gives results in input order.

        Args:
            function: takes one tensor for each input: ids (rows, length) in one of the shapes, or
                other values (rows,). It returns tensors with the same number of rows.
            inputs: padded ids (batch, any length), at most two of them, and other tensors
                (batch,). The batch may be 0.
            output_specs: a `tf.TensorSpec` for each output, its first dimension None.

        Returns:
            Each output for the whole batch.
        """
        counts = [self.num_tokens(part) for part in inputs if is_ids(part)]
        lengths = counts[0] if len(counts) == 1 else tf.maximum(*counts)
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)
        inputs = [tf.gather(part, order) for part in inputs]
        lengths = tf.gather(lengths, order)
        batch_size = tf.shape(lengths)[0]

        def more(start: tf.Tensor, *outputs: tf.Tensor) -> tf.Tensor:
            return start < batch_size

        def next_chunk(start: tf.Tensor, *outputs: tf.Tensor) -> tuple[tf.Tensor, ...]:
            index = size_index(self.lengths, lengths[start])
            end = tf.minimum(start + tf.gather(self.row_limits, index), batch_size)
            columns = tf.gather(self.lengths, index)
            rows = tf.gather(self.row_sizes, size_index(self.row_sizes, end - start))
            chunk = [part[start:end] for part in inputs]
            chunk = [self._padded(part, columns) if is_ids(part) else part for part in chunk]
            chunk = [pad_rows(part, rows) for part in chunk]
            results = [result[: end - start] for result in function(*chunk)]
            return (end, *(tf.concat(pair, axis=0) for pair in zip(outputs, results, strict=True)))

        empty = [tf.zeros([0, *spec.shape[1:]], spec.dtype) for spec in output_specs]
        invariants = (tf.TensorShape([]), *(spec.shape for spec in output_specs))
        _, *outputs = tf.while_loop(
            more, next_chunk, (tf.constant(0), *empty), invariants, parallel_iterations=1
        )
        back = tf.argsort(order)
        return [tf.gather(output, back) for output in outputs]

    def _padded(self, ids: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
        """Cuts or pads ids (rows, any length) to (rows, columns); only padding is cut."""
        ids = ids[:, :columns]
        missing = columns - tf.shape(ids)[1]
        return tf.pad(ids, [[0, 0], [0, missing]], constant_values=self.pad_id)


class CompiledFunction(tf.Module):
    """A function of ids that XLA compiles once for each of the `Shapes` that it meets.

    Args:
        function: takes tensors as `input_signature` says and returns a tuple of tensors with the
            same number of rows.
        input_signature: a `tf.TensorSpec` for each input: first the source ids (rows, length),
            then other ids, then tensors (rows,).
        shapes: the `Shapes` in which it is called.
        jit_compile: whether XLA compiles it.
        least_rows_to_halve: the two halves of a batch of so many rows or more run side by side.
            None never divides a batch.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[tf.Tensor]],
        input_signature: Sequence[tf.TensorSpec],
        shapes: Shapes,
        jit_compile: bool,
        least_rows_to_halve: int | None = None,
    ) -> None:
        super().__init__(name="compiled_function")
        self.function = tf.function(
            function, input_signature, jit_compile=jit_compile, autograph=False
        )
        self.shapes = shapes
        self.least_rows_to_halve = least_rows_to_halve
        # Of (row size, length), whether the function was called in this shape.
        self.shapes_met = tf.Variable(
            tf.zeros([len(shapes.row_sizes), len(shapes.lengths)], tf.bool),
            trainable=False,
            name=f"shapes{function.__name__}",
        )

    def map(
        self,
        inputs: Sequence[tf.Tensor],
        output_specs: Sequence[tf.TensorSpec],
        then: Callable[..., Sequence[tf.Tensor]] | None = None,
    ) -> list[tf.Tensor]:
        """Applies the function to any number of rows, and `then` to its outputs.

        `inputs` are those of the function, but rows of any length that the model reads.
        """

        def function(*chunk: tf.Tensor) -> Any:
            outputs = self(*chunk)
            return outputs if then is None else then(*outputs)

        return self.shapes.map_chunks(function, inputs, output_specs)

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Returns the outputs for rows of `inputs` in one of the shapes."""

        def whole() -> list[tf.Tensor]:
            self._note_shape(inputs[0])
            return list(self.function(*inputs))

        def halves() -> list[tf.Tensor]:
            first, second = zip(*(tf.split(part, 2) for part in inputs), strict=True)
            self._note_shape(first[0])
            both = self.function(*first), self.function(*second)
            return [tf.concat(pair, axis=0) for pair in zip(*both, strict=True)]

        if self.least_rows_to_halve is None:
            return whole()
        return tf.cond(tf.shape(inputs[0])[0] >= self.least_rows_to_halve, halves, whole)

    def rows_at_a_time(self, rows: int) -> int:
        """Returns how many rows of a batch run at a time: all, or half of them."""
        least = self.least_rows_to_halve
        return rows if least is None or rows < least else rows // 2

    def _note_shape(self, source_ids: tf.Tensor) -> None:
        """Marks the shape of `source_ids` (rows, length) as met."""
        row_index = size_index(self.shapes.row_sizes, tf.shape(source_ids)[0])
        column_index = size_index(self.shapes.lengths, tf.shape(source_ids)[1])
        self.shapes_met.scatter_nd_update([[row_index, column_index]], [True])


def most_attended(alignments: tf.Tensor, is_text: tf.Tensor) -> tf.Tensor:
    """Returns the source position that each output token attends to most, int32 (rows, length).

    `alignments` are (rows, length, source). `is_text` (rows, source) is False at padding and at
    the end of the sentence, which are not part of the text.
    """
    weights = tf.where(is_text[:, None, :], alignments, -1.0)
    return tf.argmax(weights, axis=-1, output_type=tf.int32)


def barrier(tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`, which XLA computes apart from its inputs and its readers."""
    return optimization_barrier(tensor)[0]


class StoredShortlist(tf.Module, Shortlist):
    """A shortlist whose tables are variables of an export."""

    def __init__(self, shortlist: Shortlist) -> None:
        tf.Module.__init__(self, name="shortlist")
        Shortlist.__init__(self, **shortlist.settings)
        self.tables = [tf.Variable(table) for table in (self.target_ids, self.probabilities)]

    def _tables(self) -> tuple[tf.Tensor, ...]:
        return tuple(map(tf.convert_to_tensor, self.tables))


class IdFunctions(tf.Module):
    """What a translator computes from ids: searches, scores and vectors, each a `CompiledFunction`.

    Source ids end in `eos_id`.

    Args:
        model: the model.
        search: the search.
        max_length: the largest number of output tokens; None allows 50 more than the source has.
        max_source_length: the longest source, in tokens with `eos_id`.
        max_batch_tokens: the most source tokens of a batch, padding included.
        jit_compile: whether XLA compiles the functions.
        quantize: "int8" computes with a copy of the model in 8-bit integers, None with the model.
        layout: "columns" computes with a copy of the model whose matrices have outputs first,
            and "rows" with the model.
        first_id: the id that every output of `search_ids` and `align_ids` begins with; None lets
            the model choose.
        shortlist: the target ids of each batch; None for the whole vocabulary.

    Attributes:
        model: the model that computes: the argument, or its copy.
        num_hypotheses: how many hypotheses `search_ids` gives for a source.
        max_hypotheses: how many `search_with_options` gives.
        search_ids: `(source_ids)` to ids (rows, num_hypotheses, length) and scores
            (rows, num_hypotheses).
        search_with_options: `(source_ids, prefix_ids, length_limits, length_penalty)` to ids
            (rows, max_hypotheses, length) and scores (rows, max_hypotheses). Prefixes are
            (rows, prefix), limits and penalties (rows,).
        align_ids: `(source_ids, text_starts)` to the ids of the best hypothesis and the source
            position of each token, both (rows, longest_output). What stands before `text_starts`
            (rows,) is not text, such as a language code.
        score_ids: `(source_ids, target_ids)` to log-probabilities (rows,).
        encode_ids: `(source_ids)` to the sum of the encoder's vectors over each row's tokens,
            (rows, d_model).
        functions: all five.
    """

    def __init__(
        self,
        model: keras.Model,
        search: Search,
        *,
        max_length: int | None,
        max_source_length: int,
        max_batch_tokens: int,
        jit_compile: bool,
        quantize: str | None,
        layout: str = "rows",
        first_id: int | None = None,
        shortlist: Shortlist | None = None,
    ) -> None:
        super().__init__(name="id_functions")
        self.first_id = first_id
        self.shortlist = None if shortlist is None else StoredShortlist(shortlist)
        model.build(None)
        self.model = model
        if quantize:
            self.model = quantized_copy(model, quantize)
        elif layout == "columns":
            self.model = columns_copy(model)
        # Copies, because a subclass of a search may have more than its configuration says.
        self.whole_search = self.search = search
        if isinstance(search, BeamSearch):
            self.whole_search = whole = copy.copy(search)
            whole.num_hypotheses = search.beam_size
        self.aligning_search = copy.copy(search)
        self.aligning_search.return_alignments = True
        self.max_hypotheses = search.rows_per_sentence
        self.num_hypotheses = search.hypotheses_per_sentence
        self.max_length = max_length
        self.max_source_length = max_source_length
        self.jit_compile = jit_compile
        self.quantize = quantize
        self.layout = layout
        lengths = powers_of_two(SMALLEST_LENGTH, max_source_length)
        self.shapes = Shapes(lengths, largest_batches(lengths, max_batch_tokens), model.pad_id)
        ids = tf.TensorSpec([None, None], tf.int32)
        limits, penalties = (tf.TensorSpec([None], dtype) for dtype in (tf.int32, tf.float32))
        options = self.shapes, jit_compile
        # What the model computes in one pass keeps the processor busy: it is not divided.
        halved = *options, self._least_rows_to_halve()
        self.search_ids = CompiledFunction(self._search_ids, [ids], *halved)
        self.search_with_options = CompiledFunction(
            self._search_with_options, [ids, ids, limits, penalties], *halved
        )
        self.align_ids = CompiledFunction(self._align_ids, [ids, limits], *halved)
        self.score_ids = CompiledFunction(self._score_ids, [ids, ids], *options)
        self.encode_ids = CompiledFunction(self._encode_ids, [ids], *options)
        self.functions = [
            self.search_ids,
            self.search_with_options,
            self.align_ids,
            self.score_ids,
            self.encode_ids,
        ]

    @property
    def longest_output(self) -> int:
        """The most tokens that a search of the longest source can give."""
        return self.model.limit_lengths(self.max_source_length, self.max_length)

    def limit_lengths(self, source_lengths: tf.Tensor) -> tf.Tensor:
        """Returns the largest lengths of the outputs of sources, int32 (rows,), or one for all.

        `source_lengths` are int32 (rows,), with `eos_id`.
        """
        limits = self.model.limit_lengths(source_lengths, self.max_length)
        return self.search.bound_lengths(limits, source_lengths)

    def _search_ids(self, source_ids: tf.Tensor) -> tuple[tf.Tensor, ...]:
        result = self._generate(source_ids, self.search, **self._first(source_ids))
        return result.ids, result.scores

    def _search_with_options(
        self,
        source_ids: tf.Tensor,
        prefix_ids: tf.Tensor,
        length_limits: tf.Tensor,
        length_penalty: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        options = {"prefix_ids": prefix_ids, "length_limits": length_limits}
        if isinstance(self.search, BeamSearch):
            options["length_penalty"] = length_penalty
        result = self._generate(source_ids, self.whole_search, **options)
        return result.ids, result.scores

    def _align_ids(self, source_ids: tf.Tensor, text_starts: tf.Tensor) -> tuple[tf.Tensor, ...]:
        result = self._generate(source_ids, self.aligning_search, **self._first(source_ids))
        is_text = (source_ids != self.model.pad_id) & (source_ids != self.model.eos_id)
        is_text &= tf.range(tf.shape(source_ids)[1]) >= text_starts[:, None]
        # The translation of an empty text is empty.
        some = tf.reduce_any(is_text, axis=1, keepdims=True)
        ids = tf.where(some, result.ids[:, 0], self.model.pad_id)
        alignments: tf.Tensor = result.alignments  # the search was asked for them
        positions = most_attended(alignments[:, 0], is_text)
        # Outputs of all shapes are joined, so all have the same width.
        padding = [[0, 0], [0, self.longest_output - tf.shape(ids)[1]]]
        return tf.pad(ids, padding, constant_values=self.model.pad_id), tf.pad(positions, padding)

    def _first(self, source_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """The option of `generate` that makes outputs begin with `first_id`."""
        if self.first_id is None:
            return {}
        return {"prefix_ids": tf.fill([tf.shape(source_ids)[0], 1], self.first_id)}

    def _score_ids(self, source_ids: tf.Tensor, target_ids: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return (self.model.score(source_ids, target_ids).log_prob,)

    def _encode_ids(self, source_ids: tf.Tensor) -> tuple[tf.Tensor, ...]:
        memory = tf.cast(self.model.encode(source_ids, training=False), tf.float32)
        is_token = source_ids != self.model.pad_id
        return (tf.reduce_sum(tf.where(is_token[..., None], memory, 0.0), axis=1),)

    def _generate(
        self, source_ids: tf.Tensor, search: Search, **options: tf.Tensor
    ) -> DecodeResult:
        """The `DecodeResult`; a single row in 8 bits is searched as two, which is faster."""
        if not (self.quantize and self.jit_compile and self.max_hypotheses == 1):
            return self._generate_rows(source_ids, search, options)
        rows = tf.shape(source_ids)[0]
        least = tf.maximum(rows, LEAST_QUANTIZED_ROWS)
        options = {name: pad_rows(part, least) for name, part in options.items()}
        result = self._generate_rows(pad_rows(source_ids, least), search, options)
        return DecodeResult(*(None if part is None else part[:rows] for part in result))

    def _generate_rows(
        self, source_ids: tf.Tensor, search: Search, options: dict[str, tf.Tensor]
    ) -> DecodeResult:
        if self.shortlist is not None:
            always = {self.model.pad_id, self.model.bos_id, self.model.eos_id}
            always.update(search.allowed_ids or ())
            # A row that only fills the batch would count the first text again.
            fills = tf.reduce_all(source_ids == source_ids[:1], axis=1)
            fills &= tf.range(tf.shape(source_ids)[0]) > 0
            texts = tf.where(fills[:, None], self.model.pad_id, source_ids)
            options["candidate_ids"] = self.shortlist.candidate_ids(
                texts, sorted(always), options.get("prefix_ids")
            )
        with given_barrier(barrier if self.jit_compile else None):
            return self.model.generate(source_ids, search, self.max_length, **options)

    def _least_rows_to_halve(self) -> int | None:
        """From how many rows on the halves of a batch are searched side by side; None for never."""
        # Samples are drawn by a row's place in its batch: two halves would draw alike.
        if not self.jit_compile or isinstance(self.search, Sampling):
            return None
        size = sum(
            math.prod(part.shape) * tf.as_dtype(part.dtype).size for part in self.model.weights
        )
        least = math.ceil(size / WEIGHT_BYTES_PER_ROW / self.max_hypotheses)
        return max(least, 2 * LEAST_QUANTIZED_ROWS if self.quantize else 2)
