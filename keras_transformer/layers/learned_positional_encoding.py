"""Learned positions: one trained vector for each."""

from typing import Any

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Shape, Tensor
from keras_transformer.layers.lookup import looked_up
from keras_transformer.layers.positions import AddedPosition


@keras.saving.register_keras_serializable(package="keras_transformer")
class LearnedPositionalEncoding(AddedPosition):
    """Tells each position apart by a vector of its own that is trained with the model.

    `output[b, pos] = inputs[b, pos] + P[pos]`

    Args:
        max_length: the longest input accepted, and the number of rows of P.
        combine: "add" adds the vector to the input, "concat" appends it, which doubles the
            width.
        dropout: rate of the dropout on the result.

    Shapes:
        inputs: (batch, length, d_model). positions: (batch, length) integers in place of 0, 1,
        2, ..., for packed sequences (`masking.segment_positions`). padding_mask: boolean
        (batch, length). Output: that of inputs, or (batch, length, 2 * d_model).

    Returns:
        A tensor of the layer's compute dtype.

    Raises:
        ValueError: for a bad argument, an input longer than `max_length`, or a mask that is not
            boolean (batch, length).

    Masking: passes the mask of its input on. Positions count from the first real token of a row
    by that mask and `padding_mask`, so padding on the left changes nothing. Padding between tokens
    keeps its places. `positions` replace what the masks say.

    Reference: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1;
    Vaswani et al. 2017, "Attention Is All You Need", section 3.5 and table 3, row E.

    Example:

    >>> import numpy as np
    >>> positions = LearnedPositionalEncoding(max_length=16)
    >>> tuple(positions(np.zeros((1, 2, 4))).shape), tuple(positions.weights[0].shape)
    ((1, 2, 4), (16, 4))
    """

    def __init__(
        self, max_length: int, combine: str = "add", dropout: float = 0.0, **kwargs: Any
    ) -> None:
        max_length = arguments.positive_integer("max_length", max_length)
        super().__init__(max_length, combine, dropout, **kwargs)

    def build(self, input_shape: Shape) -> None:
        """Creates the vectors."""
        self.position_vectors = self.add_weight(
            name="position_vectors",
            shape=(self.max_length, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,
        )
        super().build(input_shape)

    def rows(self, positions: Tensor) -> Tensor:
        """Returns float32 rows (..., d_model) of integer `positions` (...)."""
        return ops.cast(looked_up(self.position_vectors, positions), "float32")
