"""Sinusoidal positions, added to embeddings or appended to them."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Shape, Tensor
from keras_transformer.layers.positions import AddedPosition
from keras_transformer.layers.sinusoids import sin_cos


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(AddedPosition):
    """Tells each position apart by sines and cosines of geometrically spaced wavelengths.

    `PE[pos, 2i] = sin(pos / 10000 ** (2i / d_model))`,
    `PE[pos, 2i + 1] = cos(pos / 10000 ** (2i / d_model))`

    That is the paper's form. Other systems arrange and count the same waves in other ways; their
    weights need the form that they were trained with.

    Args:
        max_length: the longest input accepted; None has no limit.
        combine: "add" adds the encoding to the input, "concat" appends it, which doubles the
            width.
        dropout: rate of the dropout on the result.
        layout: "interleaved" alternates sines and cosines (the paper), "halves" puts all sines
            before all cosines (Hugging Face, Marian, Tensor2Tensor).
        frequencies: "paper" is `10000 ** (-2i / d_model)` for pair i; "tensor2tensor" is
            `10000 ** (-i / (d_model / 2 - 1))`, which Marian, OpenNMT-tf and fairseq have too.
        first_position: the position of the first token: 0 in the paper, 1 in OpenNMT-tf, 2 in
            fairseq.

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

    def __init__(
        self,
        max_length: int | None = None,
        combine: str = "add",
        dropout: float = 0.0,
        *,
        layout: str = "interleaved",
        frequencies: str = "paper",
        first_position: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_length, combine, dropout, **kwargs)
        self.layout = arguments.one_of("layout", layout, ("interleaved", "halves"))
        self.frequencies = arguments.one_of("frequencies", frequencies, ("paper", "tensor2tensor"))
        self.first_position = arguments.non_negative_integer("first_position", first_position)

    def build(self, input_shape: Shape) -> None:
        """Builds the dropout; there are no weights."""
        d_model = input_shape[-1]
        if self.frequencies == "tensor2tensor" and (d_model is None or d_model < 4 or d_model % 2):
            raise ValueError(
                "`d_model` must be even and at least 4 for frequencies='tensor2tensor'. "
                f"Received: d_model={d_model}"
            )
        super().build(input_shape)

    def rows(self, positions: Tensor) -> Tensor:
        """Returns float32 rows (..., d_model) of integer `positions` (...)."""
        pairs = np.arange((self.d_model + 1) // 2, dtype="float64")
        exponents = 2.0 * pairs / self.d_model
        if self.frequencies == "tensor2tensor":
            exponents = pairs / (self.d_model // 2 - 1)
        waves = sin_cos(positions + self.first_position, 10000.0**-exponents)
        numpy_api = np if isinstance(positions, np.ndarray) else ops
        if self.layout == "halves":
            return numpy_api.concatenate(waves, axis=-1)[..., : self.d_model]
        waves = numpy_api.stack(waves, axis=-1)  # -> (..., pair, sine or cosine)
        shape = numpy_api.shape(waves)
        # -> (..., d_model)
        return numpy_api.reshape(waves, (*shape[:-2], shape[-2] * 2))[..., : self.d_model]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {
            "layout": self.layout,
            "frequencies": self.frequencies,
            "first_position": self.first_position,
        }
        return {**super().get_config(), **own}
