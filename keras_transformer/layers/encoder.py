"""The encoder: a stack of encoder layers."""

import keras

from keras_transformer import arguments
from keras_transformer.layers.block import Block, attention_weights_spec
from keras_transformer.layers.encoder_layer import EncoderLayer
from keras_transformer.layers.rematerialization import rematerialized
from keras_transformer.masking import combine_masks


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(Block):
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
        A tensor of the layer's compute dtype. `return_attention_scores=True` appends the list of
        each layer's weights, (batch, heads, query, key), and `return_hidden_states=True` the list
        of each layer's output before the final normalisation.

    Raises:
        ValueError: for a bad argument or a mask of floats.

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
        *,
        remat=False,
        **kwargs,
    ):
        super().__init__(num_heads, d_ff, dropout, norm_first, activation, **kwargs)
        self.num_layers = arguments.positive_integer("num_layers", num_layers)
        self.remat = arguments.boolean("remat", remat)

    def build(self, input_shape):
        """Builds the layers."""
        self.layers = [
            EncoderLayer(**self.options(index), dtype=self.dtype_policy, name=f"layer_{index}")
            for index in range(self.num_layers)
        ]
        for layer in self.layers:
            layer.build(input_shape)
        self.final_norm = self.final_norm_layer()
        if self.final_norm is not None:
            self.final_norm.build(input_shape)
        self.attach_mask = self.attach_mask_layer()
        self.built = True
        self.adopt()

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_hidden_states=False,
        return_attention_scores=False,
        mask=None,
        inputs_mask=None,
    ):
        """Returns the memory, one vector a position, and what else is asked of each layer."""
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        hidden, layer_weights, hidden_states = inputs, [], []
        options = {
            "padding_mask": padding_mask,
            "attention_mask": attention_mask,
            "return_attention_scores": return_attention_scores,
            "training": training,
        }
        for layer in self.layers:
            if self.remat and training and not return_attention_scores:
                outputs = rematerialized(layer, hidden, **options)
            else:
                outputs = layer(hidden, **options)
            hidden, weights = outputs if return_attention_scores else (outputs, None)
            layer_weights.append(weights)
            hidden_states.append(hidden)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        outputs = self.attach_mask(hidden, mask=padding_mask)
        extra = [layer_weights] * return_attention_scores + [hidden_states] * return_hidden_states
        return (outputs, *extra) if extra else outputs

    def compute_output_shape(self, input_shape):
        """Returns the input's shape."""
        return input_shape

    def compute_output_spec(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_hidden_states=False,
        return_attention_scores=False,
        **implicit_masks,
    ):
        """Returns symbolic outputs, the attention weights float32."""
        outputs, extra = keras.KerasTensor(inputs.shape, self.compute_dtype), []
        if return_attention_scores:
            weights = attention_weights_spec(self.num_heads, inputs, inputs)
            extra.append([weights] * self.num_layers)
        if return_hidden_states:
            extra.append([outputs] * self.num_layers)
        return (outputs, *extra) if extra else outputs

    def get_config(self):
        """Returns the constructor's arguments."""
        return {**super().get_config(), "num_layers": self.num_layers, "remat": self.remat}
