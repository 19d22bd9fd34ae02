"""Attention against Keras's own layers, any three options together, where Keras is right."""

import keras
import numpy as np
import pytest

from keras_transformer.layers import MultiHeadAttention
from tests.backends import array, arrays, normal, randomise
from tests.selection import covering

pytestmark = pytest.mark.parity

BOOLEANS = (False, True)
QUERY, VALUE, KEY = normal(1, 2, 5, 8), normal(2, 2, 7, 6), normal(3, 2, 7, 3)
REAL_QUERY = np.arange(5)[None] < [[5], [3]]
# The first key is free for every query: where there is none, Keras averages.
REAL_VALUE, REAL_KEY = np.arange(7)[None] < [[5], [7]], np.ones((2, 7), bool)
REAL_KEY[:, [1, 4]] = False
PAIRS = np.random.default_rng(4).random((2, 5, 7)) < 0.6
PAIRS[..., 0] = True


def assert_equal(theirs, inputs, masks, causal):
    """Keras's layer and ours made from it agree at every real query, scores included."""
    ours = MultiHeadAttention.from_keras(theirs)
    options = {"use_causal_mask": causal, **masks}
    real = np.nonzero(masks.get("query_mask", np.ones((2, 5), bool)))
    outputs, fused = [], []
    for layer in (ours, theirs):
        output, weights = arrays(layer(*inputs, return_attention_scores=True, **options))
        outputs.append((output[real], weights.transpose(0, 2, 1, 3)[real]))
        fused.append(array(layer(*inputs, **options))[real])
    for found, expected in [*zip(*outputs, strict=True), fused]:
        np.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-5)


def chosen(**masks):
    return {name: mask for name, (given, mask) in masks.items() if given}


@pytest.mark.parametrize(
    ("own_key", "causal", "by_query", "by_value", "by_key", "by_pair"),
    covering(*[BOOLEANS] * 6, strength=3),
)
def test_attention_equals_keras_with_every_mask(
    own_key, causal, by_query, by_value, by_key, by_pair
):
    inputs = (QUERY, VALUE, KEY) if own_key else (QUERY, VALUE)
    theirs = keras.layers.MultiHeadAttention(2, 4)
    theirs.build(*(x.shape for x in inputs))
    randomise(theirs, scale=0.4)
    masks = chosen(
        query_mask=(by_query, REAL_QUERY),
        value_mask=(by_value, REAL_VALUE),
        key_mask=(by_key, REAL_KEY),
        attention_mask=(by_pair, PAIRS),
    )
    assert_equal(theirs, inputs, masks, causal)


@pytest.mark.parametrize(
    ("shared", "use_bias", "use_gate", "causal", "masked"),
    covering(
        *([1, 2, 4], BOOLEANS, BOOLEANS, BOOLEANS, ["nothing", "rows", "pairs", "both"]), strength=3
    ),
)
def test_grouped_attention_equals_keras(shared, use_bias, use_gate, causal, masked):
    theirs = keras.layers.GroupQueryAttention(3, 4, shared, use_bias=use_bias, use_gate=use_gate)
    theirs.build(QUERY.shape, VALUE.shape)
    randomise(theirs, scale=0.4)
    rows, pairs = masked in ("rows", "both"), masked in ("pairs", "both")
    masks = chosen(
        query_mask=(rows, REAL_QUERY),
        value_mask=(rows, REAL_VALUE),
        key_mask=(rows, REAL_KEY),
        attention_mask=(pairs, PAIRS),
    )
    assert_equal(theirs, (QUERY, VALUE), masks, causal)
