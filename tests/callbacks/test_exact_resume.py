"""ExactResume goes on to the bit where a training run was killed."""

import functools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import (
    Dropout,
    FusedAdam,
    MaskedCrossentropy,
    Transformer,
    WarmupSchedule,
)
from keras_transformer.callbacks import ExactResume
from tests.backends import BACKEND, array, on_tensorflow, quick_compilation

EPOCHS = 4
SCRIPT = Path(__file__).parent / "train_and_resume.py"
IDS = np.random.default_rng(0).integers(4, 20, (EPOCHS, 3, 12, 6)).astype("int32")


def data_of(epoch):
    """Inputs and labels of an epoch, which follow from its number."""
    sources, inputs, labels = IDS[epoch]
    return (sources, inputs), labels


def new_model(policy="float32", accumulate=None, width=8):
    """A small model with dropout, which reads the sources alone."""
    inputs = [keras.Input((6,), dtype="int32") for _ in range(2)]
    hidden = keras.layers.Embedding(20, width, dtype=policy)(inputs[0])
    hidden = Dropout(0.3, dtype=policy)(hidden)
    model = keras.Model(inputs, keras.layers.Dense(20, dtype=policy)(hidden))
    optimizer = FusedAdam(WarmupSchedule(8, 5), beta_2=0.98, gradient_accumulation_steps=accumulate)
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=4.0)
    model.compile(optimizer, MaskedCrossentropy(0.1), jit_compile=BACKEND == "jax")
    return model


def new_transformer(r_drop=0.0):
    size = dict(num_layers=1, d_model=8, num_heads=2, d_ff=8)
    model = Transformer(20, **size, dropout=0.3, r_drop=r_drop)
    model.build()
    optimizer = FusedAdam(WarmupSchedule(8, 5), beta_2=0.98)
    model.compile(optimizer, MaskedCrossentropy(0.1), jit_compile=BACKEND == "jax")
    return model


def train(directory, until=EPOCHS, seed=1, make=new_model, copy=None, batch_size=4, **options):
    """Trains in one process up to `until`, going on from what is in the directory.

    The state after the first epoch is copied to `copy`, as that of a training run that ends there.
    """
    keras.utils.set_random_seed(seed)
    model, resume = make(**options), ExactResume(directory)
    for epoch in range(resume.epoch, until):
        fit = dict(shuffle=False, initial_epoch=epoch, epochs=epoch + 1, verbose=0)
        model.fit(*data_of(epoch), batch_size=batch_size, **fit, callbacks=[resume])
        if copy is not None and epoch == 0:
            shutil.copytree(directory, copy)
    return [array(weight) for weight in model.weights], resume


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "mixed_float16"},
        pytest.param({"policy": "mixed_bfloat16"}, marks=pytest.mark.slow),
        {"accumulate": 2},  # of three batches an epoch: it ends within an update
        pytest.param({"make": new_transformer, "r_drop": 2.0}, marks=pytest.mark.slow),
    ],
)
def test_a_new_process_ends_with_the_same_bits(tmp_path, options):
    whole, _ = train(tmp_path / "whole", copy=tmp_path / "parts", **options)
    # Other seeds: nothing but the file may carry the state.
    train(tmp_path / "parts", until=3, seed=2, **options)
    parts, resume = train(tmp_path / "parts", seed=3, **options)
    assert resume.epoch == EPOCHS
    for expected, weight in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_a_transformer_goes_on_with_the_same_bits(tmp_path):
    def make():
        model = new_transformer()
        model.run_eagerly = BACKEND == "tensorflow"  # for two steps no graph is worth its time
        return model

    fit = dict(make=make, until=2, batch_size=12)
    whole, _ = train(tmp_path / "whole", copy=tmp_path / "parts", **fit)
    parts, _ = train(tmp_path / "parts", seed=2, **fit)
    for expected, weight in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_without_the_seeds_of_the_dropout_it_would_not():
    """The tests above can fail: other noise gives other weights."""
    weights = []
    for seed in (1, 2):
        keras.utils.set_random_seed(1)
        model = new_model()
        for variable in model.variables:
            if "seed" in variable.path:
                variable.assign(np.array([seed, 0]))
        model.fit(*data_of(0), batch_size=4, shuffle=False, verbose=0)
        weights.append([array(weight) for weight in model.weights])
    assert any((a != b).any() for a, b in zip(*weights, strict=True))


def test_fit_that_begins_elsewhere_is_refused(tmp_path):
    train(tmp_path, until=2)
    resume = ExactResume(tmp_path)
    assert resume.epoch == 2
    with pytest.raises(ValueError, match="pass initial_epoch=2. Received: initial_epoch=0"):
        new_model().fit(*data_of(0), verbose=0, callbacks=[resume])


def train_with_moving_average(directory, until, order):
    """As `train`, by `fit` of several epochs with Keras's swap to the moving average after each."""
    keras.utils.set_random_seed(1)
    model, resume = new_model(), ExactResume(directory)
    optimizer = FusedAdam(0.01, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, MaskedCrossentropy(), jit_compile=BACKEND == "jax")
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    callbacks = [resume, swap] if order == "before" else [swap, resume]
    fit = dict(batch_size=4, shuffle=False, initial_epoch=resume.epoch, epochs=until, verbose=0)
    model.fit(*data_of(0), **fit, callbacks=callbacks)
    return [array(weight) for weight in model.weights]


def test_before_the_swap_to_a_moving_average_it_goes_on_but_for_rounding(tmp_path):
    whole = train_with_moving_average(tmp_path / "whole", EPOCHS, "before")
    train_with_moving_average(tmp_path / "parts", 2, "before")
    parts = train_with_moving_average(tmp_path / "parts", EPOCHS, "before")
    for expected, weight in zip(whole, parts, strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-5)


def test_behind_that_swap_it_is_refused(tmp_path):
    """It would save the average as the weights, and a resumed training would go on with it."""
    with pytest.raises(ValueError, match="Put ExactResume before .* other weights, by up to"):
        train_with_moving_average(tmp_path, 2, "behind")


@pytest.mark.parametrize("case", ["diverged", "frozen"])
def test_a_training_without_numbers_or_weights_to_train_is_no_other_training(tmp_path, case):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.trainable = case != "frozen"
    model.compile("sgd", "mse", jit_compile=BACKEND == "jax")
    if case == "diverged":
        model.layers[-1].kernel.assign([[np.nan]])
    data = np.ones((4, 1), "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras says that nothing can be trained
        model.fit(data, data, epochs=2, verbose=0, callbacks=[ExactResume(tmp_path)])
    assert ExactResume(tmp_path).epoch == 2


class StopsAt(keras.callbacks.Callback):
    """Ends `fit` after a batch, as `TerminateOnNaN` does; or at the end of an epoch."""

    def __init__(self, epoch, batch=None):
        super().__init__()
        self.at = epoch, batch

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training |= (self.epoch, batch) == self.at

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training |= (epoch, None) == self.at


FIT = dict(batch_size=4, shuffle=False, epochs=EPOCHS, verbose=0)


@functools.cache
def weights_without_a_stop():
    keras.utils.set_random_seed(1)
    model = new_model()
    model.fit(*data_of(0), **FIT)
    return [array(weight) for weight in model.weights]


@pytest.mark.parametrize(
    ("batch", "epochs"),
    [pytest.param(0, 1, marks=pytest.mark.slow), (1, 1), (2, 2), (None, 2)],
)
def test_an_epoch_left_before_its_last_batch_is_begun_again(tmp_path, batch, epochs):
    expected = weights_without_a_stop()
    keras.utils.set_random_seed(1)
    model, resume = new_model(), ExactResume(tmp_path)
    model.fit(*data_of(0), **FIT, callbacks=[StopsAt(1, batch), resume])
    assert resume.epoch == ExactResume(tmp_path).epoch == epochs
    model.fit(*data_of(0), **FIT, initial_epoch=resume.epoch, callbacks=[resume])
    for weight, value in zip(model.weights, expected, strict=True):
        np.testing.assert_array_equal(array(weight), value)


def test_a_loss_that_is_no_number_leaves_the_last_state_in_place(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=BACKEND == "jax")
    data = np.ones((4, 1), "float32")
    fit = dict(batch_size=2, shuffle=False, verbose=0)
    model.fit(data, data, **fit, callbacks=[ExactResume(tmp_path)])
    labels = np.array([[1], [1], [1], [np.nan]], "float32")  # in the last batch
    callbacks = [keras.callbacks.TerminateOnNaN(), ExactResume(tmp_path)]
    model.fit(data, labels, **fit, initial_epoch=1, epochs=3, callbacks=callbacks)
    resume = ExactResume(tmp_path)
    assert resume.epoch == 1
    model.fit(data, data, **fit, initial_epoch=1, epochs=2, callbacks=[resume])
    assert np.isfinite(array(model.layers[-1].kernel)).all()


def test_another_model_is_refused(tmp_path):
    train(tmp_path, until=1)
    other = new_model(width=9)
    fit = dict(batch_size=4, shuffle=False, initial_epoch=1, epochs=2, verbose=0)
    with pytest.raises(ValueError, match="must hold the variables of this model and optimizer"):
        other.fit(*data_of(1), **fit, callbacks=[ExactResume(tmp_path)])


@pytest.mark.parametrize("wrapped", [False, True])
def test_another_kind_of_optimizer_is_refused(tmp_path, wrapped):
    # AdamW and FusedAdam have variables of the same names and shapes.
    train(tmp_path, until=1, policy="mixed_float16" if wrapped else "float32")
    other, optimizer = new_model(), keras.optimizers.AdamW()
    saved, received = "FusedAdam", "AdamW"
    if wrapped:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        saved, received = f"LossScaleOptimizer of {saved}", f"LossScaleOptimizer of {received}"
    other.compile(optimizer, MaskedCrossentropy(), jit_compile=BACKEND == "jax")
    fit = dict(batch_size=4, shuffle=False, initial_epoch=1, epochs=2, verbose=0)
    with pytest.raises(ValueError, match=rf"was saved with, {saved}\. Received: {received}"):
        other.fit(*data_of(1), **fit, callbacks=[ExactResume(tmp_path)])


def test_an_unbuilt_model_is_refused(tmp_path):
    resume = ExactResume(tmp_path)
    model = keras.Sequential([keras.layers.Dense(1)])
    resume.set_model(model)
    with pytest.raises(ValueError, match="must be built before `fit`"):
        resume.on_train_begin()


def test_a_broken_file_says_so(tmp_path):
    (tmp_path / "state.npz").write_bytes(b"PK not really")
    with pytest.raises(ValueError, match="must be a file of arrays of this package"):
        ExactResume(tmp_path)


@on_tensorflow
@pytest.mark.slow
def test_processes_that_see_different_states_are_refused(tmp_path):
    """Two real processes: of other epochs, of other weights, and one without a state."""
    pytest.importorskip("jax")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])}
    command = [sys.executable, str(SCRIPT.with_name("resume_in_two_processes.py")), address]
    both = [
        subprocess.Popen([*command, number, tmp_path], env=environment, stdout=subprocess.PIPE)
        for number in "01"
    ]
    for process in both:
        printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        found = json.loads(printed.splitlines()[-1])
        assert [found.pop(name) for name in ("none", "same", "other seed")] == [1, 2, 1]
        for name, said in found.items():
            assert said.startswith(f"the state in {tmp_path / name}"), said
            assert "must be the same in all processes" in said
        assert found.keys() == {"epoch", "missing", "weights"}


@on_tensorflow
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("tensorflow", marks=pytest.mark.slow),
        pytest.param("jax", marks=pytest.mark.long),
    ],
)
def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path, backend):
    """Real processes, real text, `kill -9`; the training is longer than any of the lives.

    With the mean of the last epochs, and the best model by the quality of that mean. On TensorFlow
    from texts, on JAX from ids and by XLA.
    """
    pytest.importorskip(backend)
    environment = quick_compilation(tmp_path / "programs") if backend == "jax" else {}
    run = functools.partial(process_of, backend, **environment)
    whole = run(tmp_path / "whole")
    assert whole.wait() == 0
    seed = random.SystemRandom().randrange(2**32)
    print(f"moments drawn with seed {seed}")  # shown when the test fails
    draw, state = random.Random(seed), tmp_path / "killed" / "state.npz"
    process = run(tmp_path / "killed")  # its first life ends while it loads or compiles
    time.sleep(draw.uniform(0, 5))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = state.stat().st_mtime_ns if state.exists() else 0
    process = run(tmp_path / "killed")
    deadline = time.monotonic() + 300
    # It lives until an epoch is saved, and then for a random while.
    while time.monotonic() < deadline:
        if state.exists() and state.stat().st_mtime_ns != before:
            break
        time.sleep(0.02)
    time.sleep(draw.uniform(0, 0.5))
    assert process.poll() is None, "it ended before it was killed: give it more epochs"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert run(tmp_path / "killed").wait() == 0
    for file in ("final.npz", "state.npz"):  # the mean of the last epochs, and the last itself
        expected, found = (np.load(tmp_path / name / file) for name in ("whole", "killed"))
        assert expected.files == found.files
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name])
    expected, found = (tmp_path / name / "best.keras" for name in ("whole", "killed"))
    figures = expected.with_name("best.keras.json").read_text(encoding="utf-8")
    assert found.with_name("best.keras.json").read_text(encoding="utf-8") == figures
    expected, found = map(keras.models.load_model, (expected, found))
    for weight, same in zip(expected.get_weights(), found.get_weights(), strict=True):
        np.testing.assert_array_equal(same, weight)


def process_of(backend, directory, **environment):
    environment = {
        **os.environ,
        **environment,
        "KERAS_BACKEND": backend,
        "PYTHONPATH": str(SCRIPT.parents[2]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    return subprocess.Popen([sys.executable, str(SCRIPT), str(directory)], env=environment)
