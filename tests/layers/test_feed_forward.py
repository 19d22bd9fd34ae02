"""The position-wise network against its formula."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import FeedForward
from keras_transformer.layers.dropout import Dropout, given_seeds
from tests.backends import array, gradients, normal, randomise

INPUTS = normal(1, 2, 7, 5)


def test_equals_the_formula_of_the_paper():
    layer = FeedForward(d_ff=13)
    layer.build(INPUTS.shape)
    w1, b1, w2, b2 = randomise(layer).get_weights()
    assert (w1.shape, b1.shape, w2.shape, b2.shape) == ((5, 13), (13,), (13, 5), (5,))
    expected = np.maximum(0, INPUTS @ w1 + b1) @ w2 + b2
    np.testing.assert_allclose(array(layer(INPUTS)), expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu", keras.activations.silu])
def test_takes_any_activation_and_remembers_it(activation):
    layer = FeedForward(d_ff=13, activation=activation)
    layer.build(INPUTS.shape)
    w1, b1, w2, b2 = randomise(layer).get_weights()
    inner = array(keras.activations.get(activation)(keras.ops.convert_to_tensor(INPUTS @ w1 + b1)))
    np.testing.assert_allclose(array(layer(INPUTS)), inner @ w2 + b2, atol=1e-5)
    again = FeedForward.from_config(layer.get_config())
    again.build(INPUTS.shape)
    again.set_weights(layer.get_weights())
    assert (array(again(INPUTS)) == array(layer(INPUTS))).all()


def test_a_position_is_transformed_alone():
    layer = FeedForward(d_ff=13)
    changed = INPUTS.copy()
    changed[:, 3] += 1.0
    differs = np.abs(array(layer(INPUTS)) - array(layer(changed))).max(axis=(0, 2)) > 0
    assert differs.tolist() == [False, False, False, True, False, False, False]


def test_dropout_falls_on_the_inner_activations():
    layer = FeedForward(d_ff=20_011, dropout=0.5)
    layer.build((None, None, 1))
    # Weights of 1 and an input of 1: the output counts the units kept, each doubled.
    layer.set_weights(
        [np.ones(w.shape) for w in layer.get_weights()[:1]]
        + [np.zeros(20_011), np.ones((20_011, 1)), np.zeros(1)]
    )
    kept = array(layer(np.ones((1, 1, 1), "float32"), training=True)).item() / 2 / 20_011
    # A share of 20,011 fair coins: its standard deviation is 0.0035.
    assert kept == pytest.approx(0.5, abs=0.025)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_in_training_it_is_the_dropout_of_the_activated(activation):
    """Of gates too: on every activation the same units drop."""
    layer = FeedForward(d_ff=13, activation=activation, dropout=0.4)
    layer.build(INPUTS.shape)
    randomise(layer)
    inputs = keras.ops.convert_to_tensor(INPUTS)
    seed = keras.ops.convert_to_tensor([3, 4], "uint32")
    dropout = Dropout(0.4)
    inner = layer.inner(inputs)
    if activation == "swiglu":
        inner = layer.gate(inputs) * inner
    elif activation == "relu":  # `layer.inner` applies the others itself
        inner = keras.ops.relu(inner)
    with given_seeds({id(layer.dropout_layer): seed, id(dropout): seed}):
        expected = layer.outer(dropout(inner, training=True))
        found = layer(inputs, training=True)
    np.testing.assert_allclose(array(found), array(expected), atol=1e-6)
    assert np.abs(array(found) - array(layer(inputs))).max() > 0.1  # something was dropped


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_in_bfloat16_the_gradient_of_a_bias_is_not_summed_in_bfloat16(activation):
    """It is the sum over 4,096 positions, and as near to that of float32 as one number is."""
    inputs, weights = normal(1, 64, 64, 8), 1 + normal(2, 64, 64, 8)
    found = {}
    for policy in ("float32", "mixed_bfloat16"):
        layer = FeedForward(d_ff=16, activation=activation, dtype=policy)
        layer.build(inputs.shape)
        randomise(layer)
        _, found[policy] = gradients(
            lambda x, of=layer: ops.sum(ops.multiply(of(x), weights)), [inputs], layer
        )
    for variable, exact, rounded in zip(layer.weights, *found.values(), strict=True):
        if variable.name == "bias":
            error = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
            assert error < 0.01, (variable.path, error)
