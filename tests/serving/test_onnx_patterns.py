"""Several nodes that ONNX has one operation for become that one, and no others do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.serving.onnx_runs import compare, convert

pytest.importorskip("onnx")

X = np.random.default_rng(2).normal(3.0, 2.0, (2, 3, 8)).astype("float32")


def kinds_of(function):
    """The operations of a function's ONNX graph, in order."""
    return [node.op_type for node in convert(function, [X])[1].graph.node]


def normalization(**options):
    layer = keras.layers.LayerNormalization(**options)
    layer.build((None, None, 8) if options.get("axis", -1) == -1 else (None, 3, 8))
    for weight in layer.weights:
        weight.assign(np.linspace(0.5, 2.0, weight.shape[0]))
    return lambda x: layer(tf.ensure_shape(x, [None, 3, 8]))


def test_a_layer_normalization_is_one_operation():
    function = normalization(epsilon=1e-3)
    assert kinds_of(function) == ["LayerNormalization", "Identity"]
    compare(function, X, atol=2e-6)


@pytest.mark.parametrize("options", [{"axis": 1}, {"scale": False}, {"center": False}])
def test_another_normalization_stays_as_it_is(options):
    function = normalization(**options)
    assert "LayerNormalization" not in kinds_of(function)
    compare(function, X, atol=2e-6)


def test_the_exponential_of_a_log_softmax_is_a_softmax():
    assert kinds_of(lambda x: tf.exp(tf.nn.log_softmax(x))) == ["Softmax", "Identity"]
    compare(lambda x: tf.exp(tf.nn.log_softmax(x)), X, atol=1e-6)
    assert "Exp" in kinds_of(lambda x: tf.exp(2 * x))


def test_two_changes_of_shape_are_one():
    def function(x):
        flat = tf.reshape(x, [-1, 8])
        return tf.reshape(flat, [-1, 4]), tf.reshape(flat, [-1, 2, 2, 2])

    assert kinds_of(function).count("Reshape") == 2
    compare(function, X)
    there_and_back = lambda x: tf.reshape(tf.reshape(tf.ensure_shape(x, X.shape), [-1]), X.shape)  # noqa: E731
    assert "Reshape" not in kinds_of(there_and_back)
    compare(there_and_back, X)
