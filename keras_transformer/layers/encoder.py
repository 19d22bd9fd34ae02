"""The encoder: a stack of encoder layers."""

from typing import NamedTuple

import keras

from keras_transformer.arguments import AttentionMask, PaddingMask, Shape, Tensor
from keras_transformer.layers.encoder_layer import EncoderLayer
from keras_transformer.layers.stack import Stack
from keras_transformer.masking import BlockMasks, one_mask


class EncoderStates(NamedTuple):
    """What `Encoder.inspect` returns."""

    outputs: Tensor  # (batch, length, d_model)
    hidden_states: list[Tensor]  # the output of each layer, before the final normalisation
    attention_weights: list[Tensor]  # of each layer, float32 (batch, heads, query, key)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(Stack):
    """Stacks encoder layers, with a final normalisation when they normalise first.

    `output = layer_N(... layer_1(inputs))`

    Args:
        num_layers: number of layers.
        num_heads, d_ff, dropout, norm_first, activation: as in `EncoderLayer`.
        remat: whether a training step keeps one tensor a layer and computes the rest again for
            the gradient: less memory, more time.
        **kwargs: its other options, and those of every Keras layer. One `position` serves all
            layers, so that a `RelativePositionBias` is shared by them.

    Shapes:
        inputs: (batch, length, d_model), embedded and with positions. padding_mask:
        (batch, length). attention_mask: (batch, query, key). Output: that of inputs.

    Returns:
        A tensor of the layer's compute dtype. `inspect` returns the hidden states and the
        attention weights of each layer too. In a functional model it needs a layer around it.

    Raises:
        ValueError: for a bad argument or a mask of floats.

    Masking: as `EncoderLayer`.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.1.

    Example:

    >>> import numpy as np
    >>> tuple(Encoder(num_layers=2, num_heads=2, d_ff=32)(np.zeros((1, 3, 8))).shape)
    (1, 3, 8)
    """

    def build(self, input_shape: Shape) -> None:
        """Builds the layers."""
        self.build_layers(EncoderLayer, input_shape)

    def call(
        self,
        inputs: Tensor,
        padding_mask: PaddingMask | None = None,
        attention_mask: AttentionMask | None = None,
        training: bool | None = None,
        *,
        mask: PaddingMask | None = None,
        inputs_mask: PaddingMask | None = None,
    ) -> Tensor:
        """Returns the memory: one vector for each position."""
        inputs, padding_mask = one_mask(inputs, padding_mask, mask, inputs_mask)
        masks = BlockMasks(padding_mask, attention_mask)
        return self.run(inputs, masks=masks, training=training)

    def inspect(
        self,
        inputs: Tensor,
        padding_mask: PaddingMask | None = None,
        attention_mask: AttentionMask | None = None,
        training: bool | None = False,
    ) -> EncoderStates:
        """Returns `EncoderStates`: what `call` returns, and what each layer does on the way."""
        (inputs,), (mask,) = self.read_inputs(inputs)
        inputs, padding_mask = one_mask(inputs, padding_mask, mask)
        masks = BlockMasks(padding_mask, attention_mask)
        outputs, states = self.run_inspected(inputs, masks=masks, training=training)
        return EncoderStates(outputs, *map(list, zip(*states, strict=True)))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the input's shape."""
        return input_shape
