"""The position-wise feed-forward network."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformer import arguments
from keras_transformer.arguments import Activation, Shape, Tensor
from keras_transformer.layers.composite import Composite
from keras_transformer.layers.dense import PositionwiseDense
from keras_transformer.layers.dropout import Dropout, ReluDropout

# The activation of the gate in each gated network.
GATES = {"swiglu": "silu", "geglu": "gelu"}


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(Composite):
    """Applies the same two-layer network to each position.

    `FFN(x) = activation(x W1 + b1) W2 + b2`, and gated
    `FFN(x) = (activation(x W_G + b_G) * (x W1 + b1)) W2 + b2`

    Args:
        d_ff: inner width; the output is as wide as the input.
        activation: any Keras activation, the paper's is "relu"; or "swiglu" or "geglu" for a
            network gated by SiLU or GELU, with a third matrix.
        dropout: rate of the dropout on the inner activations (the paper has none there).

    Shapes:
        inputs: (batch, length, d_model). Output: the same.

    Returns:
        A tensor of the layer's compute dtype.

    Raises:
        ValueError: for a bad argument.

    Masking: positions do not see one another; passes the mask of its input on.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.3, equation 2;
    Shazeer 2020, "GLU Variants Improve Transformer" (gated).

    Example:

    >>> import numpy as np
    >>> tuple(FeedForward(d_ff=32)(np.zeros((2, 3, 8))).shape)
    (2, 3, 8)
    """

    def __init__(
        self, d_ff: int, activation: Activation = "relu", dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.d_ff = arguments.positive_integer("d_ff", d_ff)
        self.activation = checked_activation(activation)
        self.dropout = arguments.rate("dropout", dropout)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        """Builds both projections."""
        dtype = self.dtype_policy
        inner_shape = (*input_shape[:-1], self.d_ff)
        self.gate: PositionwiseDense | None = None
        activation: Any = self.activation
        dropout = Dropout
        if isinstance(activation, str):
            self.gate = PositionwiseDense(
                self.d_ff, activation=GATES[activation], dtype=dtype, name="gate"
            )
            self.gate.build(input_shape)
            activation = None
        elif activation is keras.activations.relu:
            dropout, activation = ReluDropout, None
        self.inner = PositionwiseDense(self.d_ff, activation=activation, dtype=dtype, name="inner")
        self.outer = PositionwiseDense(input_shape[-1], dtype=dtype, name="outer")
        self.dropout_layer = dropout(self.dropout, dtype=dtype)
        self.inner.build(input_shape)
        self.dropout_layer.build(inner_shape)
        self.outer.build(inner_shape)
        self.built = True
        self.adopt()

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Returns the network's output at each position."""
        inner = self.inner(inputs)
        if self.gate is not None:
            inner = self.gate(inputs) * inner
        return self.outer(self.dropout_layer(inner, training=training))

    def step(self, inputs: Tensor) -> Tensor:
        """As `call`, of the rows of one decoding step."""
        inner = self.inner.step(inputs)
        if self.gate is not None:
            inner = self.gate.step(inputs) * inner
        return self.outer.step(self.dropout_layer(inner))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "d_ff": self.d_ff,
            "activation": activation_config(self.activation),
            "dropout": self.dropout,
        }
        return {**super().get_config(), **own}


def checked_activation(activation: Activation) -> str | Callable[[Tensor], Tensor]:
    """Returns the name of a gated network, or any Keras activation as a function."""
    if isinstance(activation, str) and activation in GATES:
        return activation
    return keras.activations.get(activation)


def activation_config(activation: str | Callable[[Tensor], Tensor]) -> Any:
    """Returns what `get_config` saves of `checked_activation`."""
    return activation if isinstance(activation, str) else keras.activations.serialize(activation)
