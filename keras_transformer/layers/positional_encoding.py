"""Sinusoidal positions, added to embeddings or appended to them."""

import keras
import numpy as np
from keras import ops

from keras_transformer import arguments


def sinusoidal_encoding(length, d_model):
    """Rows PE[0] to PE[length - 1], float32 (length, d_model), sine and cosine interleaved.

    Angles are computed in float64: at position 8,192 a float32 angle is off by up to 5e-4.
    A static `length` gives a NumPy array, which compilers fold into the graph.
    """
    if isinstance(length, int):
        return _rows(np, np.arange(length, dtype="float64"), d_model).astype("float32")
    # JAX warns about float64; a length is open there only while the shapes of a model are found.
    dtype = "float32" if keras.backend.backend() == "jax" else "float64"
    return ops.cast(_rows(ops, ops.cast(ops.arange(length), dtype), d_model), "float32")


def _rows(numpy_api, positions, d_model):
    """The formula itself; `numpy_api` is `numpy` or `keras.ops`."""
    pairs = np.arange((d_model + 1) // 2, dtype="float64")
    frequencies = 10000.0 ** (-2.0 * pairs / d_model)
    angles = positions[:, None] * frequencies
    # -> (length, pair, sine or cosine) -> (length, d_model)
    waves = numpy_api.stack([numpy_api.sin(angles), numpy_api.cos(angles)], axis=-1)
    return numpy_api.reshape(waves, (-1, 2 * len(pairs)))[:, :d_model]


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(keras.layers.Layer):
    """Tells each position apart by sines and cosines of geometrically spaced wavelengths.

    `PE[pos, 2i] = sin(pos / 10000 ** (2i / d_model))`,
    `PE[pos, 2i + 1] = cos(pos / 10000 ** (2i / d_model))`

    Args:
        max_length: the longest input accepted; None has no limit.
        combine: "add" adds the encoding to the input, "concat" appends it, which doubles the
            width.
        dropout: rate of the dropout on the result.

    Shapes:
        inputs: (batch, length, d_model). Output: the same, or (batch, length, 2 * d_model).

    Returns:
        A tensor of the layer's compute dtype; the encoding is computed before the cast.

    Raises:
        ValueError: for a bad argument, or an input longer than `max_length`.

    Masking: passes the mask of its input on.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.

    Example:

    >>> import numpy as np
    >>> encoded = PositionalEncoding()(np.zeros((1, 2, 4)))
    >>> np.asarray(encoded)[0].round(4).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.8414999842643738, 0.5403000116348267, 0.009999999776482582, 1.0]]
    """

    def __init__(self, max_length=None, combine="add", dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        if max_length is not None and arguments.positive_integer("max_length", max_length) < 2:
            # A single row would broadcast over an input of any length.
            raise ValueError(f"`max_length` must be at least 2. Received: max_length={max_length}")
        self.max_length = max_length
        self.combine = arguments.one_of("combine", combine, ("add", "concat"))
        self.dropout = arguments.rate("dropout", dropout)
        self.supports_masking = True

    def build(self, input_shape):
        """Builds the dropout; the encoding has no weights."""
        self.d_model = input_shape[-1]
        self.dropout_layer = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)
        self.dropout_layer.build(input_shape)
        self.built = True

    def call(self, inputs, training=None):
        """Returns `inputs` with positions."""
        length = inputs.shape[1]
        if length is None:
            length = ops.shape(inputs)[1]
        encoding = ops.expand_dims(self.encoding(length), 0)
        return self.dropout_layer(self.apply_encoding(inputs, encoding), training=training)

    def encoding(self, length):
        """Returns the first `length` rows, float32 (length, d_model)."""
        if self.max_length is None:
            return ops.convert_to_tensor(sinusoidal_encoding(length, self.d_model))
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"the input must not be longer than `max_length`. Received: an input of length "
                f"{length}, max_length={self.max_length}"
            )
        # A length known only at run time and too large makes the sum with the input fail there.
        return ops.convert_to_tensor(sinusoidal_encoding(self.max_length, self.d_model))[:length]

    def apply_encoding(self, inputs, encoding):
        """Combines inputs (batch, length, d_model) with rows that broadcast to them."""
        encoding = ops.cast(encoding, inputs.dtype)
        if self.combine == "add":
            return inputs + encoding
        encoding = ops.broadcast_to(encoding, ops.shape(inputs))
        return ops.concatenate([inputs, encoding], axis=-1)

    def compute_output_shape(self, input_shape):
        """Returns the input's shape, twice as wide for "concat"."""
        width = input_shape[-1] * (2 if self.combine == "concat" else 1)
        return (*input_shape[:-1], width)

    def get_config(self):
        """Returns the constructor's arguments."""
        own = {"max_length": self.max_length, "combine": self.combine, "dropout": self.dropout}
        return {**super().get_config(), **own}
