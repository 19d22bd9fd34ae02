"""The decoder: a stack of decoder layers, run on whole targets or one position at a time."""

import keras

from keras_transformer import arguments
from keras_transformer.layers.block import Block, attention_weights_spec
from keras_transformer.layers.decoder_layer import DecoderLayer
from keras_transformer.layers.rematerialization import rematerialized
from keras_transformer.masking import combine_masks


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(Block):
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
        A tensor of the layer's compute dtype, then what is asked for, a list of each layer's:
        with `return_attention_scores=True` the weights over the memory,
        (batch, heads, target, source), with `return_self_attention_scores=True` those over the
        input, with `return_hidden_states=True` the outputs before the final normalisation.

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

    def __init__(
        self,
        num_layers,
        num_heads,
        d_ff,
        dropout=0.1,
        norm_first=False,
        activation="relu",
        *,
        remat=False,
        **kwargs,
    ):
        super().__init__(num_heads, d_ff, dropout, norm_first, activation, **kwargs)
        self.num_layers = arguments.positive_integer("num_layers", num_layers)
        self.remat = arguments.boolean("remat", remat)

    def build(self, inputs_shape, memory_shape=None):
        """Builds the layers."""
        self.layers = [
            DecoderLayer(**self.options(index), dtype=self.dtype_policy, name=f"layer_{index}")
            for index in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(inputs_shape, memory_shape)
        self.final_norm = self.final_norm_layer()
        if self.final_norm is not None:
            self.final_norm.build(inputs_shape)
        self.attach_mask = self.attach_mask_layer()
        self.built = True
        self.adopt()

    def call(
        self,
        inputs,
        memory=None,
        padding_mask=None,
        memory_padding_mask=None,
        attention_mask=None,
        memory_attention_mask=None,
        training=None,
        return_attention_scores=False,
        return_hidden_states=False,
        return_self_attention_scores=False,
        mask=None,
        inputs_mask=None,
        memory_mask=None,
    ):
        """Returns one vector a target position, and what else is asked of each layer."""
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        memory_padding_mask = combine_masks(memory_padding_mask, memory_mask)
        hidden, weights, hidden_states = inputs, [], []
        with_weights = return_attention_scores or return_self_attention_scores
        options = {
            "padding_mask": padding_mask,
            "memory_padding_mask": memory_padding_mask,
            "attention_mask": attention_mask,
            "memory_attention_mask": memory_attention_mask,
            "return_attention_scores": return_attention_scores,
            "return_self_attention_scores": return_self_attention_scores,
            "training": training,
        }
        for layer in self.layers:
            if self.remat and training and not with_weights:
                outputs = rematerialized(layer, hidden, memory, **options)
            else:
                outputs = layer(hidden, memory=memory, **options)
            hidden, *own = outputs if with_weights else [outputs]
            weights.append(own)
            hidden_states.append(hidden)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        outputs = self.attach_mask(hidden, mask=padding_mask)
        extra = [list(kind) for kind in zip(*weights, strict=True)]  # the layers of each kind
        extra += [hidden_states] * return_hidden_states
        return (outputs, *extra) if extra else outputs

    def project_memory(self, memory, memory_padding_mask=None):
        """Returns each layer's keys and values of the memory."""
        return [layer.project_memory(memory, memory_padding_mask) for layer in self.layers]

    def start_cache(self, batch_size, max_length, beam_size=1):
        """Returns each layer's empty cache."""
        return [layer.start_cache(batch_size, max_length, beam_size) for layer in self.layers]

    def step(self, inputs, index, caches, projected_memory=None, memory_mask=None, paths=None):
        """Decodes position `index`; see `DecoderLayer.step`.

        Returns the output, the new caches, and the last layer's weights over the memory.
        """
        projected_memory = projected_memory or [None] * len(self.layers)
        hidden, new_caches, weights = inputs, [], None
        for layer, cache, projected in zip(self.layers, caches, projected_memory, strict=True):
            hidden, cache, weights = layer.step(hidden, index, cache, projected, memory_mask, paths)
            new_caches.append(cache)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        return hidden, new_caches, weights

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        """Returns the shape of `inputs`."""
        return inputs_shape

    def compute_output_spec(
        self,
        inputs,
        memory=None,
        padding_mask=None,
        memory_padding_mask=None,
        attention_mask=None,
        memory_attention_mask=None,
        training=None,
        return_attention_scores=False,
        return_hidden_states=False,
        return_self_attention_scores=False,
        **implicit_masks,
    ):
        """Returns symbolic outputs, the weights float32."""
        outputs = keras.KerasTensor(inputs.shape, self.compute_dtype)
        keys = [memory] * return_attention_scores + [inputs] * return_self_attention_scores
        kinds = [attention_weights_spec(self.num_heads, inputs, key) for key in keys]
        kinds += [outputs] * return_hidden_states
        extra = [[kind] * self.num_layers for kind in kinds]
        return (outputs, *extra) if extra else outputs

    def get_config(self):
        """Returns the constructor's arguments."""
        return {**super().get_config(), "num_layers": self.num_layers, "remat": self.remat}
