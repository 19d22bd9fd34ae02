"""A model is built with values that are read, and draws none."""

import numpy as np
import pytest

from keras_transformer import Transformer
from keras_transformer.interop.weights import build_with, read_weights, weight_shapes
from keras_transformer.layers import LearnedPositionalEncoding
from tests.backends import array

SIZES = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12}
OPTIONS = {
    "joint": {"vocab_size": 11},
    "two vocabularies, untied": {
        "source_vocab_size": 11,
        "target_vocab_size": 13,
        "tie_output": False,
        "logits_bias": True,
    },
    "half precision": {"vocab_size": 11, "dtype": "mixed_float16"},
    "others": {
        "vocab_size": 11,
        "rms_norm": True,
        "activation": "swiglu",
        "embedding_norm": True,
        "position": LearnedPositionalEncoding(7),
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_weight_has_the_value_that_is_read(name):
    model = Transformer(**SIZES, **OPTIONS[name])
    random = np.random.default_rng(0)
    values = {
        weight: random.normal(size=shape).astype("float32")
        for weight, shape in weight_shapes(model).items()
    }
    build_with(model, values.__getitem__)
    found = read_weights(model)
    assert set(found) == set(values)
    for weight, expected in values.items():
        np.testing.assert_array_equal(found[weight], expected)
    others = [v for v in model.variables if not any(v is weight for weight in model.weights)]
    assert all("int" in variable.dtype for variable in others)


@pytest.mark.slow
def test_it_computes_and_trains_as_one_that_was_drawn():
    drawn = Transformer(11, dropout=0.2, **SIZES)
    drawn.build()
    values = read_weights(drawn)
    model = Transformer(11, dropout=0.2, **SIZES)
    build_with(model, values.__getitem__)
    pair = np.array([[4, 5, 3]]), np.array([[2, 6, 7]])
    np.testing.assert_array_equal(array(model(pair)), array(drawn(pair)))
    model.compile(optimizer="adam", loss="mse")
    labels = np.zeros((1, 3, 11), "float32")
    first = model.evaluate(pair, labels, verbose=0)
    model.fit(pair, labels, epochs=5, verbose=0)
    assert model.evaluate(pair, labels, verbose=0) < first
