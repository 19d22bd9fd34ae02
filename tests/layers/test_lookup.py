"""What is looked up in a table of weights is trained as on paper, however often a row is used."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import LearnedPositionalEncoding, RelativePositionBias, TokenEmbedding
from keras_transformer.layers.lookup import looked_up
from tests.backends import on_tensorflow
from tests.selection import spread


def token_model():
    ids = keras.Input((6,), dtype="int32")
    return keras.Model(ids, ops.sum(TokenEmbedding(5, 2)(ids), axis=1)), [[1, 1, 1, 4, 4, 2]]


def position_model():
    positions = keras.Input((6,), dtype="int32")
    nothing = keras.layers.Embedding(9, 2, embeddings_initializer="zeros", trainable=False)
    hidden = LearnedPositionalEncoding(5)(nothing(positions), positions=positions)
    return keras.Model(positions, ops.sum(hidden, axis=1)), [[1, 1, 1, 4, 4, 2]]


def bias_model():
    scores = keras.Input((2, 3, 3))
    biased = RelativePositionBias(num_buckets=8, max_distance=9)(scores)
    return keras.Model(scores, ops.sum(biased, axis=(2, 3))), np.zeros((1, 2, 3, 3), "float32")


MODELS = [token_model, position_model, bias_model]


def moves(model, inputs, optimizer, **compiling):
    """What one update adds to the table."""
    before = ops.convert_to_numpy(model.trainable_variables[0])
    model.compile(optimizer, "mean_absolute_error", **compiling)
    model.fit(np.array(inputs), np.full((1, 2), 1000.0), verbose=0)
    return ops.convert_to_numpy(model.trainable_variables[0]) - before


@pytest.mark.parametrize(("make", "jit_compile"), spread(MODELS, [False, True]))
def test_adams_first_step_is_the_rate_for_every_row_that_is_used(make, jit_compile):
    if jit_compile and keras.backend.backend() == "torch":
        pytest.skip("PyTorch has no XLA")
    moved = moves(*make(), keras.optimizers.Adam(0.01), jit_compile=jit_compile)
    used = np.abs(moved) > 1e-6
    np.testing.assert_allclose(moved[used], 0.01, rtol=1e-3)
    assert 0 < used.sum() < used.size
    if make is not bias_model:
        np.testing.assert_array_equal(used[:, 0], [False, True, True, False, True])


@pytest.mark.parametrize("make", MODELS)
def test_the_norm_of_a_clipped_gradient_is_right(make):
    moved = moves(*make(), keras.optimizers.SGD(1.0, global_clipnorm=0.1), run_eagerly=True)
    assert np.linalg.norm(moved) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
def test_ids_of_any_integer_dtype_are_looked_up(dtype):
    layer = TokenEmbedding(300, 4)
    ids = np.array([[3, 255, 0]])
    expected = ops.convert_to_numpy(layer(ids.astype("int32")))
    found = ops.convert_to_numpy(layer(ops.convert_to_tensor(ids, dtype)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("policy", "gradient"),
    # In bfloat16 itself a sum of ones stays at 256; the largest number of float16 is 65,504.
    [("mixed_bfloat16", 1.0), ("mixed_float16", 1.0), ("mixed_float16", 100.0)],
)
def test_all_gradients_of_a_half_precision_row_are_counted(policy, gradient):
    ids = keras.Input((1000,), dtype="int32")
    layer = TokenEmbedding(3, 1, dtype=policy)
    model = keras.Model(ids, ops.sum(ops.cast(layer(ids), "float32") * gradient, axis=1))
    before = ops.convert_to_numpy(layer.embedding.embeddings)
    model.compile(keras.optimizers.SGD(1.0), "mean_absolute_error", jit_compile=False)
    model.fit(np.full((1, 1000), 2), np.full((1, 1), 1e9), verbose=0)
    after = ops.convert_to_numpy(layer.embedding.embeddings)
    np.testing.assert_allclose((after - before)[:, 0], [0, 0, 1000 * gradient], rtol=0.01)


@on_tensorflow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_is_that_of_take_for_negative_ids_too_and_in_every_dtype(dtype):
    import tensorflow as tf

    table = tf.Variable(np.zeros((4, 1)), dtype=dtype)
    weights = tf.constant([[1 + 1e-10], [2.0], [4.0]], dtype)
    gradients = []
    for look in looked_up, lambda table, ids: ops.take(table, ids, axis=0):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(look(table, tf.constant([-1, 1, 3])) * weights)
        gradients.append(tf.convert_to_tensor(tape.gradient(total, table)).numpy())
    np.testing.assert_array_equal(*gradients)


def test_rows_are_those_of_take():
    table = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    ids = np.array([[4, 0], [2, 2]])
    rows = looked_up(ops.convert_to_tensor(table), ops.convert_to_tensor(ids, "int32"))
    np.testing.assert_array_equal(ops.convert_to_numpy(rows), table[ids])
