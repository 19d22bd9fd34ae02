"""The encoder: a stack of encoder layers."""

import keras

from keras_transformer import arguments
from keras_transformer.layers.encoder_layer import (
    EncoderLayer,
    block_arguments,
    block_config,
)
from keras_transformer.layers.implicit_masks import AttachMask
from keras_transformer.layers.residual import NORM_EPSILON
from keras_transformer.masking import combine_masks


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(keras.layers.Layer):
    """Stacks encoder layers, with a final normalisation when they normalise first.

    `output = layer_N(... layer_1(inputs))`

    Args:
        num_layers: number of layers.
        num_heads, d_ff, dropout, norm_first, activation: as in `EncoderLayer`.

    Shapes:
        inputs: (batch, length, d_model), embedded and with positions. padding_mask:
        (batch, length). attention_mask: (batch, query, key). Output: that of inputs.

    Returns:
        A tensor of the layer's compute dtype.

    Raises:
        ValueError: for a bad argument or a mask that is not boolean.

    Masking: as `EncoderLayer`.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.1.

    Example:

    >>> import numpy as np
    >>> tuple(Encoder(num_layers=2, num_heads=2, d_ff=32)(np.zeros((1, 3, 8))).shape)
    (1, 3, 8)
    """

    def __init__(
        self,
        num_layers,
        num_heads,
        d_ff,
        dropout=0.1,
        norm_first=False,
        activation="relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_layers = arguments.positive_integer("num_layers", num_layers)
        self.num_heads = arguments.positive_integer("num_heads", num_heads)
        self.d_ff = arguments.positive_integer("d_ff", d_ff)
        self.dropout = arguments.rate("dropout", dropout)
        self.norm_first = arguments.boolean("norm_first", norm_first)
        self.activation = keras.activations.get(activation)
        self.supports_masking = True

    def build(self, input_shape):
        """Builds the layers."""
        dtype = self.dtype_policy
        self.layers = [
            EncoderLayer(**block_arguments(self), dtype=dtype, name=f"layer_{index}")
            for index in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(input_shape)
        self.final_norm = None
        if self.norm_first:
            self.final_norm = keras.layers.LayerNormalization(
                epsilon=NORM_EPSILON, dtype=dtype, name="final_norm"
            )
            self.final_norm.build(input_shape)
        self.attach_mask = AttachMask(dtype=dtype, name="attach_mask")
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
        """Returns the memory: one vector a position."""
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        hidden = inputs
        for layer in self.layers:
            hidden = layer(
                hidden, padding_mask=padding_mask, attention_mask=attention_mask, training=training
            )
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return self.attach_mask(hidden, mask=padding_mask)

    def compute_output_shape(self, input_shape):
        """Returns the input's shape."""
        return input_shape

    def get_config(self):
        """Returns the constructor's arguments."""
        return {**super().get_config(), "num_layers": self.num_layers, **block_config(self)}
