"""FusedAdam is Keras's Adam in every number, whatever surrounds it."""

import collections
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import FusedAdam, TokenEmbedding, WarmupSchedule

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
SHAPES = [(5, 3), (3,), (), (7, 2)]


def weights_after(optimizer, updates=6, dtype="float32"):
    """The weights after some updates by the same gradients, among them 0 and a hundredfold."""
    random = np.random.default_rng(0)
    weights = [keras.Variable(random.normal(size=shape), dtype=dtype) for shape in SHAPES]
    for update in range(updates):
        scale = (1.0, 0.0, 100.0)[update % 3]
        gradients = [scale * random.normal(size=shape) for shape in SHAPES]
        optimizer.apply([ops.convert_to_tensor(g, dtype) for g in gradients], weights)
    optimizer.finalize_variable_values(weights)
    return [ops.convert_to_numpy(ops.cast(w, "float32")) for w in weights]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta_1": 0.5, "beta_2": 0.98, "epsilon": 1e-9},
        {"epsilon": 1.0},
        {"learning_rate": WarmupSchedule(64, warmup_steps=3)},
        {"gradient_accumulation_steps": 2},
        {"clipnorm": 0.5},
        {"global_clipnorm": 0.5},
        {"clipvalue": 0.1},
        {"weight_decay": 0.1},
        {"use_ema": True, "ema_momentum": 0.5},
        {"use_ema": True, "ema_overwrite_frequency": 2},
        {"amsgrad": True},
        {"loss_scale_factor": 4.0},
    ],
    ids=lambda options: " and ".join(options) or "defaults",
)
def test_updates_are_those_of_keras(options):
    options = {"learning_rate": 0.1, **options}
    expected = weights_after(keras.optimizers.Adam(**options))
    for weight, other in zip(weights_after(FusedAdam(**options)), expected, strict=True):
        np.testing.assert_allclose(weight, other, rtol=2e-5, atol=1e-5)  # 1 - beta_2 is rounded


@pytest.mark.slow
def test_the_bias_correction_holds_after_many_updates():
    weights = [weights_after(kind(0.01), 3000) for kind in (FusedAdam, keras.optimizers.Adam)]
    for weight, other in zip(*weights, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="TensorFlow alone traces a graph of operations")
@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}])
def test_a_further_weight_adds_one_operation_that_computes(options):
    import tensorflow as tf

    def computing(number):
        weights = [keras.Variable(np.ones(3, "float32")) for _ in range(number)]
        optimizer = FusedAdam(**options)
        optimizer.build(weights)
        step = tf.function(
            lambda *gradients: optimizer.apply(list(gradients), weights), autograph=False
        )
        graph = step.get_concrete_function(*(tf.ones(3) for _ in weights)).graph.as_graph_def()
        nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
        return collections.Counter(node.op for node in nodes)

    added = computing(5) - computing(1)
    assert (computing(1)["Pow"], computing(1)["ResourceApplyAdam"]) == (2, 1)
    assert added["ResourceApplyAdam"] == 4
    assert not {"Pow", "Sqrt", "Cast", "Sub", "Maximum"} & {*added}


@pytest.mark.skipif(not ON_TENSORFLOW, reason="these are variables of TensorFlow")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_weights_that_are_not_of_keras_are_updated(dtype):
    import tensorflow as tf

    weight = tf.Variable([1.0, 1.0], dtype=dtype)
    FusedAdam(0.1).apply([tf.constant([0.5, -0.5], dtype)], [weight])
    np.testing.assert_allclose(weight.numpy(), [0.9, 1.1], rtol=1e-3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_of_half_precision_move(dtype):
    # In bfloat16 Keras's default of beta_2, 0.999, is 1, so that no weight would ever move.
    before, found, expected = (
        weights_after(kind(rate, beta_2=0.98, epsilon=1e-3), dtype=dtype)
        for kind, rate in ((FusedAdam, 0.0), (FusedAdam, 0.1), (keras.optimizers.Adam, 0.1))
    )
    for start, weight, other in zip(before, found, expected, strict=True):
        moved = other - start
        assert np.abs(moved).max() > 0.02
        np.testing.assert_allclose(weight - start, moved, rtol=0.1, atol=0.05)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="a class of Keras's on PyTorch")
def test_all_weights_are_updated_at_once_on_pytorch():
    def names(kind):
        return [base.__name__ for base in type(kind()).__mro__]

    assert "TorchParallelOptimizer" in names(keras.optimizers.Adam)
    assert "TorchParallelOptimizer" in names(FusedAdam)


def fitted(optimizer, jit_compile=False):
    """A small model after some updates."""
    keras.utils.set_random_seed(3)
    ids = keras.Input((4,), dtype="int32")
    hidden = TokenEmbedding(6, 5, pad_id=0)(ids)
    outputs = keras.layers.Dense(2)(ops.sum(hidden, axis=1))
    model = keras.Model(ids, outputs)
    model.compile(optimizer, "mean_squared_error", jit_compile=jit_compile)
    # Every row has an id twice: both its gradients count.
    x = np.array([[1, 1, 2, 3], [4, 4, 4, 0], [2, 5, 5, 1]])
    model.fit(x, np.array([[1.0, -1], [0, 2], [1, 1]]), batch_size=2, epochs=5, verbose=0)
    return model


def test_the_gradients_of_a_row_used_twice_are_added_before_they_are_squared():
    # Keras's Adam squares each on TensorFlow, so that row's first step is sqrt(2) times as long.
    ids = keras.Input((3,), dtype="int32")
    embedding = keras.layers.Embedding(4, 1, embeddings_initializer="zeros")
    model = keras.Model(ids, ops.sum(embedding(ids), axis=1))
    model.compile(FusedAdam(0.1), "mean_squared_error", jit_compile=False)
    model.fit(np.array([[1, 1, 2]]), np.array([[1.0]]), verbose=0)
    np.testing.assert_allclose(model.get_weights()[0][:, 0], [0, 0.1, 0.1, 0], rtol=1e-4)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_fit_ends_with_the_weights_of_keras(jit_compile):
    if jit_compile and keras.backend.backend() == "torch":
        pytest.skip("PyTorch has no XLA")
    models = [fitted(kind(0.05), jit_compile) for kind in (FusedAdam, keras.optimizers.Adam)]
    for weight, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-4, atol=1e-5)


def test_a_saved_model_goes_on_where_it_was(tmp_path):
    model = fitted(FusedAdam(WarmupSchedule(16, warmup_steps=4), beta_2=0.98))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is FusedAdam
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    x, y = np.array([[1, 2, 3, 4]]), np.array([[0.0, 1.0]])
    for each in model, loaded:
        each.fit(x, y, epochs=3, verbose=0)
    for weight, other in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)


@pytest.mark.skipif(not ON_TENSORFLOW, reason="the loss is scaled in fit on TensorFlow")
def test_an_overflow_of_the_scaled_loss_leaves_weights_and_moments_alone():
    optimizer = keras.optimizers.LossScaleOptimizer(FusedAdam(0.1), initial_scale=4.0)
    weight = keras.Variable([1.0, 2.0])
    optimizer.apply([ops.convert_to_tensor([np.inf, 1.0])], [weight])
    np.testing.assert_array_equal(weight, [1.0, 2.0])
    optimizer.apply([ops.convert_to_tensor([2.0, -2.0])], [weight])
    np.testing.assert_allclose(weight, [0.9, 2.1], rtol=1e-5)


@pytest.mark.parametrize("argument", [{"learning_rate": "fast"}, {"clipnorm": 1, "clipvalue": 1}])
def test_bad_arguments_are_refused_as_by_keras(argument):
    with pytest.raises(ValueError, match="learning_rate|clipnorm"):
        FusedAdam(**argument)


MIRRORED = """
import keras, numpy as np, tensorflow as tf
from keras_transformer import FusedAdam
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
results = []
for kind in FusedAdam, keras.optimizers.Adam:
    keras.utils.set_random_seed(1)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile(kind(0.1), "mean_squared_error", jit_compile=False)
    x = np.arange(24.0).reshape(8, 3) / 24
    model.fit(x, x[:, :2] ** 2, batch_size=4, epochs=3, shuffle=False, verbose=0)
    results.append(model.get_weights())
for weight, other in zip(*results):
    np.testing.assert_allclose(weight, other, rtol=1e-5, atol=1e-6)
print("equal")
"""


@pytest.mark.slow
@pytest.mark.skipif(not ON_TENSORFLOW, reason="a strategy of TensorFlow")
def test_two_replicas_of_a_mirrored_strategy_update_as_keras():
    done = subprocess.run(
        [sys.executable, "-c", MIRRORED],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.stdout.strip().endswith("equal"), done.stderr
