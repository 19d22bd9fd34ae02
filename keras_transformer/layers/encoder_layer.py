"""One layer of the encoder: self-attention, then a feed-forward network."""

from typing import NamedTuple

import keras

from keras_transformer.arguments import AttentionMask, PaddingMask, Shape, Tensor
from keras_transformer.layers.block import Block, checked_vectors
from keras_transformer.masking import BlockMasks, one_mask


class EncoderLayerStates(NamedTuple):
    """What `EncoderLayer.inspect` returns."""

    outputs: Tensor  # (batch, length, d_model)
    attention_weights: Tensor | None  # float32 (batch, heads, query, key)


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderLayer(Block):
    """Lets positions attend to one another, then transforms each of them.

    `y = norm(x + attention(x, x))`, `output = norm(y + FFN(y))`; with `norm_first`
    `y = x + attention(norm(x))`, `output = y + FFN(norm(y))`

    Args:
        num_heads: number of heads; each is `d_model / num_heads` wide.
        d_ff: inner width of the feed-forward network.
        dropout: rate of the dropout on each sub-layer's output.
        norm_first: normalise before each sub-layer instead of after it.
        activation: of the feed-forward network, as in `FeedForward`.
        attention_dropout: rate of the dropout on the attention weights.
        feed_forward_dropout: rate of the dropout inside the feed-forward network.
        rms_norm: normalise by the root mean square alone (Zhang and Sennrich 2019).
        norm_epsilon: added to the variance inside the root, above 0.
        num_key_value_heads, window: as in `MultiHeadAttention`.
        position: how positions are told apart: `PositionalEncoding()` or
            `LearnedPositionalEncoding(max_length)`, added to the input (in a stack to that of
            the first layer), or one for self-attention, as in `MultiHeadAttention`.

    Shapes:
        inputs: (batch, length, d_model). padding_mask: (batch, length). attention_mask:
        (batch, query, key). Output: (batch, length, d_model).

    Returns:
        A tensor of the layer's compute dtype. `inspect` returns the attention weights too.

    Raises:
        ValueError: for a bad argument, a d_model that num_heads does not divide, or a mask of
            floats.

    Masking: combines `padding_mask` with Keras's implicit mask (`mask`, `inputs_mask`, which
    Keras fills in), and sets the result as the mask of its output.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.1.

    Example:

    >>> import numpy as np
    >>> layer = EncoderLayer(num_heads=2, d_ff=32)
    >>> tuple(layer(np.zeros((1, 3, 8)), padding_mask=np.array([[True, True, False]])).shape)
    (1, 3, 8)
    """

    def build(self, input_shape: Shape) -> None:
        """Builds the sub-layers for the input's width."""
        checked_vectors("inputs", input_shape)
        if self.added_position is not None:
            self.added_position.build(input_shape)
        self.attention = self.self_attention_layer("attention", input_shape[-1])
        self.attention_residual = self.residual_layer("attention_residual")
        self.feed_forward = self.feed_forward_layer()
        self.feed_forward_residual = self.residual_layer("feed_forward_residual")
        self.attach_mask = self.attach_mask_layer()
        self.attention.build(input_shape, input_shape)
        for layer in (self.attention_residual, self.feed_forward, self.feed_forward_residual):
            layer.build(input_shape)
        self.built = True
        self.adopt()

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
        """Returns the transformed positions."""
        inputs, padding_mask = one_mask(inputs, padding_mask, mask, inputs_mask)
        masks = BlockMasks(padding_mask, attention_mask)
        states = self.transform(inputs, masks=masks, training=training)
        return self.attach_mask(states.outputs, mask=masks.padding_mask)

    def inspect(
        self,
        inputs: Tensor,
        padding_mask: PaddingMask | None = None,
        attention_mask: AttentionMask | None = None,
        training: bool | None = False,
    ) -> EncoderLayerStates:
        """Returns `EncoderLayerStates`: what `call` returns, and the attention weights."""
        (inputs,), (mask,) = self.read_inputs(inputs)
        inputs, padding_mask = one_mask(inputs, padding_mask, mask)
        masks = BlockMasks(padding_mask, attention_mask)
        states = self.transform(inputs, masks=masks, training=training, with_weights=True)
        return states._replace(outputs=self.attach_mask(states.outputs, mask=masks.padding_mask))

    def transform(
        self,
        inputs: Tensor,
        *,
        masks: BlockMasks,
        training: bool | None,
        with_weights: bool = False,
    ) -> EncoderLayerStates:
        """As `call`, of inputs from `one_mask`; attaches no mask, and gives weights when asked."""
        if self.added_position is not None:
            inputs = self.added_position(inputs, padding_mask=masks.padding_mask, training=training)
        normed = self.attention_residual.enter(inputs)
        attended = self.attention(
            normed,
            normed,
            value_mask=masks.padding_mask,
            attention_mask=masks.attention_mask,
            return_attention_scores=with_weights,
            training=training,
        )
        attended, weights = attended if with_weights else (attended, None)
        hidden = self.attention_residual.leave(inputs, attended, training)

        transformed = self.feed_forward(self.feed_forward_residual.enter(hidden), training=training)
        outputs = self.feed_forward_residual.leave(hidden, transformed, training)
        return EncoderLayerStates(outputs, weights)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the input's shape."""
        return input_shape
