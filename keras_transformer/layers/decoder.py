"""The decoder: a stack of decoder layers, run on whole targets or one position at a time."""

import keras

from keras_transformer import arguments
from keras_transformer.layers.decoder_layer import DecoderLayer, memory_weights_spec
from keras_transformer.layers.encoder_layer import block_arguments, block_config
from keras_transformer.layers.implicit_masks import AttachMask
from keras_transformer.layers.residual import NORM_EPSILON
from keras_transformer.masking import combine_masks


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(keras.layers.Layer):
    """Stacks decoder layers, with a final normalisation when they normalise first.

    `output = layer_N(... layer_1(inputs, memory), memory)`

    `start_cache`, `project_memory` and `step` decode one position at a time for a search, equal
    to `call` on the whole prefix.

    Args:
        num_layers: number of layers.
        num_heads, d_ff, dropout, norm_first, activation: as in `DecoderLayer`.

    Shapes:
        inputs: (batch, target, d_model), embedded and with positions. memory:
        (batch, source, width). padding_mask: (batch, target). memory_padding_mask:
        (batch, source). Output: that of inputs.

    Returns:
        A tensor of the layer's compute dtype; with `return_attention_scores=True` the pair of it
        and a list of each layer's weights over the memory, (batch, heads, target, source).

    Raises:
        ValueError: for a bad argument or a mask that is not boolean.

    Masking: as `DecoderLayer`.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.1.

    Example:

    >>> import numpy as np
    >>> decoder = Decoder(num_layers=2, num_heads=2, d_ff=32)
    >>> tuple(decoder(np.zeros((1, 3, 8)), memory=np.zeros((1, 5, 8))).shape)
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

    def build(self, inputs_shape, memory_shape=None):
        """Builds the layers."""
        dtype = self.dtype_policy
        self.layers = [
            DecoderLayer(**block_arguments(self), dtype=dtype, name=f"layer_{index}")
            for index in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(inputs_shape, memory_shape)
        self.final_norm = None
        if self.norm_first:
            self.final_norm = keras.layers.LayerNormalization(
                epsilon=NORM_EPSILON, dtype=dtype, name="final_norm"
            )
            self.final_norm.build(inputs_shape)
        self.attach_mask = AttachMask(dtype=dtype, name="attach_mask")
        self.built = True

    def call(
        self,
        inputs,
        memory=None,
        padding_mask=None,
        memory_padding_mask=None,
        training=None,
        return_attention_scores=False,
        mask=None,
        inputs_mask=None,
        memory_mask=None,
    ):
        """Returns one vector a target position, and each layer's weights over memory if asked."""
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        memory_padding_mask = combine_masks(memory_padding_mask, memory_mask)
        hidden, layer_weights = inputs, []
        for layer in self.layers:
            outputs = layer(
                hidden,
                memory=memory,
                padding_mask=padding_mask,
                memory_padding_mask=memory_padding_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            hidden, weights = outputs if return_attention_scores else (outputs, None)
            layer_weights.append(weights)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        outputs = self.attach_mask(hidden, mask=padding_mask)
        return (outputs, layer_weights) if return_attention_scores else outputs

    def project_memory(self, memory, memory_padding_mask=None):
        """Returns each layer's keys and values of the memory."""
        return [layer.project_memory(memory, memory_padding_mask) for layer in self.layers]

    def start_cache(self, batch_size, max_length):
        """Returns each layer's empty cache."""
        return [layer.start_cache(batch_size, max_length) for layer in self.layers]

    def step(self, inputs, index, caches, projected_memory=None, memory_mask=None):
        """Decodes position `index`; see `DecoderLayer.step`. Returns output and new caches."""
        projected_memory = projected_memory or [None] * len(self.layers)
        hidden, new_caches = inputs, []
        for layer, cache, projected in zip(self.layers, caches, projected_memory, strict=True):
            hidden, cache = layer.step(hidden, index, cache, projected, memory_mask)
            new_caches.append(cache)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return hidden, new_caches

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        """Returns the shape of `inputs`."""
        return inputs_shape

    def compute_output_spec(
        self, inputs, memory=None, return_attention_scores=False, **other_arguments
    ):
        """Returns symbolic outputs, the weights over the memory float32."""
        outputs = keras.KerasTensor(inputs.shape, self.compute_dtype)
        if not return_attention_scores:
            return outputs
        weights = memory_weights_spec(self.num_heads, inputs, memory)
        return outputs, [weights] * self.num_layers

    def get_config(self):
        """Returns the constructor's arguments."""
        return {**super().get_config(), "num_layers": self.num_layers, **block_config(self)}
