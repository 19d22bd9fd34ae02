"""One layer of the encoder: self-attention, then a feed-forward network."""

import keras

from keras_transformer import arguments
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.implicit_masks import AttachMask
from keras_transformer.layers.multi_head_attention import MultiHeadAttention
from keras_transformer.layers.residual import Residual
from keras_transformer.masking import combine_masks, zero_masked


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderLayer(keras.layers.Layer):
    """Lets positions attend to one another, then transforms each of them.

    `y = norm(x + attention(x, x))`, `output = norm(y + FFN(y))`; with `norm_first`
    `y = x + attention(norm(x))`, `output = y + FFN(norm(y))`

    Args:
        num_heads: number of heads; each is `d_model / num_heads` wide.
        d_ff: inner width of the feed-forward network.
        dropout: rate of the dropout on each sub-layer's output.
        norm_first: normalise before each sub-layer instead of after it.
        activation: of the feed-forward network.

    Shapes:
        inputs: (batch, length, d_model). padding_mask: (batch, length). attention_mask:
        (batch, query, key). Output: (batch, length, d_model).

    Returns:
        A tensor of the layer's compute dtype.

    Raises:
        ValueError: for a bad argument, a d_model that num_heads does not divide, or a mask that
            is not boolean.

    Masking: combines `padding_mask` with Keras's implicit mask (`mask`, `inputs_mask`, which
    Keras fills in), and sets the result as the mask of its output.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.1.

    Example:

    >>> import numpy as np
    >>> layer = EncoderLayer(num_heads=2, d_ff=32)
    >>> tuple(layer(np.zeros((1, 3, 8)), padding_mask=np.array([[True, True, False]])).shape)
    (1, 3, 8)
    """

    def __init__(self, num_heads, d_ff, dropout=0.1, norm_first=False, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.num_heads = arguments.positive_integer("num_heads", num_heads)
        self.d_ff = arguments.positive_integer("d_ff", d_ff)
        self.dropout = arguments.rate("dropout", dropout)
        self.norm_first = arguments.boolean("norm_first", norm_first)
        self.activation = keras.activations.get(activation)
        self.supports_masking = True

    def build(self, input_shape):
        """Builds the sub-layers for the input's width."""
        dtype = self.dtype_policy
        key_dim = head_width(input_shape[-1], self.num_heads)
        self.attention = MultiHeadAttention(self.num_heads, key_dim, dtype=dtype, name="attention")
        self.attention_residual = Residual(
            self.dropout, self.norm_first, dtype=dtype, name="attention_residual"
        )
        self.feed_forward = FeedForward(
            self.d_ff, self.activation, dtype=dtype, name="feed_forward"
        )
        self.feed_forward_residual = Residual(
            self.dropout, self.norm_first, dtype=dtype, name="feed_forward_residual"
        )
        self.attach_mask = AttachMask(dtype=dtype, name="attach_mask")
        self.attention.build(input_shape, input_shape)
        for layer in (self.attention_residual, self.feed_forward, self.feed_forward_residual):
            layer.build(input_shape)
        self.built = True

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        mask=None,
        inputs_mask=None,
    ):
        """Returns the transformed positions."""
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        inputs = zero_masked(inputs, padding_mask)

        normed = self.attention_residual.enter(inputs)
        attended = self.attention(
            normed,
            normed,
            value_mask=padding_mask,
            attention_mask=attention_mask,
            training=training,
        )
        hidden = self.attention_residual.leave(inputs, attended, training)

        transformed = self.feed_forward(self.feed_forward_residual.enter(hidden), training=training)
        outputs = self.feed_forward_residual.leave(hidden, transformed, training)
        return self.attach_mask(outputs, mask=padding_mask)

    def compute_output_shape(self, input_shape):
        """Returns the input's shape."""
        return input_shape

    def get_config(self):
        """Returns the constructor's arguments."""
        return {**super().get_config(), **block_config(self)}


def head_width(d_model, num_heads):
    """Returns `d_model / num_heads`, or raises `ValueError` when it is not whole."""
    if d_model is None or d_model % num_heads:
        raise ValueError(
            "`num_heads` must divide the width of the input (d_model). "
            f"Received: num_heads={num_heads}, d_model={d_model}"
        )
    return d_model // num_heads


def block_arguments(layer):
    """The constructor's arguments that encoder and decoder layers and stacks share."""
    return {
        "num_heads": layer.num_heads,
        "d_ff": layer.d_ff,
        "dropout": layer.dropout,
        "norm_first": layer.norm_first,
        "activation": layer.activation,
    }


def block_config(layer):
    """The same arguments as `get_config` saves them."""
    return {
        **block_arguments(layer),
        "activation": keras.activations.serialize(layer.activation),
    }
