"""Positions: added to embeddings, or at work inside attention.

`AddedPosition` and `AttentionPosition` are the two ways to tell positions apart. A block, a stack
or a model takes either as `position`; an attention layer takes the second.
"""

from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Length, PaddingMask, Shape, Tensor
from keras_transformer.integer_ids import integer_ids
from keras_transformer.layers.composite import Composite
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.lookup import looked_up
from keras_transformer.layers.sinusoids import LARGEST_POSITION
from keras_transformer.masking import ReadMask, boolean_mask, combine_masks, count_positions


def read_length(tensor: Tensor) -> Length:
    """The length (axis 1): a plain integer where it is known in advance, else a tensor.

    As `ops.shape(tensor)[1]`, which runs an operation in eager TensorFlow even for a known length.
    """
    return ops.shape(tensor)[1] if tensor.shape[1] is None else tensor.shape[1]


def position_range(length: Length) -> Tensor:
    """Positions 0 to length - 1: a NumPy array for a plain integer, else a tensor."""
    numpy_api = np if isinstance(length, int) else ops
    return numpy_api.arange(length, dtype="int32")


def key_distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """How far each key comes after each query: int32 (query, key)."""
    query, key = (ops.cast(p, "int32") for p in (query_positions, key_positions))
    return key[None, :] - query[:, None]


class AddedPosition(Composite):
    """The base of `PositionalEncoding` and `LearnedPositionalEncoding`, which define `rows`."""

    first_position = 0  # the number of the first token's position inside `rows`

    def __init__(
        self,
        max_length: int | None = None,
        combine: str = "add",
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # it would round positions that are floats
        self.max_length = arguments.optional(arguments.positive_integer, "max_length", max_length)
        if self.max_length == 1:
            # A single row would broadcast over an input of any length.
            raise ValueError(f"`max_length` must be at least 2. Received: max_length={max_length}")
        self.combine = arguments.one_of("combine", combine, ("add", "concat"))
        self.dropout = arguments.rate("dropout", dropout)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        """Builds the dropout."""
        self.d_model = input_shape[-1]
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.dropout_layer.build(input_shape)
        self.read_mask = ReadMask(dtype=self.dtype_policy, name="read_mask")
        self.built = True
        self.adopt()

    def rows(self, positions: Tensor) -> Tensor:
        """Returns float32 rows (..., d_model) of integer `positions` (...), NumPy or tensor."""
        raise NotImplementedError

    def call(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        training: bool | None = None,
        padding_mask: PaddingMask | None = None,
    ) -> Tensor:
        """Returns `inputs` combined with the rows of their positions.

        Positions count from the first True of each row of the mask (batch, length): that of
        `inputs`, combined with `padding_mask`. `positions` (batch, length) replace them.
        """
        # Not an argument that Keras fills in. A functional model would save it with the call, and a
        # file of a model without it would not load.
        mask = combine_masks(padding_mask, *self.read_mask(inputs))
        inputs = ops.cast(inputs, self.compute_dtype)
        if positions is not None:
            encoding = self._given_rows(ops.cast(integer_ids("positions", positions), "int32"))
        else:
            encoding = self.encoding(read_length(inputs))  # -> (length, d_model)
            encoding = encoding[None] if mask is None else counted_rows(encoding, mask, inputs)
        return self.dropout_layer(self.apply_encoding(inputs, encoding), training=training)

    def _given_rows(self, positions: Tensor) -> Tensor:
        """Rows of positions that are known only at run time; NaN where there is no such row."""
        limit = self.max_length
        if limit is None:
            limit = LARGEST_POSITION + 1 - self.first_position
        known = ops.logical_and(positions >= 0, positions < limit)
        rows = self.rows(ops.where(known, positions, 0))  # -> (batch, length, d_model)
        return ops.where(known[..., None], rows, float("nan"))

    def encoding(self, length: Length) -> Tensor:
        """Returns the first `length` rows, float32 (length, d_model)."""
        if self.max_length is None:
            return ops.convert_to_tensor(self.rows(position_range(length)))
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"the input must not be longer than `max_length`. Received: an input of length "
                f"{length}, max_length={self.max_length}"
            )
        # A length that is known only at run time and too large makes the sum with the input fail.
        return ops.convert_to_tensor(self.rows(np.arange(self.max_length)))[:length]

    def apply_encoding(self, inputs: Tensor, encoding: Tensor) -> Tensor:
        """Combines inputs (batch, length, d_model) with rows that broadcast to them."""
        encoding = ops.cast(encoding, inputs.dtype)
        if self.combine == "add":
            return inputs + encoding
        encoding = ops.broadcast_to(encoding, ops.shape(inputs))
        return ops.concatenate([inputs, encoding], axis=-1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the input's shape, twice as wide for "concat"."""
        width = input_shape[-1] * (2 if self.combine == "concat" else 1)
        return (*input_shape[:-1], width)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {"max_length": self.max_length, "combine": self.combine, "dropout": self.dropout}
        return {**super().get_config(), **own}


def counted_rows(encoding: Tensor, mask: PaddingMask, inputs: Tensor) -> Tensor:
    """Rows of `encoding` (length, d_model), counted from the first True of each row of `mask`."""
    mask = boolean_mask("padding_mask", mask)
    shape, expected = tuple(mask.shape), tuple(inputs.shape[:2])
    pairs = zip(shape, expected, strict=False)
    differ = any(None not in pair and len({*pair}) > 1 for pair in pairs)
    if len(shape) != 2 or differ:
        raise ValueError(
            "`padding_mask` must be (batch, length). Received: a mask of shape "
            f"{shape} for inputs of shape (batch, length, d_model) = {tuple(inputs.shape)}"
        )
    # As many positions as rows: a longer input makes the sum with them fail.
    positions = count_positions(mask)[:, : read_length(encoding[None])]
    return looked_up(encoding, positions)  # -> (batch, length, d_model)


class AttentionPosition(keras.layers.Layer):
    """The base of `RotaryPositionalEncoding`, `RelativePositionBias` and `ALiBi`.

    `MultiHeadAttention(position=...)` calls `rotate` and `bias`; a subclass overrides the one that
    it needs. Positions are integers: a NumPy array where they are known in advance, else a tensor.
    """

    def build_for_heads(self, num_heads: int, key_dim: int) -> None:
        """Builds the layer for an attention with these heads."""
        raise NotImplementedError

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Returns queries or keys (batch, length, heads, key_dim) at `positions` (length,)."""
        return heads

    def bias(
        self, query_positions: Tensor, key_positions: Tensor, causal: bool = False
    ) -> Tensor | None:
        """Returns a float32 bias (1, heads, query, key) for the scores, or None for none."""
        return None


class Shared(NamedTuple):
    """Hands the position of a block to the layers inside it, which then use this very object."""

    position: AddedPosition | AttentionPosition | None


Position: TypeAlias = AddedPosition | AttentionPosition | Shared | dict[str, Any]
"""How positions are told apart, or what a configuration holds of it."""


def checked_attention_position(position: Position | None) -> AttentionPosition | None:
    """Returns a copy of `position`, or of its saved configuration; raises `ValueError`.

    Two layers that hold one position would save it in one of them only, hence the copy.
    """
    if isinstance(position, Shared):
        return position.position
    if isinstance(position, dict):
        position = keras.saving.deserialize_keras_object(position)
    if position is None:
        return None
    if not isinstance(position, AttentionPosition):
        raise ValueError(
            "`position` must be None, a RotaryPositionalEncoding, a RelativePositionBias or an "
            "ALiBi; positions that are added are for layers and stacks, not for attention. "
            f"Received: position={position!r}"
        )
    return type(position).from_config(position.get_config())


def checked_position(
    position: Position | None, dtype: str | None
) -> AddedPosition | AttentionPosition | None:
    """Returns a copy of a position of either kind, for a block, a stack or a model.

    An `AddedPosition` computes in `dtype`, the policy of the layer that adds it.
    """
    if isinstance(position, dict):
        position = keras.saving.deserialize_keras_object(position)
    if isinstance(position, Shared) or not isinstance(position, AddedPosition):
        return checked_attention_position(position)
    if position.combine != "add":
        raise ValueError(
            "`position` must be added to the embeddings; appending it would change the width of "
            f"the model. Received: a position layer with combine={position.combine!r}"
        )
    return type(position).from_config({**position.get_config(), "dtype": dtype})


def position_config(position: Position | None) -> dict[str, Any] | None:
    """Returns what `get_config` saves of a position or None."""
    if position is None:
        return None
    config = keras.saving.serialize_keras_object(position)
    # The layer that holds the position builds it, and saves which layers inside are trainable.
    config["config"] = {
        key: value
        for key, value in config["config"].items()
        if key not in ("trainable", "trainable_inside")
    }
    return {key: value for key, value in config.items() if key != "build_config"}
