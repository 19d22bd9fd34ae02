"""Token ids to vectors, and vectors back to logits with the same matrix."""

from typing import Any

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Ids, Logits, PaddingMask, PreviousMask, Shape, Tensor
from keras_transformer.integer_ids import dtype_name, integer_ids
from keras_transformer.layers.composite import Composite
from keras_transformer.layers.dense import (
    BARRIER,
    add_fixed_weight,
    columns_product,
    optimization_barrier,
)
from keras_transformer.layers.lookup import looked_up
from keras_transformer.masking import AttachMask, padding_mask

HALF = ("float16", "bfloat16")
FEW_ROWS = 16  # up to which XLA on a CPU multiplies them faster as columns


def float32_product(hidden: Tensor, embeddings: Tensor) -> Tensor:
    """float32 `hidden @ transpose(embeddings)` of half-precision tensors.

    The gradient of Keras's own, two products of the size of the logits, is float32 as well before
    it is rounded. Here its products are of the tensors' dtype, as those of every other layer.
    """

    @ops.custom_gradient
    def product(hidden: Tensor, embeddings: Tensor) -> tuple[Tensor, Any]:
        def gradient(*args: Any, upstream: Tensor | None = None) -> Any:
            upstream = args[0] if upstream is None else upstream  # PyTorch names it
            upstream = ops.cast(upstream, hidden.dtype)
            # -> (batch * length, vocab)
            rows = ops.reshape(upstream, (-1, upstream.shape[-1]))
            # -> (batch * length, d_model)
            inputs = ops.reshape(hidden, (-1, hidden.shape[-1]))
            return ops.matmul(upstream, embeddings), ops.matmul(ops.transpose(rows), inputs)

        # -> (d_model, vocab)
        matrix = ops.transpose(ops.cast(embeddings, "float32"))
        return ops.matmul(ops.cast(hidden, "float32"), matrix), gradient

    return product(hidden, embeddings)


class Table(keras.layers.ReversibleEmbedding):
    """Keras's layer, whose matrix is read as it is and not in the compute dtype.

    So its gradient, the sum over all places of an id, is of the matrix's dtype. In float16 it may
    be beyond all numbers, and in bfloat16 a sum of ones stays at 256.
    """

    reverse_embeddings: keras.Variable  # Keras's attribute, where the output is not tied

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a weight that is not cast."""
        return super().add_weight(*args, **{**kwargs, "autocast": False})

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: dict[str, Any] | None = None
    ) -> None:
        """Quantizes the weights as Keras does those of its own class."""
        super().quantize(mode, type_check=False, config=config)

    def put_in_columns(self) -> None:
        """Stores the output's own matrix in columns, (vocab, d_model), from now on."""
        matrix = ops.convert_to_numpy(self.reverse_embeddings).T
        # As Keras does where it quantizes.
        self._tracker.unlock()
        del self.reverse_embeddings
        self.reverse_embeddings = add_fixed_weight(self, "reverse_embeddings", matrix)
        self._tracker.lock()


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenEmbedding(Composite):
    """Looks up token vectors, scaled by sqrt(d_model), and marks padding in its output's mask.

    `output[b, t] = sqrt(d_model) * E[ids[b, t]]`, and `logits(h) = h @ transpose(E) + bias`

    E starts normal with standard deviation `d_model ** -0.5`, so that embeddings enter the model
    with unit variance and tied logits start near unit variance too.

    Args:
        vocab_size: number of rows of E.
        d_model: width of a vector.
        pad_id: the id that the output's mask marks as padding; None for no mask.
        scale: whether vectors are multiplied by sqrt(d_model).
        tie_output: whether logits use E, as in the paper, or an output matrix W of their own:
            `logits(h) = h @ W`.
        logits_bias: whether each token has a trained bias, which starts at 0.

    Shapes:
        ids: (batch, length) integers, or floats that are whole numbers. Output:
        (batch, length, d_model).

    Returns:
        A tensor of the layer's compute dtype.

    Raises:
        ValueError: for a bad argument, or ids that are neither integers nor whole floats. Floats
            are read where their values are known: outside of compiled functions, and on PyTorch
            in main memory. Elsewhere the dtype must hold the whole vocabulary exactly. So a
            `Sequential` under mixed precision needs `keras.Input((None,), dtype="int32")`: without
            it, Keras makes the ids half-precision floats.

    Masking: the output's mask is True at real tokens; logits carry none.

    Reference: Vaswani et al. 2017, section 3.4; Press and Wolf 2016 (tied output weights).

    Example:

    >>> import numpy as np
    >>> embedding = TokenEmbedding(vocab_size=11, d_model=8)
    >>> hidden = embedding(np.array([[3, 5, 0]]))
    >>> tuple(hidden.shape), tuple(embedding.logits(hidden).shape)
    ((1, 3, 8), (1, 3, 11))
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        pad_id: int | None = 0,
        *,
        scale: bool = True,
        tie_output: bool = True,
        logits_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = arguments.positive_integer("vocab_size", vocab_size)
        self.d_model = arguments.positive_integer("d_model", d_model)
        self.pad_id = arguments.optional(arguments.non_negative_integer, "pad_id", pad_id)
        self.scale = arguments.boolean("scale", scale)
        self.tie_output = arguments.boolean("tie_output", tie_output)
        self.logits_bias = arguments.boolean("logits_bias", logits_bias)
        self.in_columns = False
        self.supports_masking = True
        self.autocast = False  # it would round ids that are floats
        self.attach_mask = AttachMask(dtype=self.dtype_policy, name="attach_mask")
        self.embedding = Table(
            self.vocab_size,
            self.d_model,
            tie_weights=self.tie_output,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            reverse_dtype="float32",
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.embedding.supports_masking = True  # logits of masked positions need no warning
        self.adopt()

    def build(self, input_shape: Shape | None = None) -> None:
        """Builds the matrix, or both, and the bias."""
        if not self.embedding.built:
            self.embedding.build(input_shape)
        self.bias = None
        if self.logits_bias:
            self.bias = self.add_weight(
                (self.vocab_size,), initializer="zeros", autocast=False, name="logits_bias"
            )
        self.built = True

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        """Returns the scaled vectors of ids, or with `reverse` the logits of hidden vectors."""
        if reverse:
            return self._logits(ops.cast(inputs, self.compute_dtype))
        ids = integer_ids("ids", inputs, self.vocab_size)
        vectors = self._vectors(ids)
        if self.scale:
            vectors = vectors * self.d_model**0.5
        if self.pad_id is None or "int" in dtype_name(inputs):
            return vectors
        # `compute_mask` cannot tell such ids from hidden vectors.
        return self.attach_mask(vectors, mask=padding_mask(ids, self.pad_id))

    def _vectors(self, ids: Ids) -> Tensor:
        if dtype_name(ids) not in ("int32", "int64"):
            ids = ops.cast(ids, "int32")
        if self.embedding.quantization_mode:
            return self.embedding(ids)
        return ops.cast(looked_up(self.embedding.embeddings, ids), self.compute_dtype)

    def _logits(self, hidden: Tensor) -> Logits:
        logits = self._product(hidden)
        if self.bias is None:
            return logits
        return optimization_barrier(logits) + ops.cast(self.bias, "float32")

    def _product(self, hidden: Tensor) -> Logits:
        table = self.embedding
        if self.in_columns:
            return self._columns_product(hidden)
        if table.quantization_mode:
            return table(hidden, reverse=True)
        if self.compute_dtype not in HALF:
            if BARRIER.get() is None or not self.tie_output:
                return table(hidden, reverse=True)
            # XLA knows the number of rows when it compiles, and keeps one of the two products.
            return ops.cond(
                ops.size(hidden) <= FEW_ROWS * self.d_model,
                lambda: self._columns_product(hidden),
                lambda: table(hidden, reverse=True),
            )
        matrix = table.embeddings
        if not self.tie_output:
            matrix = ops.transpose(table.reverse_embeddings)  # -> (vocab, d_model)
        return float32_product(hidden, ops.cast(matrix, self.compute_dtype))

    def _columns_product(self, hidden: Tensor) -> Logits:
        table = self.embedding
        # The matrix of its own is (vocab, d_model) too, by `put_in_columns`.
        matrix = table.embeddings if self.tie_output else table.reverse_embeddings
        # -> (batch * length, d_model)
        rows = ops.reshape(ops.cast(hidden, "float32"), (-1, self.d_model))
        logits = columns_product(ops.cast(matrix, "float32"), rows)
        # -> (batch, length, vocab)
        return ops.reshape(logits, (*ops.shape(hidden)[:-1], self.vocab_size))

    def put_in_columns(self) -> None:
        """Computes logits as `E @ transpose(hidden)` from now on; see `columns_product`.

        For inference alone, as `put_in_columns` of dense layers.
        """
        if not self.tie_output:
            self.embedding.put_in_columns()
        self.in_columns = True

    def logits(self, hidden: Tensor) -> Logits:
        """Returns float32 logits (batch, length, vocab) of `hidden` (batch, length, d_model)."""
        return self(hidden, reverse=True)

    def output_vectors(self, ids: Ids) -> Tensor:
        """The float32 rows of the output matrix, (ids, d_model); those in 8 bits as numbers."""
        table = self.embedding
        if self.tie_output:
            return ops.cast(self._vectors(ids), "float32")
        axis = 0 if self.in_columns else 1
        vectors = ops.cast(ops.take(table.reverse_embeddings, ids, axis=axis), "float32")
        if axis:
            vectors = ops.transpose(vectors)
        if table.quantization_mode:
            vectors = vectors / ops.take(table.reverse_embeddings_scale, ids)[:, None]
        return vectors

    def compute_mask(
        self, inputs: Tensor, previous_mask: PreviousMask | None = None
    ) -> PaddingMask | None:
        """Returns True at real tokens for ids, and None for hidden vectors.

        Floats are ids when they are (batch, length) of another length than d_model.
        """
        if self.pad_id is None:
            return None
        is_ids = "int" in dtype_name(inputs) or (
            len(inputs.shape) == 2 and inputs.shape[-1] != self.d_model
        )
        return padding_mask(inputs, self.pad_id) if is_ids else None

    def compute_output_spec(self, inputs: Tensor, reverse: bool = False) -> keras.KerasTensor:
        """Returns the symbolic vectors of ids, or float32 logits."""
        if reverse:
            return keras.KerasTensor((*inputs.shape[:-1], self.vocab_size), "float32")
        integer_ids("ids", inputs, self.vocab_size)  # refuses a dtype before the model runs
        return keras.KerasTensor((*inputs.shape, self.d_model), self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape of `ids` with d_model appended."""
        return (*input_shape, self.d_model)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "pad_id": self.pad_id,
            "scale": self.scale,
            "tie_output": self.tie_output,
            "logits_bias": self.logits_bias,
        }
        return {**super().get_config(), **own}
