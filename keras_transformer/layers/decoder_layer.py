"""One layer of the decoder: causal self-attention, attention to the memory, feed-forward."""

from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.arguments import AttentionMask, BeamPaths, PaddingMask, Shape, Tensor
from keras_transformer.layers.attention import visible_slots
from keras_transformer.layers.block import Block, checked_vectors
from keras_transformer.masking import BlockMasks, boolean_mask, one_mask, zero_masked


class DecoderLayerStates(NamedTuple):
    """What `DecoderLayer.inspect` returns."""

    outputs: Tensor  # (batch, target, d_model)
    self_attention_weights: Tensor | None  # float32 (batch, heads, target, target)
    attention_weights: Tensor | None  # float32 (batch, heads, target, source); None without memory


class DecoderLayerStep(NamedTuple):
    """What `DecoderLayer.step` returns of one position."""

    outputs: Tensor  # (rows, 1, d_model)
    cache: tuple[Tensor, Tensor]  # keys and values with this position, as from `start_cache`
    # Over the memory, float32 (batch, heads, rows / batch, source); None without one.
    attention_weights: Tensor | None


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderLayer(Block):
    """Lets each position attend to those before it and to the memory, then transforms it.

    `y = norm(x + causal_attention(x, x))`, `z = norm(y + attention(y, memory))`,
    `output = norm(z + FFN(z))`; with `norm_first` the normalisation moves before each sub-layer.
    Without a memory the middle sub-layer is absent: a decoder-only layer.

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
        num_key_value_heads, window: as in `MultiHeadAttention`; the window is for
            self-attention.
        position: how positions are told apart: `PositionalEncoding()` or
            `LearnedPositionalEncoding(max_length)`, added to the input (in a stack to that of
            the first layer), or one for self-attention, as in `MultiHeadAttention`.

    Shapes:
        inputs: (batch, target, d_model). memory: (batch, source, width). padding_mask:
        (batch, target). memory_padding_mask: (batch, source). attention_mask:
        (batch, target, target). memory_attention_mask: (batch, target, source). Output:
        (batch, target, d_model).

    Returns:
        A tensor of the layer's compute dtype. `inspect` returns the attention weights too.

    Raises:
        ValueError: for a bad argument, a d_model that num_heads does not divide, a mask of
            floats, or a memory given in some calls only.

    Masking: always causal. Combines each mask given with Keras's implicit one of the same tensor,
        and sets the mask of its output. Keras fills in `mask`, `inputs_mask` and `memory_mask`.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.1.

    Example:

    >>> import numpy as np
    >>> layer = DecoderLayer(num_heads=2, d_ff=32)
    >>> tuple(layer(np.zeros((1, 3, 8)), memory=np.zeros((1, 5, 8))).shape)
    (1, 3, 8)
    """

    def build(self, inputs_shape: Shape, memory_shape: Shape | None = None) -> None:
        """Builds the sub-layers; those that read the memory only when there is one."""
        d_model = checked_vectors("inputs", inputs_shape)[-1]
        if memory_shape is not None:
            checked_vectors("memory", memory_shape)
        if self.added_position is not None:
            self.added_position.build(inputs_shape)
        self.self_attention = self.self_attention_layer("self_attention", d_model)
        self.self_attention.build(inputs_shape, inputs_shape)
        self.self_attention_residual = self.residual_layer("self_attention_residual")
        self.self_attention_residual.build(inputs_shape)
        self.reads_memory = memory_shape is not None
        if memory_shape is not None:
            self.cross_attention = self.cross_attention_layer("cross_attention", d_model)
            self.cross_attention.build(inputs_shape, memory_shape)
            self.cross_attention_residual = self.residual_layer("cross_attention_residual")
            self.cross_attention_residual.build(inputs_shape)
        self.feed_forward = self.feed_forward_layer()
        self.feed_forward.build(inputs_shape)
        self.feed_forward_residual = self.residual_layer("feed_forward_residual")
        self.feed_forward_residual.build(inputs_shape)
        self.attach_mask = self.attach_mask_layer()
        self.built = True
        self.adopt()

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
        """Returns the transformed positions."""
        inputs, padding_mask = one_mask(inputs, padding_mask, mask, inputs_mask)
        memory, memory_padding_mask = one_mask(memory, memory_padding_mask, memory_mask)
        masks = BlockMasks(padding_mask, attention_mask, memory_padding_mask, memory_attention_mask)
        states = self.transform(inputs, memory, masks=masks, training=training)
        return self.attach_mask(states.outputs, mask=masks.padding_mask)

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
    ) -> DecoderLayerStates:
        """Returns `DecoderLayerStates`: what `call` returns, and the attention weights."""
        (inputs, memory), (mask, memory_mask) = self.read_inputs(inputs, memory)
        inputs, padding_mask = one_mask(inputs, padding_mask, mask)
        memory, memory_padding_mask = one_mask(memory, memory_padding_mask, memory_mask)
        masks = BlockMasks(padding_mask, attention_mask, memory_padding_mask, memory_attention_mask)
        states = self.transform(inputs, memory, masks=masks, training=training, with_weights=True)
        return states._replace(outputs=self.attach_mask(states.outputs, mask=masks.padding_mask))

    def transform(
        self,
        inputs: Tensor,
        memory: Tensor | None = None,
        *,
        masks: BlockMasks,
        training: bool | None,
        with_weights: bool = False,
    ) -> DecoderLayerStates:
        """As `call`, of tensors from `one_mask`; attaches no mask, and gives weights when asked."""
        self._check_memory(memory)
        options = {"return_attention_scores": with_weights, "training": training}
        if self.added_position is not None:
            inputs = self.added_position(inputs, padding_mask=masks.padding_mask, training=training)
        normed = self.self_attention_residual.enter(inputs)
        attended = self.self_attention(
            normed,
            normed,
            value_mask=masks.padding_mask,
            attention_mask=masks.attention_mask,
            use_causal_mask=True,
            **options,
        )
        attended, self_weights = attended if with_weights else (attended, None)
        hidden = self.self_attention_residual.leave(inputs, attended, training)

        weights = None
        if memory is not None:
            attended = self.cross_attention(
                self.cross_attention_residual.enter(hidden),
                memory,
                value_mask=masks.memory_padding_mask,
                attention_mask=masks.memory_attention_mask,
                **options,
            )
            attended, weights = attended if with_weights else (attended, None)
            hidden = self.cross_attention_residual.leave(hidden, attended, training)

        normed = self.feed_forward_residual.enter(hidden)
        transformed = self.feed_forward(normed, training=training)
        outputs = self.feed_forward_residual.leave(hidden, transformed, training)
        return DecoderLayerStates(outputs, self_weights, weights)

    def _check_memory(self, memory: Tensor | None) -> None:
        if self.reads_memory != (memory is not None):
            built = "with" if self.reads_memory else "without"
            raise ValueError(
                f"`memory` must be given in every call or in none; this layer was built {built} "
                f"one. Received: memory={None if memory is None else tuple(memory.shape)}"
            )

    def project_memory(
        self, memory: Tensor, memory_padding_mask: PaddingMask | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the memory's keys and values, which every step of a search reads unchanged.

        Both are (batch, key and value heads, source, width).
        """
        memory = zero_masked(memory, memory_padding_mask)
        return tuple(map(heads_first, self.cross_attention.project_key_value(memory)))

    def start_cache(
        self, batch_size: int, max_length: int, beam_size: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Returns empty self-attention keys and values.

        Both are (batch, key and value heads, max_length * beam_size, width): the slots of the
        beams lie side by side at each position.
        """
        attention = self.self_attention
        heads, slots = attention.num_key_value_heads, max_length * beam_size
        return tuple(
            ops.zeros((batch_size, heads, slots, width), self.compute_dtype)
            for width in (attention.key_dim, attention.value_dim)
        )

    def step(
        self,
        inputs: Tensor,
        index: Tensor,
        cache: tuple[Tensor, Tensor],
        projected_memory: tuple[Tensor, Tensor] | None = None,
        *,
        memory_padding_mask: PaddingMask | None = None,
        paths: BeamPaths | None = None,
    ) -> DecoderLayerStep:
        """Decodes position `index` alone, equal to `call` on the whole prefix.

        Args:
            inputs: (rows, 1, d_model), where rows is batch or batch * beam, beams adjacent.
            index: integer tensor, the position.
            cache: from `start_cache`, with the positions before.
            projected_memory: from `project_memory`, or None.
            memory_padding_mask: (batch, source) boolean, or None.
            paths: (batch, beam, max_length or more), the slot that holds each position of each
                beam. None when the cache has a row for each row of inputs.

        Returns:
            The output of the position, the cache with it, and the weights over the memory.
        """
        inputs = ops.cast(inputs, self.compute_dtype)  # a quantized embedding's are float32
        if self.added_position is not None:
            positions = ops.broadcast_to(index, ops.shape(inputs)[:2])
            inputs = self.added_position(inputs, positions=positions, training=False)
        normed = self.self_attention_residual.enter(inputs)
        keys, values = self.self_attention.step_key_value(normed, index)
        batch, _, num_slots, _ = ops.shape(cache[0])
        beams = 1 if paths is None else paths.shape[1]
        cache = tuple(
            ops.slice_update(
                slots,
                (0, 0, index * beams, 0),
                # -> (batch, beam, key and value heads, width), then the heads first
                heads_first(ops.reshape(new, (batch, beams, *new.shape[2:]))),
            )
            for slots, new in zip(cache, (keys, values), strict=True)
        )
        attended, _ = self.self_attention.attend_cached(
            # -> (batch, beam, d_model)
            ops.reshape(normed, (batch, beams, normed.shape[-1])),
            *cache,
            visible_slots(index, num_slots, self.window, paths),
            index,
            cache_length=index + 1,
        )
        attended = ops.reshape(attended, ops.shape(inputs))  # -> (rows, 1, d_model)
        hidden = self.self_attention_residual.leave(inputs, attended)
        weights = None
        if projected_memory is not None:
            hidden, weights = self._step_memory(hidden, projected_memory, memory_padding_mask)
        transformed = self.feed_forward.step(self.feed_forward_residual.enter(hidden))
        outputs = self.feed_forward_residual.leave(hidden, transformed)
        return DecoderLayerStep(outputs, cache, weights)

    def _step_memory(
        self,
        hidden: Tensor,
        projected_memory: tuple[Tensor, Tensor],
        memory_padding_mask: PaddingMask | None,
    ) -> tuple[Tensor, Tensor]:
        # The beams of a sentence share its memory: they become queries of one row.
        keys, values = projected_memory
        query = self.cross_attention_residual.enter(hidden)
        batch = ops.shape(keys)[0]
        sentences = ops.maximum(batch, 1) if keys.shape[0] is None else max(batch, 1)
        beams = ops.shape(hidden)[0] // sentences
        # -> (batch, beam, d_model)
        query = ops.reshape(query, (batch, beams, hidden.shape[-1]))
        mask = ops.ones((1, 1), "bool")
        if memory_padding_mask is not None:
            mask = boolean_mask("memory_padding_mask", memory_padding_mask)
        attended, weights = self.cross_attention.attend_cached(
            query, keys, values, mask[:, None, None, :]
        )
        attended = ops.reshape(attended, ops.shape(hidden))  # -> (rows, 1, d_model)
        return self.cross_attention_residual.leave(hidden, attended), weights

    def compute_output_shape(self, inputs_shape: Shape, memory_shape: Shape | None = None) -> Shape:
        """Returns the shape of `inputs`."""
        return inputs_shape


def heads_first(projected: Tensor) -> Tensor:
    """(batch, length, heads, width) as (batch, heads, length, width)."""
    return ops.transpose(projected, (0, 2, 1, 3))
