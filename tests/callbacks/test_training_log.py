"""TrainingLog's figures are what a calculation by hand gives."""

import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    MaskedCrossentropy,
    PaddingRatio,
    TokenCount,
    Transformer,
    WarmupSchedule,
)
from keras_transformer.callbacks import TrainingLog
from tests.backends import BACKEND, array, gradients

SOURCES = np.array([[5, 6, 3, 0], [7, 3, 0, 0]] * 4, "int32")
INPUTS = np.array([[2, 8, 9], [2, 4, 0]] * 4, "int32")
LABELS = np.array([[8, 9, 3], [4, 3, 0]] * 4, "int32")


def small_model():
    """Reads the target inputs alone, and is traced in a moment."""
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    hidden = keras.layers.Embedding(11, 8)(inputs[1])
    return keras.Model(inputs, keras.layers.Dense(11)(hidden))


def transformer():
    model = Transformer(11, num_layers=1, d_model=8, num_heads=2, d_ff=8, dropout=0.0)
    model.build()
    return model


def compiled(optimizer, metrics=(TokenCount, PaddingRatio), make=small_model):
    keras.utils.set_random_seed(1)
    model = make()
    metrics = [metric() for metric in metrics]
    # XLA on the CPU has no use here, and PyTorch's compiler is not asked for.
    model.compile(optimizer, MaskedCrossentropy(), metrics=metrics, jit_compile=BACKEND == "jax")
    return model


def adam(**arguments):
    return keras.optimizers.Adam(WarmupSchedule(8, 10), **arguments)


def test_each_epoch_has_rate_norm_and_tokens(capsys):
    model = compiled(adam())
    fit = dict(batch_size=2, epochs=2, verbose=0, callbacks=[TrainingLog(every=2)])
    history = model.fit((SOURCES, INPUTS), LABELS, **fit).history
    assert history["tokens"] == [20, 20]
    assert history["padding_ratio"] == pytest.approx([1 / 6] * 2)
    # Keras gives the rate of the next update: four have been made, then eight.
    expected = [float(WarmupSchedule(8, 10)(step)) for step in (4, 8)]
    assert history["learning_rate"] == pytest.approx(expected)
    assert min(history["gradient_norm"] + history["tokens_per_second"]) > 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.match(r"  epoch (\d), batch (\d): loss ", line).groups() for line in lines] == [
        ("1", "2"), ("1", "4"), ("2", "2"), ("2", "4"),
    ]  # fmt: skip
    for name in ("tokens_per_second", "learning_rate", "gradient_norm", "padding_ratio"):
        assert all(f"{name} " in line for line in lines)


def test_lines_are_counted_on_from_epoch_to_epoch(capsys):
    """Epochs shorter than from one line to the next have lines too."""
    model = compiled(adam())
    fit = dict(batch_size=2, epochs=3, verbose=0, callbacks=[TrainingLog(every=6)])
    history = model.fit((SOURCES, INPUTS), LABELS, **fit).history
    lines = capsys.readouterr().out.splitlines()
    assert [re.match(r"  epoch (\d), batch (\d): loss ", line).groups() for line in lines] == [
        ("2", "2"), ("3", "4"),
    ]  # fmt: skip
    assert min(history["gradient_norm"]) > 0
    assert len(set(history["gradient_norm"])) == 3
    assert f"gradient_norm {history['gradient_norm'][2]:.4g}" in lines[1]


def test_a_line_has_the_speed_of_all_batches_since_the_last(capsys, monkeypatch):
    log = TrainingLog(every=3)
    log.set_model(compiled(keras.optimizers.SGD(0.1)))
    clock = iter((0.0, 10.0, 100.0, 105.0, 106.0, 200.0, 203.0, 204.0))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    log.on_train_begin()
    for epoch in range(3):
        log.on_epoch_begin(epoch)
        for batch in range(2):
            log.on_train_batch_begin(batch)
            log.on_train_batch_end(batch, {"tokens": 10.0 * (batch + 1)})
        log.on_test_begin()
        log.on_epoch_end(epoch, {"tokens": 20.0})
    lines = capsys.readouterr().out.splitlines()
    # 20 tokens in 10 seconds and 10 in 5; then 10 in 1 and 20 in 3.
    assert [line.split(": ")[0] for line in lines] == ["  epoch 2, batch 1", "  epoch 3, batch 2"]
    assert "tokens_per_second 2," in lines[0]
    assert "tokens_per_second 7.5," in lines[1]


@pytest.mark.parametrize("make", [small_model, transformer])
def test_the_norm_is_that_of_the_gradient(make):
    model = compiled(adam(), make=make)
    model.run_eagerly = BACKEND == "tensorflow"  # for one step no graph is worth its time
    loss = MaskedCrossentropy()
    _, by_weight = gradients(lambda: loss(LABELS, model((SOURCES, INPUTS))), [], model)
    expected = np.sqrt(sum((gradient**2).sum() for gradient in by_weight))
    fit = dict(batch_size=8, verbose=0, shuffle=False, callbacks=[TrainingLog(every=1)])
    history = model.fit((SOURCES, INPUTS), LABELS, **fit).history
    assert history["gradient_norm"] == pytest.approx([expected], rel=1e-4)


@pytest.mark.parametrize(
    "every", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3)), 100]
)
def test_the_norm_of_accumulated_batches_is_that_of_the_update(every):
    """Two equal batches make one update: its gradient is that of either."""
    model = compiled(adam(gradient_accumulation_steps=2))
    loss, half = MaskedCrossentropy(), slice(0, 4)
    _, by_weight = gradients(lambda: loss(LABELS, model((SOURCES, INPUTS))), [], model)
    expected = np.sqrt(sum((gradient**2).sum() for gradient in by_weight))
    np.testing.assert_array_equal(LABELS[half], LABELS[4:])
    callbacks = [TrainingLog(every=every, verbose=False)]
    fit = dict(batch_size=4, verbose=0, shuffle=False, callbacks=callbacks)
    history = model.fit((SOURCES, INPUTS), LABELS, **fit).history
    assert history["gradient_norm"] == pytest.approx([expected], rel=1e-4)


def test_other_optimizers_and_metrics_are_no_trouble(capsys):
    model = compiled(keras.optimizers.SGD(0.1), metrics=[])
    fit = dict(batch_size=4, verbose=0, callbacks=[TrainingLog(every=1)])
    history = model.fit((SOURCES, INPUTS), LABELS, **fit).history
    assert history["learning_rate"] == pytest.approx([0.1])
    assert not {"gradient_norm", "tokens_per_second"} & {*history}
    assert "loss" in capsys.readouterr().out


def test_a_quiet_log_prints_nothing(capsys):
    model = compiled(adam())
    fit = dict(batch_size=4, verbose=0, callbacks=[TrainingLog(every=1, verbose=False)])
    model.fit((SOURCES, INPUTS), LABELS, **fit)
    assert not capsys.readouterr().out


def test_validation_is_no_time_of_training(monkeypatch):
    log = TrainingLog()
    log.set_model(compiled(adam()))
    clock = iter((0.0, 10.0))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    log.on_train_begin()
    log.on_epoch_begin(0)
    log.on_test_begin()
    logs = {"tokens": ops.convert_to_tensor(200.0)}
    log.on_epoch_end(0, logs)
    assert logs["tokens_per_second"] == 20
    assert array(log.model.optimizer.learning_rate) > 0


@pytest.mark.skipif(BACKEND == "torch", reason="Keras's PyTorch trainer makes one step a call")
def test_several_steps_an_execution_are_counted_and_have_no_norm(capsys):
    model = compiled(adam())
    model.steps_per_execution = 2
    fit = dict(batch_size=2, epochs=1, verbose=0, callbacks=[TrainingLog(every=4)])
    history = model.fit((SOURCES, INPUTS), LABELS, **fit).history
    assert "gradient_norm" not in history
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("  epoch 1, batch 4: ")


def test_an_optimizer_whose_moments_move_otherwise_has_no_norm():
    model = compiled(keras.optimizers.Lion(1e-3))
    fit = dict(batch_size=2, epochs=1, verbose=0, callbacks=[TrainingLog()])
    assert "gradient_norm" not in model.fit((SOURCES, INPUTS), LABELS, **fit).history


@pytest.mark.parametrize("batches", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_every_epoch_has_a_norm_also_one_without_an_update(batches):
    """An update is 4 batches: the first epoch of 3 has none, and 0."""
    model = compiled(adam(gradient_accumulation_steps=4))
    rows = slice(0, 2 * batches)
    fit = dict(batch_size=2, epochs=3, verbose=0, callbacks=[TrainingLog(verbose=False)])
    history = model.fit((SOURCES[rows], INPUTS[rows]), LABELS[rows], **fit).history
    assert len(history["gradient_norm"]) == 3
    assert (history["gradient_norm"][0] == 0) == (batches == 3)
    assert min(history["gradient_norm"][1:]) > 0


def test_a_model_that_the_first_batch_builds_has_the_norm_of_its_first_update():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.Adam(0.0), "mse", jit_compile=BACKEND == "jax")
    data = np.array([[3.0], [3.0]], "float32")
    fit = dict(batch_size=1, epochs=2, verbose=0, callbacks=[TrainingLog(verbose=False)])
    history = model.fit(data, 0 * data, **fit).history
    # (3 w + b)^2 with w = 1, b = 0: 2 (3 w + b) (3, 1) = (18, 6), of norm 6 sqrt(10).
    assert history["gradient_norm"] == pytest.approx([6 * 10**0.5] * 2, rel=1e-5)
