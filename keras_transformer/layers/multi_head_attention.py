"""Multi-head attention: called like Keras's layer, and never losing a mask."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import AttentionMask, BooleanMask, PaddingMask, Shape, Tensor
from keras_transformer.layers.attention import (
    Masks,
    any_within,
    attention_with_weights,
    cached_attention,
    local_attention,
    per_head,
    scaled_dot_product_attention,
)
from keras_transformer.layers.attention_axes import AttentionAxes, check_lengths
from keras_transformer.layers.composite import Composite
from keras_transformer.layers.dense import Projection
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.keras_attention import config_from_keras, copy_weights, keras_twin
from keras_transformer.layers.positions import (
    Position,
    checked_attention_position,
    position_config,
    position_range,
    read_length,
)
from keras_transformer.masking import AttachMask, ReadMask, combine_masks, zero_masked

Symbols: TypeAlias = keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]


def checked_output_shape(output_shape: Any, output_dim: int | None) -> tuple[int, ...] | None:
    """Returns the output's last axes as a tuple, or None for the query's width."""
    if output_dim is not None:
        output_dim = arguments.positive_integer("output_dim", output_dim)
        if output_shape is not None:
            raise ValueError(
                "give `output_shape` or `output_dim`, not both. "
                f"Received: output_shape={output_shape!r}, output_dim={output_dim!r}"
            )
        return (output_dim,)
    if output_shape is None:
        return None
    try:
        sizes = arguments.integers("output_shape", output_shape)
        return tuple(arguments.positive_integer("output_shape", size) for size in sizes)
    except ValueError:
        raise ValueError(
            "`output_shape` must be a positive integer or a tuple of them. "
            f"Received: output_shape={output_shape!r}"
        ) from None


def checked_window(window: int | None, sliding_window: int | None) -> int | None:
    """Returns how far a query sees, from one of the two ways to say it."""
    if sliding_window is None:
        return arguments.optional(arguments.non_negative_integer, "window", window)
    if window is not None:
        raise ValueError(
            "give `window` or `sliding_window`, not both. "
            f"Received: window={window!r}, sliding_window={sliding_window!r}"
        )
    return arguments.positive_integer("sliding_window", sliding_window) - 1


def checked_key_value_heads(num_key_value_heads: int | None, num_heads: int) -> int:
    """Returns the number of heads of keys and values, a divisor of `num_heads`."""
    if num_key_value_heads is None:
        return num_heads
    num_key_value_heads = arguments.positive_integer("num_key_value_heads", num_key_value_heads)
    if num_heads % num_key_value_heads:
        raise ValueError(
            "`num_key_value_heads` must divide `num_heads`. "
            f"Received: num_key_value_heads={num_key_value_heads}, num_heads={num_heads}"
        )
    return num_key_value_heads


def checked_flash_attention(flash_attention: bool | None, dropout: float) -> bool | None:
    """Returns `flash_attention`, or refuses it beside dropout on the weights."""
    if flash_attention and dropout:
        raise ValueError(
            "`dropout` must be 0 with `flash_attention=True`: the fused kernels have none. "
            f"Received: dropout={dropout}"
        )
    return arguments.plain(flash_attention)


class Heads(NamedTuple):
    """What attends and what it attends to, each (batch, length, heads, width)."""

    queries: Tensor
    keys: Tensor
    values: Tensor


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(Composite):
    """Lets each query gather values by the likeness of their keys, in several projections at once.

    `head_i = softmax(Q_i K_i^T / sqrt(key_dim) + bias_i) V_i`,
    `output = concat(head_1, ...) W_O`, with `Q_i = query W_Q_i`, `K_i = key W_K_i`,
    `V_i = value W_V_i`

    Called and constructed like `keras.layers.MultiHeadAttention`, with the same weights in the
    same order; docs/attention.md lists where the two differ.

    Args:
        num_heads: number of heads.
        key_dim: width of a head's queries and keys.
        value_dim: width of a head's values; `key_dim` when None.
        dropout: rate of the dropout on the attention weights.
        use_bias: whether the projections have biases.
        output_shape: width of the output, or a tuple for an output with more axes; the width of
            the query when None. `output_dim` is another name for a width.
        attention_axes: axes attended over; None for all but batch and width.
        sliding_window: Keras's way to say `window + 1`.
        flash_attention: None lets the backend choose its fused kernel, True asks for it.
        kernel_initializer, bias_initializer, kernel_regularizer: of each projection.
        bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint: the same.
        use_gate: multiply the heads by `sigmoid(query W_G)` before the output projection.
        seed: of the dropout.
        output_dim: width of the output.
        num_key_value_heads: number of heads of keys and values, a divisor of `num_heads`: each
            serves `num_heads / num_key_value_heads` heads of queries; `num_heads` when None.
        window: how far a query sees on either side; None for no limit. Self-attention over
            long rows is then computed in blocks, in time and memory linear in their length.
        position: a `RotaryPositionalEncoding`, `RelativePositionBias` or `ALiBi`, or None.

    Shapes:
        query: (batch, query, width). value, key: (batch, key, width); key is value when None.
        query_mask: (batch, query), value_mask and key_mask: (batch, key), attention_mask:
        (batch, query, key) or (batch, heads, query, key). Output: (batch, query, output_shape).
        With more axes between batch and width, `attention_axes` are attended over.

    Returns:
        The output; with `return_attention_scores=True` the pair of the output and the float32
        attention weights (batch, heads, query, key), before dropout.

    Raises:
        ValueError: for a bad argument, a mask of floats, or a mask of the wrong rank.

    Masking: all masks, Keras's implicit ones included, are combined; True may attend. A query
    with nothing to attend to, or masked itself, gives exactly 0. NaN or inf at a masked position
    reaches no output. The output carries the query's mask, and the caller's tensors keep theirs.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.2; Shazeer 2019, "Fast
    Transformer Decoding", and Ainslie et al. 2023, "GQA" (key and value heads); Qiu et al. 2025,
    "Gated Attention for Large Language Models" (gate).

    Example:

    >>> import numpy as np
    >>> query, memory = np.zeros((2, 3, 8)), np.zeros((2, 5, 8))
    >>> attention = MultiHeadAttention(num_heads=2, key_dim=4)
    >>> output, weights = attention(query, memory, return_attention_scores=True)
    >>> tuple(output.shape), tuple(weights.shape)
    ((2, 3, 8), (2, 2, 3, 5))
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: arguments.Axes | None = None,
        attention_axes: arguments.Axes | None = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: arguments.Initializer = "glorot_uniform",
        bias_initializer: arguments.Initializer = "zeros",
        kernel_regularizer: arguments.Regularizer | None = None,
        bias_regularizer: arguments.Regularizer | None = None,
        activity_regularizer: arguments.Regularizer | None = None,
        kernel_constraint: arguments.Constraint | None = None,
        bias_constraint: arguments.Constraint | None = None,
        use_gate: bool = False,
        seed: int | None = None,
        *,
        output_dim: int | None = None,
        num_key_value_heads: int | None = None,
        window: int | None = None,
        position: Position | None = None,
        **kwargs: Any,
    ) -> None:
        # No cast by Keras: it would make two tensors of one that is query and value both.
        super().__init__(**{"autocast": False, **kwargs})
        self.num_heads = arguments.positive_integer("num_heads", num_heads)
        self.key_dim = arguments.positive_integer("key_dim", key_dim)
        value_dim = key_dim if value_dim is None else value_dim
        self.value_dim = arguments.positive_integer("value_dim", value_dim)
        self.dropout = arguments.rate("dropout", dropout)
        self.use_bias = arguments.boolean("use_bias", use_bias)
        self.output_width = checked_output_shape(output_shape, output_dim)
        self.attention_axes = arguments.optional(
            arguments.integers, "attention_axes", attention_axes
        )
        self.window = checked_window(window, sliding_window)
        self.flash_attention = checked_flash_attention(flash_attention, self.dropout)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        # Not the layer's own attribute of that name: the projections apply it, as in Keras.
        self.projection_activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.use_gate = arguments.boolean("use_gate", use_gate)
        self.seed = arguments.plain(seed)
        self.num_key_value_heads = checked_key_value_heads(num_key_value_heads, self.num_heads)
        self.position = checked_attention_position(position)
        self.supports_masking = True
        self.adopt()

    @classmethod
    def from_keras(cls, layer: keras.layers.Layer) -> "MultiHeadAttention":
        """Returns this layer with the settings and the weights of a Keras attention layer.

        Args:
            layer: a `keras.layers.MultiHeadAttention` or a `keras.layers.GroupQueryAttention`.
        """
        own = cls.from_config(config_from_keras(layer))
        if layer.built:
            own.build_from_config(layer.get_build_config())
            copy_weights(layer, own)
        return own

    def to_keras(self) -> keras.layers.Layer:
        """Returns Keras's attention layer with the settings and the weights of this one.

        Raises:
            ValueError: for settings that Keras's layers do not have.
        """
        twin = keras_twin(self)
        if self.built:
            twin.build_from_config(self.get_build_config())
            copy_weights(self, twin)
        return twin

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Builds the projections and the dropout."""
        key_shape = value_shape if key_shape is None else key_shape
        check_lengths(value_shape, key_shape)
        axes = AttentionAxes(self.attention_axes, len(query_shape))
        self.axes = axes if len(query_shape) > 3 else None  # None: one axis to attend over
        if self.axes is not None:
            query_shape = self.axes.merge_shape(query_shape)
            value_shape, key_shape = map(self.axes.merge_shape, (value_shape, key_shape))
        self.query_dense = self._heads_dense("query", self.num_heads, self.key_dim)
        self.query_dense.build(query_shape)
        self.key_dense = self._heads_dense("key", self.num_key_value_heads, self.key_dim)
        self.key_dense.build(key_shape)
        if self.use_gate:
            self.gate_dense = self._heads_dense("gate", self.num_heads, self.value_dim, "sigmoid")
            self.gate_dense.build(query_shape)
        self.value_dense = self._heads_dense("value", self.num_key_value_heads, self.value_dim)
        self.value_dense.build(value_shape)
        self.output_dense = self._output_dense(query_shape)
        self.output_dense.build((*query_shape[:-1], self.num_heads, self.value_dim))
        self.dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        self.dropout_layer.build((query_shape[0], self.num_heads, query_shape[1], value_shape[1]))
        self.read_mask = ReadMask(dtype=self.dtype_policy, name="read_mask")
        self.attach_mask = AttachMask(dtype=self.dtype_policy, name="attach_mask")
        if self.position is not None:
            self.position.build_for_heads(self.num_heads, self.key_dim)
        self.built = True
        self.adopt()

    def _heads_dense(
        self, name: str, num_heads: int, width: int, activation: str | None = None
    ) -> Projection:
        dense = Projection(
            "bld,dhe->blhe",  # l: the length, of queries or keys; e: the width of a head
            output_shape=(None, num_heads, width),
            bias_axes="he" if self.use_bias else None,
            activation=activation,
            name=name,
            **self._projection_arguments(),
        )
        dense.supports_masking = True  # a mask on what a decoding step reads is not a loss
        return dense

    def _output_dense(self, query_shape: Shape) -> Projection:
        output_shape = self.output_width or (query_shape[-1],)
        axes = "opqrstu"[: len(output_shape)]
        return Projection(
            f"blhd,hd{axes}->bl{axes}",
            output_shape=(None, *output_shape),
            bias_axes=axes if self.use_bias else None,
            name="attention_output",
            **self._projection_arguments(),
        )

    def _projection_arguments(self) -> dict[str, Any]:
        # Clones: an initializer used twice would draw the same numbers twice.
        return {
            "kernel_initializer": self.kernel_initializer.clone(),
            "bias_initializer": self.bias_initializer.clone(),
            "kernel_regularizer": self.kernel_regularizer,
            "bias_regularizer": self.bias_regularizer,
            "activity_regularizer": self.projection_activity_regularizer,
            "kernel_constraint": self.kernel_constraint,
            "bias_constraint": self.bias_constraint,
            "dtype": self.dtype_policy,
        }

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: PaddingMask | None = None,
        value_mask: PaddingMask | None = None,
        key_mask: PaddingMask | None = None,
        attention_mask: AttentionMask | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Returns the attention output, or the pair of it and the weights."""
        if return_attention_scores and self.flash_attention:
            raise ValueError(
                "`return_attention_scores` must be False with `flash_attention=True`, which never "
                "has the weights. Received: return_attention_scores=True"
            )
        key = value if key is None else key
        query_mask = combine_masks(query_mask, *self.read_mask(query))
        key_mask = combine_masks(value_mask, key_mask, *self.read_mask(value), *self.read_mask(key))
        masks = Masks(query_mask, key_mask, attention_mask, use_causal_mask, self.window)
        query, value, key = cast_alike(self.compute_dtype, query, value, key)
        whole = query, value
        if self.axes is not None:
            masks = self.axes.merge_masks(masks, *whole)
            # -> (rows, length, width)
            query, value, key = map(self.axes.merge, (query, value, key))
        output, weights = self._attend_in_rows(
            query, value, key, masks, training=training, with_weights=return_attention_scores
        )
        if self.axes is not None:
            output = self.axes.split(output, whole[0])
            if weights is not None:
                weights = self.axes.split_weights(weights, *whole)
        output = self.attach_mask(output, mask=query_mask)
        return (output, weights) if return_attention_scores else output

    def _attend_in_rows(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor,
        masks: Masks,
        *,
        training: bool | None,
        with_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends along the length of (batch, length, width)."""
        if masks.attention_mask is not None:
            masks = masks._replace(attention_mask=per_head(masks.attention_mask))
        # Two lengths that are known only at run time are equal for one and the same tensor.
        length = query.shape[1]
        same_length = query is value or (length is not None and length == value.shape[1])
        query = zero_masked(query, masks.query_mask)
        memory = [value] if key is value else [value, key]
        memory = [zero_masked(part, masks.key_mask) for part in memory]
        finite = None
        if masks.depend_on_query():
            # A key may be masked for some queries only, and 0 times NaN is NaN.
            finite = combine_masks(*(ops.all(ops.isfinite(part), axis=-1) for part in memory))
            memory = [zero_masked(part, finite) for part in memory]
        keys, values = self.project_key_value(*memory)
        fits_blocks = masks.attention_mask is None and same_length and not with_weights
        if self.window is not None and fits_blocks:
            output = self.attend_in_blocks(
                query, keys, values, masks, window=self.window, finite=finite, training=training
            )
            return zero_masked(output, masks.query_mask), None
        return self.attend(
            query,
            keys,
            values,
            masks,
            finite=finite,
            training=training,
            with_weights=with_weights,
        )

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        masks: Masks,
        *,
        finite: BooleanMask | None = None,
        training: bool | None = None,
        with_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from `query` (batch, query, width) to projected keys and values.

        `finite` is as in `scaled_dot_product_attention`. Queries and keys are at the positions 0,
        1, 2, ... Returns the output, and the weights or None.
        """
        mask = masks.of_scores(read_length(query), read_length(keys))
        heads = self._in_heads(query, keys, values)
        bias = None
        if self.position is not None:
            positions = position_range(read_length(query)), position_range(read_length(keys))
            bias = self.position.bias(*positions, masks.causal)
        dropout, weights = self._weights_dropout(training), None
        if with_weights:
            context, weights = attention_with_weights(
                *heads, mask, bias=bias, dropout=dropout, finite=finite
            )
        else:
            context = scaled_dot_product_attention(
                *heads,
                mask,
                bias=bias,
                dropout=dropout,
                finite=finite,
                flash_attention=self.flash_attention,
            )
        output = self._project_output(context, query)
        return self._zero_without_keys(output, mask), weights

    def attend_in_blocks(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        masks: Masks,
        *,
        window: int,
        finite: BooleanMask | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """As `attend`, for self-attention within `window`."""
        bias = None if self.position is None else partial(self.position.bias, causal=masks.causal)
        context = local_attention(
            *self._in_heads(query, keys, values),
            window,
            causal=masks.causal,
            key_mask=masks.key_mask,
            finite=finite,
            bias=bias,
            dropout=self._weights_dropout(training),
            flash_attention=self.flash_attention,
        )
        output = self._project_output(context, query)
        if masks.key_mask is not None and self.use_bias:
            near = any_within(masks.key_mask, left=window, right=0 if masks.causal else window)
            output = zero_masked(output, near)
        return output

    def project_key_value(self, value: Tensor, key: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns keys (batch, key, key and value heads, key_dim) and values of those heads."""
        return self._rotate(self.key_dense(value if key is None else key)), self.value_dense(value)

    def _in_heads(self, query: Tensor, keys: Tensor, values: Tensor) -> Heads:
        """Projects the query, and repeats projected keys and values for the heads of queries."""
        queries = self._rotate(self.query_dense(query))
        return Heads(queries, self._for_query_heads(keys), self._for_query_heads(values))

    def _rotate(self, heads: Tensor, index: Tensor | None = None) -> Tensor:
        """Rotates (batch, length, heads, key_dim) by positions 0, 1, 2, ..., or all by `index`."""
        if self.position is None:
            return heads
        # index -> (1,)
        positions = (
            position_range(read_length(heads)) if index is None else ops.reshape(index, (1,))
        )
        return self.position.rotate(heads, positions)

    def _for_query_heads(self, heads: Tensor) -> Tensor:
        """Repeats the heads of keys or values for the heads of queries that share them."""
        repeats = self.num_heads // self.num_key_value_heads
        return heads if repeats == 1 else ops.repeat(heads, repeats, axis=2)

    def _weights_dropout(self, training: bool | None) -> Callable[[Tensor], Tensor] | None:
        if not self.dropout or not training:
            return None
        return lambda weights: self.dropout_layer(weights, training=training)

    def _project_output(self, context: Tensor, query: Tensor) -> Tensor:
        if self.use_gate:
            context = context * self.gate_dense(query)
        return self.output_dense(context)

    def _zero_without_keys(self, output: Tensor, mask: AttentionMask | None) -> Tensor:
        """Takes the bias from queries that have nothing to attend to."""
        if mask is None or not self.use_bias:
            return output
        attends = ops.any(mask, axis=(1, 3))  # -> (batch or 1, query or 1)
        return zero_masked(output, ops.broadcast_to(attends, ops.shape(output)[:2]))

    def step_key_value(self, inputs: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """As `project_key_value` for one decoding step: all inputs are at position `index`."""
        keys = self._rotate(self.key_dense.step(inputs), index)
        return keys, self.value_dense.step(inputs)

    def attend_cached(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: AttentionMask,
        index: Tensor | None = None,
        *,
        cache_length: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from one decoding step to cached keys and values; see `cached_attention`.

        All queries (batch, query, width) are at position `index`, and each position has as many
        adjacent slots as there are queries. Without an `index` there are no positions.
        `cache_length` is the number of positions that hold something. Returns the output (batch,
        query, width), and the weights where `cache_length` is None.
        """
        queries = self._rotate(self.query_dense.step(query), index)
        bias = None
        if self.position is not None:
            slots = position_range(ops.shape(keys)[2]) // read_length(query)
            bias = self.position.bias(ops.reshape(index, (1,)), slots, True)  # index -> (1,)
        context, weights = cached_attention(
            queries, keys, values, mask, bias, cache_length=cache_length
        )
        if self.use_gate:
            context = context * self.gate_dense.step(query)
        output = self.output_dense.step(context)
        return self._zero_without_keys(output, mask), weights

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None
    ) -> Shape:
        """Returns the query's shape with the output's width."""
        if value_shape is not None:
            check_lengths(value_shape, value_shape if key_shape is None else key_shape)
        return (*query_shape[:-1], *(self.output_width or query_shape[-1:]))

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Symbols:
        """Returns symbolic outputs; attention weights are (batch, heads, query, key), float32."""
        given = inspect.signature(self.call).bind(*args, **kwargs).arguments
        query, value, key = given["query"].shape, given["value"].shape, given.get("key")
        shape = self.compute_output_shape(query, value, None if key is None else key.shape)
        output = keras.KerasTensor(shape, self.compute_dtype)
        if not given.get("return_attention_scores"):
            return output
        shape = (query[0], self.num_heads, query[1], value[1])
        if self.axes is not None:
            shape = self.axes.weights_shape(self.num_heads, query, value)
        return output, keras.KerasTensor(shape, "float32")

    def compute_mask(
        self, query: Tensor, previous_mask: arguments.PreviousMask
    ) -> PaddingMask | None:
        """Returns the query's mask."""
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        serialize_regularizer = keras.regularizers.serialize
        own = {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "num_key_value_heads": self.num_key_value_heads,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "use_gate": self.use_gate,
            "window": self.window,
            "flash_attention": self.flash_attention,
            "seed": self.seed,
            "output_shape": self.output_width and list(self.output_width),
            "attention_axes": self.attention_axes and list(self.attention_axes),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": serialize_regularizer(self.kernel_regularizer),
            "bias_regularizer": serialize_regularizer(self.bias_regularizer),
            "activity_regularizer": serialize_regularizer(self.projection_activity_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "position": position_config(self.position),
        }
        return {**super().get_config(), **own}


def cast_alike(dtype: str, *tensors: Tensor) -> list[Tensor]:
    """Casts each tensor; those that are one object stay one."""
    cast = {id(tensor): ops.cast(tensor, dtype) for tensor in tensors}
    return [cast[id(tensor)] for tensor in tensors]
