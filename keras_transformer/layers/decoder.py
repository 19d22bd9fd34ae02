"""The decoder: a stack of decoder layers, run on whole targets or one position at a time."""

from typing import Any, NamedTuple

import keras

from keras_transformer.arguments import AttentionMask, BeamPaths, PaddingMask, Shape, Tensor
from keras_transformer.layers.decoder_layer import DecoderLayer
from keras_transformer.layers.stack import Stack
from keras_transformer.masking import BlockMasks, one_mask


class DecoderStates(NamedTuple):
    """What `Decoder.inspect` returns."""

    outputs: Tensor  # (batch, target, d_model)
    hidden_states: list[Tensor]  # the output of each layer, before the final normalisation
    self_attention_weights: list[Tensor]  # of each layer, float32 (batch, heads, target, target)
    # Of each layer, float32 (batch, heads, target, source); None without a memory.
    attention_weights: list[Tensor | None]


class DecoderStep(NamedTuple):
    """What `Decoder.step` returns of one position."""

    outputs: Tensor  # (rows, 1, d_model)
    caches: list[tuple[Tensor, Tensor]]  # of each layer, with this position
    # The last layer's over the memory, float32 (batch, heads, rows / batch, source), or None.
    attention_weights: Tensor | None


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(Stack):
    """Stacks decoder layers, with a final normalisation when they normalise first.

    `output = layer_N(... layer_1(inputs, memory), memory)`

    `start_cache`, `project_memory` and `step` decode one position at a time for a search, equal
    to `call` on the whole prefix.

    Args:
        num_layers: number of layers.
        num_heads, d_ff, dropout, norm_first, activation: as in `DecoderLayer`.
        remat: whether a training step keeps one tensor a layer and computes the rest again for
            the gradient: less memory, more time.
        **kwargs: its other options, and those of every Keras layer. One `position` serves all
            layers, so that a `RelativePositionBias` is shared by them.

    Shapes:
        inputs: (batch, target, d_model), embedded and with positions. memory:
        (batch, source, width). padding_mask: (batch, target). memory_padding_mask:
        (batch, source). attention_mask: (batch, target, target). memory_attention_mask:
        (batch, target, source). Output: that of inputs.

    Returns:
        A tensor of the layer's compute dtype. `inspect` returns the hidden states and the
        attention weights of each layer too. In a functional model it needs a layer around it.

    Raises:
        ValueError: for a bad argument or a mask of floats.

    Masking: as `DecoderLayer`.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.1.

    Example:

    >>> import numpy as np
    >>> decoder = Decoder(num_layers=2, num_heads=2, d_ff=32)
    >>> tuple(decoder(np.zeros((1, 3, 8)), memory=np.zeros((1, 5, 8))).shape)
    (1, 3, 8)
    """

    def build(self, inputs_shape: Shape, memory_shape: Shape | None = None) -> None:
        """Builds the layers."""
        self.build_layers(DecoderLayer, inputs_shape, memory_shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor | None = None,
        padding_mask: PaddingMask | None = None,
        memory_padding_mask: PaddingMask | None = None,
        attention_mask: AttentionMask | None = None,
        *,
        memory_attention_mask: AttentionMask | None = None,
        training: bool | None = None,
        mask: PaddingMask | None = None,
        inputs_mask: PaddingMask | None = None,
        memory_mask: PaddingMask | None = None,
    ) -> Tensor:
        """Returns one vector for each target position."""
        inputs, padding_mask = one_mask(inputs, padding_mask, mask, inputs_mask)
        memory, memory_padding_mask = one_mask(memory, memory_padding_mask, memory_mask)
        masks = BlockMasks(padding_mask, attention_mask, memory_padding_mask, memory_attention_mask)
        return self.run(inputs, memory, masks=masks, training=training)

    def inspect(
        self,
        inputs: Tensor,
        memory: Tensor | None = None,
        padding_mask: PaddingMask | None = None,
        memory_padding_mask: PaddingMask | None = None,
        attention_mask: AttentionMask | None = None,
        *,
        memory_attention_mask: AttentionMask | None = None,
        training: bool | None = False,
    ) -> DecoderStates:
        """Returns `DecoderStates`: what `call` returns, and what each layer does on the way."""
        (inputs, memory), (mask, memory_mask) = self.read_inputs(inputs, memory)
        inputs, padding_mask = one_mask(inputs, padding_mask, mask)
        memory, memory_padding_mask = one_mask(memory, memory_padding_mask, memory_mask)
        masks = BlockMasks(padding_mask, attention_mask, memory_padding_mask, memory_attention_mask)
        outputs, states = self.run_inspected(inputs, memory, masks=masks, training=training)
        return DecoderStates(outputs, *map(list, zip(*states, strict=True)))

    def project_memory(
        self, memory: Tensor, memory_padding_mask: PaddingMask | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """Returns each layer's keys and values of the memory."""
        return [layer.project_memory(memory, memory_padding_mask) for layer in self.layers]

    def start_cache(
        self, batch_size: int, max_length: int, beam_size: int = 1
    ) -> list[tuple[Tensor, Tensor]]:
        """Returns each layer's empty cache."""
        return [layer.start_cache(batch_size, max_length, beam_size) for layer in self.layers]

    def step(
        self,
        inputs: Tensor,
        index: Tensor,
        caches: list[tuple[Tensor, Tensor]],
        projected_memory: list[tuple[Tensor, Tensor]] | None = None,
        *,
        memory_padding_mask: PaddingMask | None = None,
        paths: BeamPaths | None = None,
    ) -> DecoderStep:
        """Decodes position `index`; see `DecoderLayer.step`."""
        hidden, new_caches, weights = inputs, [], None
        memories: list[Any] = projected_memory or [None] * len(self.layers)
        for layer, cache, projected in zip(self.layers, caches, memories, strict=True):
            hidden, cache, weights = layer.step(
                hidden,
                index,
                cache,
                projected,
                memory_padding_mask=memory_padding_mask,
                paths=paths,
            )
            new_caches.append(cache)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return DecoderStep(hidden, new_caches, weights)

    def compute_output_shape(self, inputs_shape: Shape, memory_shape: Shape | None = None) -> Shape:
        """Returns the shape of `inputs`."""
        return inputs_shape
