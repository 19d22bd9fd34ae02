"""The position-wise feed-forward network."""

import keras

from keras_transformer import arguments


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(keras.layers.Layer):
    """Applies the same two-layer network to each position.

    `FFN(x) = activation(x W1 + b1) W2 + b2`

    Args:
        d_ff: inner width; the output is as wide as the input.
        activation: any Keras activation; the paper's is "relu".
        dropout: rate of the dropout on the inner activations (the paper has none there).

    Shapes:
        inputs: (batch, length, d_model). Output: the same.

    Returns:
        A tensor of the layer's compute dtype.

    Raises:
        ValueError: for a bad argument.

    Masking: positions do not see one another; passes the mask of its input on.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.3, equation 2.

    Example:

    >>> import numpy as np
    >>> tuple(FeedForward(d_ff=32)(np.zeros((2, 3, 8))).shape)
    (2, 3, 8)
    """

    def __init__(self, d_ff, activation="relu", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.d_ff = arguments.positive_integer("d_ff", d_ff)
        self.activation = keras.activations.get(activation)
        self.dropout = arguments.rate("dropout", dropout)
        self.supports_masking = True

    def build(self, input_shape):
        """Builds both projections."""
        dtype = self.dtype_policy
        inner_shape = (*input_shape[:-1], self.d_ff)
        self.inner = keras.layers.Dense(
            self.d_ff, activation=self.activation, dtype=dtype, name="inner"
        )
        self.outer = keras.layers.Dense(input_shape[-1], dtype=dtype, name="outer")
        self.dropout_layer = keras.layers.Dropout(self.dropout, dtype=dtype)
        self.inner.build(input_shape)
        self.dropout_layer.build(inner_shape)
        self.outer.build(inner_shape)
        self.built = True

    def call(self, inputs, training=None):
        """Returns the network's output at each position."""
        return self.outer(self.dropout_layer(self.inner(inputs), training=training))

    def compute_output_shape(self, input_shape):
        """Returns the input's shape."""
        return input_shape

    def get_config(self):
        """Returns the constructor's arguments."""
        own = {
            "d_ff": self.d_ff,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
        }
        return {**super().get_config(), **own}
