"""The options that encoder and decoder layers, and stacks of them, have in common."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Activation, PaddingMask, Shape, Tensor
from keras_transformer.layers.composite import Composite, LayerOptions
from keras_transformer.layers.feed_forward import (
    FeedForward,
    activation_config,
    checked_activation,
)
from keras_transformer.layers.multi_head_attention import (
    MultiHeadAttention,
    checked_key_value_heads,
)
from keras_transformer.layers.positions import (
    AddedPosition,
    AttentionPosition,
    Position,
    Shared,
    checked_position,
    position_config,
)
from keras_transformer.layers.residual import NORM_EPSILON, Residual, normalization
from keras_transformer.masking import AttachMask, ReadMask


def checked_vectors(name: str, shape: Shape) -> Shape:
    """Returns the shape of vectors (batch, length, width), or raises `ValueError`."""
    if len(shape) != 3:
        raise ValueError(
            f"`{name}` must be vectors, (batch, length, width). Ids, (batch, length), become "
            f"vectors by TokenEmbedding. Received: {name} of shape {tuple(shape)}"
        )
    return shape


class BlockOptions(LayerOptions, total=False):
    """The keyword arguments of `Block`, as the signature of a stack hands them on."""

    attention_dropout: float
    feed_forward_dropout: float
    rms_norm: bool
    norm_epsilon: float
    num_key_value_heads: int | None
    window: int | None
    position: Position | None


class Block(Composite):
    """Holds the options of a layer or a stack, and makes sub-layers from them."""

    def __init__(
        self,
        num_heads: int,
        d_ff: int,
        dropout: float = 0.1,
        norm_first: bool = False,
        activation: Activation = "relu",
        *,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        rms_norm: bool = False,
        norm_epsilon: float = NORM_EPSILON,
        num_key_value_heads: int | None = None,
        window: int | None = None,
        position: Position | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = arguments.positive_integer("num_heads", num_heads)
        self.d_ff = arguments.positive_integer("d_ff", d_ff)
        self.dropout = arguments.rate("dropout", dropout)
        self.norm_first = arguments.boolean("norm_first", norm_first)
        self.activation = checked_activation(activation)
        self.attention_dropout = arguments.rate("attention_dropout", attention_dropout)
        self.feed_forward_dropout = arguments.rate("feed_forward_dropout", feed_forward_dropout)
        self.rms_norm = arguments.boolean("rms_norm", rms_norm)
        self.norm_epsilon = arguments.positive_number("norm_epsilon", norm_epsilon)
        self.num_key_value_heads = checked_key_value_heads(num_key_value_heads, self.num_heads)
        self.window = arguments.optional(arguments.non_negative_integer, "window", window)
        self.position = checked_position(position, self.dtype_policy)
        self.supports_masking = True
        self.adopt()

    @property
    def added_position(self) -> AddedPosition | None:
        """The position that is added to the input of the block, or None."""
        return self.position if isinstance(self.position, AddedPosition) else None

    @property
    def attention_position(self) -> AttentionPosition | None:
        """The position that acts inside self-attention, or None."""
        return None if isinstance(self.position, AddedPosition) else self.position

    def options(self, index: int = 0) -> dict[str, Any]:
        """The constructor's arguments, for the layer `index` of a stack.

        Positions that are added are so by the first layer alone.
        """
        position = self.position if index == 0 else self.attention_position
        return {
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "norm_first": self.norm_first,
            "activation": self.activation,
            "attention_dropout": self.attention_dropout,
            "feed_forward_dropout": self.feed_forward_dropout,
            "rms_norm": self.rms_norm,
            "norm_epsilon": self.norm_epsilon,
            "num_key_value_heads": self.num_key_value_heads,
            "window": self.window,
            "position": Shared(position),
        }

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        saved = {
            "activation": activation_config(self.activation),
            "position": position_config(self.position),
        }
        return {**super().get_config(), **self.options(), **saved}

    def self_attention_layer(self, name: str, d_model: int) -> MultiHeadAttention:
        """An attention of the input to itself, with the block's window and positions."""
        return MultiHeadAttention(
            window=self.window,
            position=Shared(self.attention_position),
            **self._attention_arguments(name, d_model),
        )

    def cross_attention_layer(self, name: str, d_model: int) -> MultiHeadAttention:
        """An attention to a memory, whose positions are not those of the input."""
        return MultiHeadAttention(**self._attention_arguments(name, d_model))

    def _attention_arguments(self, name: str, d_model: int) -> dict[str, Any]:
        if d_model is None or d_model % self.num_heads:
            raise ValueError(
                "`num_heads` must divide the width of the input (d_model). "
                f"Received: num_heads={self.num_heads}, d_model={d_model}"
            )
        return {
            "num_heads": self.num_heads,
            "key_dim": d_model // self.num_heads,
            "dropout": self.attention_dropout,
            "num_key_value_heads": self.num_key_value_heads,
            "dtype": self.dtype_policy,
            "name": name,
        }

    def feed_forward_layer(self) -> FeedForward:
        """The feed-forward network."""
        return FeedForward(
            self.d_ff,
            self.activation,
            self.feed_forward_dropout,
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def residual_layer(self, name: str) -> Residual:
        """The connection around a sub-layer."""
        return Residual(
            self.dropout,
            self.norm_first,
            self.rms_norm,
            self.norm_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    def attach_mask_layer(self) -> AttachMask:
        """The identity that sets the mask of its output."""
        return AttachMask(dtype=self.dtype_policy, name="attach_mask")

    def read_inputs(
        self, *inputs: Tensor | None
    ) -> tuple[list[Tensor | None], list[PaddingMask | None]]:
        """Returns each input in the compute dtype, and the implicit mask of each; None for None.

        Keras does so, and builds the layer, for `call`. A method that users call beside it does so
        by itself.
        """
        if not self.built:
            self.build(*(tensor if tensor is None else tuple(tensor.shape) for tensor in inputs))
        masks = [None if x is None else next(iter(ReadMask()(x)), None) for x in inputs]
        return [None if x is None else ops.cast(x, self.compute_dtype) for x in inputs], masks

    def final_norm_layer(self) -> keras.layers.Layer | None:
        """The normalisation after a stack whose layers normalise first, else None."""
        if not self.norm_first:
            return None
        return normalization(
            self.rms_norm, self.norm_epsilon, dtype=self.dtype_policy, name="final_norm"
        )
