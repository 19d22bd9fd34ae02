"""Sinusoidal positions, added to embeddings or appended to them."""

import keras
import numpy as np
from keras import ops

from keras_transformer.arguments import Tensor
from keras_transformer.layers.positions import AddedPosition
from keras_transformer.layers.sinusoids import sin_cos


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(AddedPosition):
    """Tells each position apart by sines and cosines of geometrically spaced wavelengths.

    `PE[pos, 2i] = sin(pos / 10000 ** (2i / d_model))`,
    `PE[pos, 2i + 1] = cos(pos / 10000 ** (2i / d_model))`

    Args:
        max_length: the longest input accepted; None has no limit.
        combine: "add" adds the encoding to the input, "concat" appends it, which doubles the
            width.
        dropout: rate of the dropout on the result.

    Shapes:
        inputs: (batch, length, d_model). positions: (batch, length) integers in place of 0, 1,
        2, ..., for packed sequences (`masking.segment_positions`). padding_mask: boolean
        (batch, length). Output: that of inputs, or (batch, length, 2 * d_model).

    Returns:
        A tensor of the layer's compute dtype; the encoding is computed before the cast.

    Raises:
        ValueError: for a bad argument, an input longer than `max_length`, or a mask that is not
            boolean (batch, length).

    Masking: passes the mask of its input on. Positions count from the first real token of a row
    by that mask and `padding_mask`, so padding on the left changes nothing. Padding between tokens
    keeps its places. `positions` replace what the masks say.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.

    Example:

    >>> import numpy as np
    >>> encoded = PositionalEncoding()(np.zeros((1, 2, 4)))
    >>> np.asarray(encoded)[0].astype("float64").round(3).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """

    def rows(self, positions: Tensor) -> Tensor:
        """Returns float32 rows (..., d_model) of integer `positions` (...)."""
        pairs = np.arange((self.d_model + 1) // 2, dtype="float64")
        waves = sin_cos(positions, 10000.0 ** (-2.0 * pairs / self.d_model))
        numpy_api = np if isinstance(positions, np.ndarray) else ops
        # -> (..., pair, sine or cosine) -> (..., d_model)
        waves = numpy_api.stack(waves, axis=-1)
        shape = numpy_api.shape(waves)
        return numpy_api.reshape(waves, (*shape[:-2], shape[-2] * 2))[..., : self.d_model]
