"""Keras's callbacks, and ours, work with figures that are measured every few epochs."""

import csv
import json

import keras
import numpy as np
import pytest

from keras_transformer import plots
from keras_transformer.callbacks import (
    AverageCheckpoints,
    ExactResume,
    MeasuredTensorBoard,
    TrainingLog,
    TranslationQuality,
)
from tests.backends import BACKEND, array
from tests.event_files import values_in_tensorboard
from tests.selection import spread

TEXTS = [f"text{number}" for number in range(50)]  # of one word, and "other" is one more edit
DATA = np.ones((4, 1), "float32")
NAME = "val_exact_match"
MODES = {"exact_match": "max", "word_error_rate": "min"}  # of texts of one word: x and 100 - x


def new_model(optimizer="sgd"):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.layers[-1].kernel.assign([[0.0]])
    model.compile(optimizer, "mse", jit_compile=BACKEND == "jax")
    return model


def quality_of(figures, metrics=("exact_match",), every=5, **arguments):
    """Measures these figures, one after the other, in percent."""
    left = iter(figures)

    def translate(texts):
        equal = round(next(left) / 2)
        return texts[:equal] + ["other"] * (len(texts) - equal)

    return TranslationQuality(
        translate, TEXTS, TEXTS, metrics=metrics, every=every, verbose=False, **arguments
    )


class NoteWeights(keras.callbacks.Callback):
    """Notes the kernel after each epoch, by its number."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def on_epoch_end(self, epoch, logs=None):
        self.seen[epoch + 1] = array(self.model.layers[-1].kernel)


def fit(callbacks, epochs, model=None, **arguments):
    """Trains; gives the logs."""
    model = model or new_model()
    plan = dict(epochs=epochs, verbose=0, callbacks=callbacks) | arguments
    return model.fit(DATA, 9 * DATA, **plan).history


def test_while_each_measurement_is_better_nothing_stops_and_each_is_kept(tmp_path):
    quality = quality_of(range(2, 100, 2))
    stop = keras.callbacks.EarlyStopping(NAME, mode="max", patience=15)
    file = tmp_path / "{epoch}-{val_exact_match:.0f}.keras"
    save = keras.callbacks.ModelCheckpoint(file, NAME, mode="max", save_best_only=True)
    logs = fit([quality, stop, save], 30)
    assert len(logs[NAME]) == 30
    assert stop.best == save.best == quality.best["exact_match"] == 14
    measured = [1, *range(5, 31, 5)]
    expected = {f"{epoch}-{2 * n}.keras" for n, epoch in enumerate(measured, start=1)}
    assert {file.name for file in tmp_path.iterdir()} == expected


def test_an_epoch_between_repeats_the_last_figures_and_tells_their_epoch():
    logs = fit([quality_of([0, 20, 40, 10])], 12)
    assert logs[NAME] == [0] * 4 + [20] * 5 + [40] * 2 + [10]
    assert logs[f"{NAME}_epoch"] == [1] * 4 + [5] * 5 + [10] * 2 + [12]


def test_where_every_epoch_is_measured_no_epoch_need_be_told():
    logs = fit([quality_of([2, 4, 6], every=1)], 3)
    assert logs[NAME] == [2, 4, 6]
    assert f"{NAME}_epoch" not in logs


@pytest.mark.parametrize(("metric", "restore"), spread(MODES, [False, True]))
def test_patience_of_three_times_every_waits_for_three_measurements(metric, restore):
    mode = MODES[metric]
    note, quality = NoteWeights(), quality_of([0, 30, 20, 28, 30], metrics=[metric])
    stop = keras.callbacks.EarlyStopping(
        f"val_{metric}", mode=mode, patience=15, restore_best_weights=restore
    )
    model = new_model()
    logs = fit([note, quality, stop], 60, model)
    assert len(logs["loss"]) == 20  # 5 was the best; 10, 15 and 20 were not better
    assert stop.best == quality.best[metric] == (30 if mode == "max" else 70)
    assert stop.best_epoch + 1 == quality.best["epoch"] == 5
    np.testing.assert_array_equal(array(model.layers[-1].kernel), note.seen[5 if restore else 20])
    assert np.any(note.seen[5] != note.seen[20])


def test_a_model_checkpoint_holds_the_weights_that_were_measured(tmp_path):
    note, quality = NoteWeights(), quality_of([0, 20, 50, 40])
    file = tmp_path / "best.keras"
    save = keras.callbacks.ModelCheckpoint(file, NAME, mode="max", save_best_only=True)
    fit([note, quality, save], 15)
    kept = keras.saving.load_model(file).layers[-1].kernel
    np.testing.assert_array_equal(array(kept), note.seen[10])
    assert (save.best, quality.best["epoch"]) == (50, 10)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        pytest.param([0, 10, 20, 30, 40], [1.0] * 20, marks=pytest.mark.slow),
        # The rate of an epoch's log is that before the epoch's reduction.
        ([0, 10, 20, 20, 20], [1.0] * 15 + [0.5] * 5),
    ],
)
def test_the_rate_is_reduced_after_a_measurement_that_is_not_better(figures, expected):
    reduce = keras.callbacks.ReduceLROnPlateau(NAME, factor=0.5, patience=5, mode="max")
    model = new_model(keras.optimizers.SGD(1.0))
    logs = fit([quality_of(figures), reduce], 20, model)
    assert logs["learning_rate"] == expected
    last = float(array(model.optimizer.learning_rate))
    assert last == (1.0 if figures[-1] == 40 else 0.25)


@pytest.mark.parametrize("log_first", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_csv_has_every_figure_of_every_epoch(tmp_path, log_first):
    log = [TrainingLog(verbose=False)]
    quality = quality_of([0, 20, 40], metrics=["exact_match", "word_error_rate"])
    file = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    callbacks = [*log, quality, file] if log_first else [quality, *log, file]
    fit(callbacks, 10, new_model("adam"), validation_data=(DATA, DATA))
    with open(tmp_path / "log.csv", newline="", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    assert all(np.isfinite(float(value)) for row in rows for value in row.values())
    assert [float(row[NAME]) for row in rows] == [0] * 4 + [20] * 5 + [40]
    assert [float(row["val_word_error_rate"]) for row in rows] == [100] * 4 + [80] * 5 + [60]
    assert {"gradient_norm", f"{NAME}_epoch", "val_loss"} < {*rows[0]}


def test_a_learning_curve_joins_the_measured_epochs(tmp_path):
    pytest.importorskip("matplotlib")
    log = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    plan = dict(epochs=12, verbose=0, callbacks=[quality_of([0, 20, 20, 10]), log])
    history = new_model().fit(DATA, DATA, **plan)
    for drawn in (history, history.history, tmp_path / "log.csv"):
        for figure in (plots.learning_curve(drawn), plots.learning_curves({"run": drawn})):
            assert [panel.get_ylabel() for panel in figure.axes] == ["loss", "exact match"]
            (line,) = figure.axes[1].lines
            assert line.get_xydata().tolist() == [[1, 0], [5, 20], [10, 20], [12, 10]]


def test_tensorboard_has_a_number_in_each_epoch_and_ours_the_measured_ones(tmp_path):
    pytest.importorskip("tensorflow", reason="TensorBoard's files are written by TensorFlow")
    keras_board = keras.callbacks.TensorBoard(tmp_path / "keras")
    our_board = MeasuredTensorBoard(tmp_path / "ours")
    fit([quality_of([0, 20, 40]), keras_board, our_board], 10, validation_data=(DATA, DATA))

    def values(directory, name):
        found = values_in_tensorboard(tmp_path / directory / "validation")
        return [float(value) for tag, value in found if tag == f"epoch_{name}"]

    assert values("keras", "exact_match") == [0] * 4 + [20] * 5 + [40]
    assert values("ours", "exact_match") == [0, 20, 40]
    assert values("ours", "exact_match_epoch") == []
    assert len(values("ours", "loss")) == 10


def measuring_the_kernel(model, **arguments):
    """Figures that follow from the weights, so that they tell whose they are."""

    def translate(texts):
        equal = min(int(5 * array(model.layers[-1].kernel)[0, 0]), len(texts))
        return texts[:equal] + ["other"] * (len(texts) - equal)

    return TranslationQuality(
        translate, TEXTS, TEXTS, metrics=["exact_match"], every=5, verbose=False, **arguments
    )


def logs_of_a_training(directory, lives, averaged):
    """Logs of all epochs, of a training run that is killed after the epochs in `lives`."""
    logs = {}
    for last in lives:
        model = new_model(keras.optimizers.SGD(0.01))
        resume = ExactResume(directory)
        average = AverageCheckpoints(directory / "epochs", last=3, at_end=False)
        quality = measuring_the_kernel(
            model,
            filepath=directory / "best.keras",
            average=average if averaged else None,
            at_end=False,  # a life that is killed has no last epoch
        )
        found = fit([average, quality, resume], last, model, initial_epoch=resume.epoch)
        for name, values in found.items():
            logs.setdefault(name, []).extend(values)
    return logs, json.loads((directory / "best.keras.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("averaged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_training_that_goes_on_has_the_logs_of_one_that_was_not_killed(tmp_path, averaged):
    whole = logs_of_a_training(tmp_path / "whole", [17], averaged)
    killed = logs_of_a_training(tmp_path / "killed", [3, 5, 9, 17], averaged)
    assert killed == whole
    assert len({*whole[0][NAME]}) == 4  # 1, 5, 10 and 15


@pytest.mark.parametrize("file", ["none", "of an older version", "of other metrics"])
def test_without_figures_to_repeat_the_first_epoch_of_fit_is_measured(tmp_path, file):
    path = tmp_path / "best.keras"
    if file != "none":
        fit([quality_of([0, 20], filepath=path)], 5)
        sidecar = tmp_path / "best.keras.json"
        facts = json.loads(sidecar.read_text(encoding="utf-8"))
        assert facts["last_figures"] == {"exact_match": 20}
        del facts["last_figures"]["exact_match"]
        if file == "of an older version":
            del facts["last_figures"]
        sidecar.write_text(json.dumps(facts), encoding="utf-8")
    quality = quality_of([40, 50], filepath=None if file == "none" else path)
    logs = fit([quality], 10, initial_epoch=7)
    assert logs[NAME] == [40, 40, 50]
    assert logs[f"{NAME}_epoch"] == [8, 8, 10]


def test_figures_of_a_later_epoch_are_not_repeated(tmp_path):
    """The training goes on from before the measurement."""
    quality = quality_of([0, 20, 40, 30, 50, 60], filepath=tmp_path / "best.keras")
    fit([quality], 10)
    logs = fit([quality], 7, initial_epoch=3)
    assert logs[NAME] == [30, 50, 50, 60]  # epoch 4, as 10 was the last; 5; 7 is the last
    assert logs[f"{NAME}_epoch"] == [4, 5, 5, 7]


def test_a_second_fit_repeats_the_figures_of_the_first():
    quality, model = quality_of([0, 20, 30, 40], at_end=False), new_model()
    fit([quality], 7, model)
    logs = fit([quality], 12, model, initial_epoch=7)
    assert logs[NAME] == [20, 20, 30, 30, 30]
    assert logs[f"{NAME}_epoch"] == [5, 5, 10, 10, 10]


def test_beside_an_average_keras_stops_by_the_mean_and_the_file_keeps_it(tmp_path):
    note, model = NoteWeights(), new_model()
    average = AverageCheckpoints(tmp_path / "epochs", last=2, at_end=False)
    figures, seen = iter([0, 10, 25, 25, 25]), []

    def translate(texts):
        seen.append(array(model.layers[-1].kernel))
        equal = next(figures)
        return texts[:equal] + ["other"] * (len(texts) - equal)

    quality = TranslationQuality(
        translate,
        TEXTS,
        TEXTS,
        metrics=["exact_match"],
        every=2,
        filepath=tmp_path / "best.keras",
        average=average,
        verbose=False,
    )
    stop = keras.callbacks.EarlyStopping(NAME, mode="max", patience=4)
    logs = fit([note, average, quality, stop], 60, model)
    assert logs[NAME] == [0, 20, 20, 50, 50, 50, 50, 50]
    means = [note.seen[1]] + [(note.seen[n - 1] + note.seen[n]) / 2 for n in (2, 4, 6, 8)]
    np.testing.assert_allclose(seen, means, rtol=1e-6)
    kept = keras.saving.load_model(tmp_path / "best.keras").layers[-1].kernel
    np.testing.assert_array_equal(array(kept), seen[2])
    np.testing.assert_array_equal(array(model.layers[-1].kernel), note.seen[8])
