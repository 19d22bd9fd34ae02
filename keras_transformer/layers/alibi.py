"""ALiBi: scores that fall off linearly with distance."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.arguments import Shape, Tensor
from keras_transformer.layers.positions import (
    AttentionPosition,
    key_distances,
    position_range,
)


@keras.saving.register_keras_serializable(package="keras_transformer")
class ALiBi(AttentionPosition):
    """Lowers each score by the distance of query and key, in each head by its own slope.

    `score[h, q, k] -= slope[h] * |q - k|`, `slope[h] = 2 ** (-8 (h + 1) / heads)` for h from 0

    Other numbers of heads than powers of two take the slopes of the next lower power. Then follows
    every second slope of the next higher power. Nothing is learned, and longer inputs than those
    trained on need nothing new.

    Shapes:
        inputs: scores (batch, heads, query, key). Output: the same.

    Returns:
        The biased scores, float32.

    Masking: none; scores carry no mask.

    Reference: Press et al. 2021, "Train Short, Test Long: Attention with Linear Biases".

    Example:

    >>> import numpy as np
    >>> np.asarray(ALiBi()(np.zeros((1, 2, 1, 3))))[0, :, 0].tolist()
    [[0.0, -0.0625, -0.125], [0.0, -0.00390625, -0.0078125]]
    """

    def build(self, input_shape: Shape) -> None:
        """Finds the slopes; there are no weights."""
        self.slopes = tuple(alibi_slopes(input_shape[1]))
        self.built = True

    def build_for_heads(self, num_heads: int, key_dim: int) -> None:
        """Builds for `num_heads` heads."""
        if not self.built:
            self.build((None, num_heads, None, None))

    def call(self, inputs: Tensor) -> Tensor:
        """Returns scores with the bias added."""
        query, key = ops.shape(inputs)[2:]
        bias = self.bias(position_range(query), position_range(key))
        return ops.cast(inputs, "float32") + bias

    def bias(self, query_positions: Tensor, key_positions: Tensor, causal: bool = False) -> Tensor:
        """Returns the bias (1, heads, query, key)."""
        distance = ops.abs(key_distances(query_positions, key_positions))
        slopes = ops.convert_to_tensor(np.asarray(self.slopes, "float32"))
        return -slopes[None, :, None, None] * ops.cast(distance, "float32")[None, None]

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments: those of every Keras layer."""
        return super().get_config()


def alibi_slopes(num_heads: int) -> list[float]:
    """The slope of each head, a list of `num_heads` numbers."""

    def geometric(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (head + 1) / count) for head in range(count)]

    lower = 2 ** math.floor(math.log2(num_heads))
    return geometric(lower) + geometric(2 * lower)[0::2][: num_heads - lower]
