"""The dropout is as random as Keras's: rate, independence, reproducibility, gradient."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import EncoderLayer
from keras_transformer.layers.dropout import Dropout, ReluDropout, random_words
from tests.backends import BACKEND, gradients, on_tensorflow

SHAPE = (64, 32, 32)  # 65,536 elements
JIT = BACKEND != "torch"


def masks(layer, number=1, shape=SHAPE):
    """What `number` training calls keep, as 0 and 1: (number, size)."""
    ones = np.ones(shape, "float32")
    outputs = [ops.convert_to_numpy(layer(ones, training=True)) for _ in range(number)]
    return np.array([(output > 0).ravel() for output in outputs], "float64")


def correlation(first, second):
    return np.corrcoef(first, second)[0, 1]


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_the_rate_is_kept_and_what_stays_is_scaled(rate):
    layer = Dropout(rate, seed=3)
    output = ops.convert_to_numpy(layer(np.ones(SHAPE, "float32"), training=True))
    assert np.unique(output) == pytest.approx([0, 1 / (1 - rate)], rel=1e-6)
    deviation = np.sqrt(rate * (1 - rate) / output.size)
    assert (output == 0).mean() == pytest.approx(rate, abs=4.5 * deviation)


@pytest.mark.parametrize("seed", [0, 1, 2, 123_456_789])
def test_positions_are_independent(seed):
    (kept,) = masks(Dropout(0.3, seed=seed))
    for lag in [*range(1, 20), 31, 32, 33, 64, 128, 256, 1023, 1024, 1025, 4096, 32768]:
        assert abs(correlation(kept[lag:], kept[:-lag])) < 4.5 / np.sqrt(len(kept) - lag), lag
    # Rows, columns and planes all have the rate: no axis is favoured.
    cube = kept.reshape(SHAPE)
    for axis in range(3):
        others = tuple(a for a in range(3) if a != axis)
        means = cube.mean(axis=others)
        deviation = np.sqrt(0.3 * 0.7 / (cube.size / cube.shape[axis]))
        assert np.abs(means - 0.7).max() < 5 * deviation


def test_steps_and_layers_are_independent():
    """Also when one mask is moved along: of 36,000 correlations, as many are large as by chance."""
    kept = np.concatenate([masks(Dropout(0.3, seed=seed), 12) for seed in (1, 2, 3, 7, 1000)])
    kept = (kept - 0.7) / np.sqrt(0.3 * 0.7)
    size = kept.shape[1]
    found = []
    for lag in (0, 1, 2, 3, 7, 31, 32, 64, 1024, 4096):
        deviations = kept[:, lag:] @ kept[:, : size - lag].T / np.sqrt(size - lag)
        found.append(deviations[np.triu_indices(len(kept), 1)] if lag == 0 else deviations.ravel())
    found = np.concatenate(found)
    assert found.std() == pytest.approx(1, abs=0.02)
    assert np.abs(found).max() < 5.3
    assert (np.abs(found) > 4).sum() <= 10  # 2.2 are expected


def test_each_replica_drops_elements_of_its_own(monkeypatch):
    first, again, second, third = (
        masks_of_replica(number, monkeypatch) for number in (None, 0, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    rows = [*first, *second, *third]
    for place, row in enumerate(rows):
        for other in rows[:place]:
            assert abs(correlation(row, other)) < 4.5 / np.sqrt(len(row))


def masks_of_replica(number, monkeypatch):
    """What the first two training calls of a replica keep; None is outside of one."""
    with monkeypatch.context() as patch:
        if number is not None:
            patch.setattr("keras_transformer.layers.dropout.replica_index", lambda: number)
        return masks(Dropout(0.3, seed=3), 2)


def test_each_element_is_dropped_as_often_over_the_steps():
    kept = masks(Dropout(0.5, seed=5), 100, shape=(512,))
    counts = kept.sum(axis=0)
    # A sum of squares of 512 standard normals: 512, give or take 32.
    assert ((counts - 50) ** 2 / 25).sum() == pytest.approx(512, abs=4.5 * 32)


def test_the_words_are_uniform_in_every_byte_and_bit():
    words = ops.convert_to_numpy(random_words(np.array([11, 4], "int32"), 2**18)).astype("uint32")
    for shift in (0, 8, 16, 24):
        counts = np.bincount(words >> shift & 255, minlength=256)
        chi_squared = ((counts - 1024) ** 2 / 1024).sum()
        assert chi_squared == pytest.approx(255, abs=4.5 * np.sqrt(2 * 255)), shift
    bits = (words[:, None] >> np.arange(32, dtype="uint32") & 1).astype("float64")
    correlations = np.corrcoef(bits.T) - np.eye(32)
    assert np.abs(correlations).max() < 4.5 / np.sqrt(len(words))


def test_one_bit_of_the_seed_the_step_or_the_position_changes_half_of_the_bits():
    """The avalanche: 16 of 32 bits flip on average, each with probability 1/2."""

    def bits(seed, step):
        words = ops.convert_to_numpy(random_words(np.array([seed, step], "int32"), 4096))
        return (words.astype("uint32")[:, None] >> np.arange(32, dtype="uint32") & 1) == 1

    before = bits(77, 5)
    for changed in (bits(77, 4), bits(76, 5), bits(77 ^ 2**20, 5), np.roll(before, 1, axis=0)):
        flipped = (before != changed).mean(axis=0)
        assert np.abs(flipped - 0.5).max() < 4.5 * 0.5 / np.sqrt(4096)


def test_a_seed_gives_the_same_masks_on_every_backend():
    kept = masks(Dropout(0.5, seed=9), 3, shape=(16,)).astype(int)
    # Computed once by NumPy from the formula: see `words_by_numpy`.
    words = [words_by_numpy(9, step, 8) for step in range(3)]
    expected = [np.concatenate([word >= 0, word << 16 >= 0]) for word in words]
    np.testing.assert_array_equal(kept, np.array(expected).astype(int))
    assert len({tuple(mask) for mask in kept}) == 3


@on_tensorflow
def test_its_hash_is_few_operations_of_a_graph():
    """Each takes time and memory when XLA compiles: a step of the paper's base has 62 dropouts."""
    import tensorflow as tf

    layer = Dropout(0.5, seed=4)
    step = tf.function(lambda inputs: layer(inputs, training=True), autograph=False)
    graph = step.get_concrete_function(tf.TensorSpec((4, 6))).graph
    assert len(graph.get_operations()) <= 68


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5)])
def test_an_odd_number_of_elements_has_as_many(shape):
    layer = Dropout(0.5, seed=4)
    outputs = [
        ops.convert_to_numpy(layer(np.ones(shape, "float32"), training=True)) for _ in "abcdef"
    ]
    assert {output.shape for output in outputs} == {shape}
    assert (np.array(outputs) > 0).any(axis=0).any()


@pytest.mark.parametrize("rate", [1e-9, 1 - 1e-9])
def test_a_rate_next_to_0_or_1_is_no_error(rate):
    output = Dropout(rate, seed=4)(np.ones(1000, "float32"), training=True)
    assert abs((ops.convert_to_numpy(output) == 0).mean() - rate) < 0.01


def words_by_numpy(seed, step, size):
    """The formula again, on unsigned integers of NumPy."""

    def mix(words, key=0):
        words = np.uint32(words) ^ (np.uint32(words) >> np.uint32(16))
        words = words * np.uint32(0x7FEB352D) + np.uint32(key)
        words = (words ^ (words >> np.uint32(15))) * np.uint32(0x846CA68B)
        return words ^ (words >> np.uint32(16))

    with np.errstate(over="ignore"):
        first = mix(np.uint32(seed) + mix(np.uint32(step)))
        second = mix(np.uint32(step) + mix(np.uint32(seed)))
        return mix(np.arange(size, dtype="uint32") ^ first, second).astype("int32")


def test_the_gradient_flows_through_what_is_kept():
    layer = Dropout(0.4, seed=2)
    inputs = np.random.default_rng(0).normal(size=(8, 50)).astype("float32")
    twin = Dropout(0.4, seed=2)
    kept = ops.convert_to_numpy(twin(np.ones_like(inputs), training=True))
    by_input, _ = gradients(lambda x: ops.sum(layer(x, training=True) ** 2), [inputs])
    np.testing.assert_allclose(by_input[0], 2 * inputs * kept**2, rtol=1e-5)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_relu_dropout_is_the_dropout_of_the_relu(rate):
    """With the masks, values and gradients of the two apart, also where the input is 0."""
    inputs = np.random.default_rng(0).normal(size=(8, 50)).astype("float32")
    inputs[0] = 0
    weights = ops.convert_to_tensor(np.linspace(-1, 1, 50, dtype="float32"))
    layer, apart = ReluDropout(rate, seed=2), Dropout(rate, seed=2)
    for _ in range(2):
        found, expected = (
            gradients(lambda x, drop=drop: ops.sum(drop(x) ** 3 * weights), [inputs])[0][0]
            for drop in (
                lambda x: layer(x, training=True),
                lambda x: apart(ops.relu(x), training=True),
            )
        )
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        outputs = ops.convert_to_numpy(layer(inputs, training=True))
        by_two = ops.convert_to_numpy(apart(np.maximum(inputs, 0), training=True))
        np.testing.assert_allclose(outputs, by_two, rtol=1e-6)
    np.testing.assert_array_equal(layer(inputs), np.maximum(inputs, 0))
    of_nan = layer(np.full((1, 50), np.nan, "float32"), training=True)
    assert np.isnan(ops.convert_to_numpy(of_nan)).any()  # nothing is hidden
    share = (outputs > 0).sum() / (inputs > 0).sum()
    assert share == pytest.approx(1 - rate, abs=0.15)  # of 175: four deviations


def test_it_is_off_outside_training_and_keeps_keras_arguments():
    inputs = np.ones((2, 3), "float32")
    layer = Dropout(0.5, seed=1)
    np.testing.assert_array_equal(layer(inputs), inputs)
    np.testing.assert_array_equal(Dropout(0.0)(inputs, training=True), inputs)
    assert (ops.convert_to_numpy(Dropout(1.0)(inputs, training=True)) == 0).all()
    by_column = Dropout(0.5, noise_shape=(1, 64), seed=1)
    output = ops.convert_to_numpy(by_column(np.ones((8, 64), "float32"), training=True))
    assert (output == output[:1]).all()
    twin = Dropout.from_config(layer.get_config())
    np.testing.assert_array_equal(masks(twin), masks(Dropout(0.5, seed=1)))
    with pytest.raises(ValueError, match="rate"):
        Dropout(1.5)
    assert isinstance(layer, keras.layers.Dropout)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_floats_keep_their_type(dtype):
    layer = Dropout(0.5, seed=1, dtype=dtype)
    output = layer(ops.ones((4, 100), dtype), training=True)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    values = ops.convert_to_numpy(ops.cast(output, "float32"))
    assert set(np.unique(values)) == {0, 2}


def test_fit_draws_new_masks_at_every_step():
    """Inside a compiled training step too the state of the seed goes on."""
    inputs = keras.Input((64,))
    total = keras.layers.Dense(1, kernel_initializer="ones")
    model = keras.Model(inputs, total(Dropout(0.5, seed=1)(inputs)))
    # The weights stand still, so that only the masks can change the loss.
    model.compile(keras.optimizers.SGD(0.0), loss="mean_absolute_error", jit_compile=JIT)
    seen = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(float(logs["loss"]))
    )
    model.fit(np.ones((1, 64)), np.zeros((1, 1)), epochs=6, verbose=0, callbacks=[note])
    assert len(set(seen)) > 2
    assert seen == pytest.approx([64] * 6, abs=40)


class Scorer(keras.Model):
    """A user's model, which hands `training` on to its layer or leaves that to Keras."""

    def __init__(self, hands_on):
        super().__init__()
        self.layer, self.hands_on = EncoderLayer(num_heads=2, d_ff=8, dropout=0.5), hands_on

    def call(self, inputs, training=None):
        return self.layer(inputs, **({"training": training} if self.hands_on else {}))


@pytest.mark.parametrize("hands_on", [True, False])
def test_fit_drops_in_a_users_model_that_hands_training_on(hands_on):
    """On JAX `fit` goes around `Model.__call__`, so that Keras does not hand `training` on."""
    model = Scorer(hands_on)
    # A traced step stands in the test above; here the question is what `fit` hands on.
    eagerly = {"run_eagerly": True} if BACKEND == "tensorflow" else {"jit_compile": JIT}
    model.compile(keras.optimizers.SGD(0.0), "mean_absolute_error", **eagerly)
    inputs = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    fit = {"verbose": 0, "shuffle": False}  # another order of rows rounds differently
    losses = [model.fit(inputs, 0 * inputs, **fit).history["loss"][0] for _ in range(2)]
    # When this fails on JAX, Keras has mended it: the line of docs/training.md can go.
    assert (losses[0] != losses[1]) == (hands_on or BACKEND != "jax")
