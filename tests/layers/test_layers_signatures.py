"""What may be given by position in a call may be given by position in a functional model."""

import keras
import numpy as np
import pytest

from keras_transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, MultiHeadAttention
from tests.backends import array, normal

HIDDEN, MEMORY = normal(0, 2, 5, 8), normal(1, 2, 4, 8)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "bool")
MEMORY_MASK = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], "bool")
CALLS = {
    "attention": (lambda: MultiHeadAttention(2, 4), (HIDDEN, MEMORY, MEMORY, MASK, MEMORY_MASK)),
    "encoder layer": (lambda: EncoderLayer(2, 16), (HIDDEN, MASK)),
    "encoder": (lambda: Encoder(1, 2, 16), (HIDDEN, MASK)),
    "decoder layer": (lambda: DecoderLayer(2, 16), (HIDDEN, MEMORY, MASK, MEMORY_MASK)),
    "decoder": (lambda: Decoder(1, 2, 16), (HIDDEN, MEMORY, MASK, MEMORY_MASK)),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("encoder", "decoder") else ())
        for name in CALLS
    ],
)
def test_masks_may_be_given_by_position(name):
    make, inputs = CALLS[name]
    layer = make()
    expected = array(layer(*inputs))
    symbols = [keras.Input(x.shape[1:], dtype=x.dtype.name) for x in inputs]
    model = keras.Model(symbols, layer(*symbols))
    np.testing.assert_allclose(array(model(list(inputs))), expected, atol=1e-6)
    unmasked = [x for x in inputs if x.dtype != bool]
    assert not np.allclose(array(layer(*unmasked)), expected, atol=1e-3)
