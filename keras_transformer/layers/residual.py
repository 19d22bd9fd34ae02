"""The residual connection around a sub-layer, with its normalisation before or after."""

from typing import Any

import keras

from keras_transformer.arguments import Shape, Tensor
from keras_transformer.layers.composite import Composite
from keras_transformer.layers.dropout import Dropout

NORM_EPSILON = 1e-6


def normalization(
    rms_norm: bool, epsilon: float = NORM_EPSILON, **kwargs: Any
) -> keras.layers.Layer:
    """A layer normalisation, or with `rms_norm` one by the root mean square alone."""
    kind = keras.layers.RMSNormalization if rms_norm else keras.layers.LayerNormalization
    norm = kind(epsilon=epsilon, **kwargs)
    norm.supports_masking = True  # Keras's RMSNormalization forgets to say so
    return norm


class Residual(Composite):
    """Adds a sub-layer's output to its input and normalises, after (paper) or before it.

    Post-norm: `norm(x + dropout(sublayer(x)))`. Pre-norm: `x + dropout(sublayer(norm(x)))`.

    The owner computes the sub-layer between `enter` and `leave`. So sub-layers keep their own
    arguments, and one cached decoding step can use the same connection.
    """

    def __init__(
        self,
        dropout: float,
        norm_first: bool,
        rms_norm: bool = False,
        norm_epsilon: float = NORM_EPSILON,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.norm_first = norm_first
        self.norm = normalization(rms_norm, norm_epsilon, dtype=self.dtype_policy, name="norm")
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.adopt()

    def build(self, input_shape: Shape) -> None:
        """Builds the normalisation."""
        self.norm.build(input_shape)
        self.dropout_layer.build(input_shape)
        self.built = True

    def enter(self, inputs: Tensor) -> Tensor:
        """Returns what the sub-layer reads."""
        return self.norm(inputs) if self.norm_first else inputs

    def leave(self, inputs: Tensor, outputs: Tensor, training: bool | None = None) -> Tensor:
        """Returns the block's output from its input and the sub-layer's output."""
        summed = inputs + self.dropout_layer(outputs, training=training)
        return summed if self.norm_first else self.norm(summed)
