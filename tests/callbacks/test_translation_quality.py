"""TranslationQuality measures what sacreBLEU measures, and keeps the best model."""

import csv
import json
import sys

import keras
import numpy as np
import pytest

from keras_transformer.callbacks import AverageCheckpoints, TranslationQuality
from tests.backends import BACKEND, array

SOURCES = ["a b c d", "e f g h"]
REFERENCES = ["The cat sat down .", "A dog ran off ."]
DATA = np.ones((4, 1), "float32")
EAGERLY = dict(run_eagerly=BACKEND == "tensorflow")  # a graph costs more than these few steps


def model_of(value=0.0):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", **EAGERLY)
    model.layers[-1].kernel.assign([[value]])
    return model


def answers(*per_epoch):
    """A translator that answers differently each time it is asked."""
    left = iter(per_epoch)
    return lambda sources: next(left)


def test_figures_are_those_of_sacrebleu(capsys):
    sacrebleu = pytest.importorskip("sacrebleu")
    outputs = ["the cat sat down .", "A dog ran away ."]
    quality = TranslationQuality(lambda texts: outputs, SOURCES, REFERENCES, lowercase=True)
    logs = {}
    quality.set_model(model_of())
    quality.on_epoch_end(0, logs)
    expected = sacrebleu.corpus_bleu(outputs, [REFERENCES], lowercase=True).score
    assert logs["val_bleu"] == pytest.approx(expected)
    assert logs["val_bleu"] > sacrebleu.corpus_bleu(outputs, [REFERENCES]).score
    folded = [text.lower() for text in REFERENCES]
    expected_chrf = sacrebleu.corpus_chrf([text.lower() for text in outputs], [folded]).score
    assert logs["val_chrf"] == pytest.approx(expected_chrf)
    assert logs["val_chrf"] > sacrebleu.corpus_chrf(outputs, [REFERENCES]).score
    printed = capsys.readouterr().out
    assert all(part in printed for part in ("case:lc", "nw:0", f"bleu {expected:.2f}"))


# One of five words is another, of ten in both: 10 %. "on" for "off" is two edits: "o" stays, "n"
# replaces "f" and an "f" goes, of 18 and 15 characters: 6.06 %.
@pytest.mark.parametrize(
    ("metric", "expected"),
    [("exact_match", 50), ("word_error_rate", 10), ("character_error_rate", 100 * 2 / 33)],
)
def test_exact_matches_and_errors_are_counted(metric, expected):
    outputs = [REFERENCES[0], "A dog ran on ."]
    quality = TranslationQuality(lambda texts: outputs, SOURCES, REFERENCES, metrics=[metric])
    assert quality.measure() == {metric: expected}


def test_a_perfect_model_in_lower_case_has_every_point():
    pytest.importorskip("sacrebleu")
    references = ["Ο ΜΕΓΑΛΟΣ ΣΚΥΛΟΣ ΤΡΕΧΕΙ ΕΔΩ", "İstanbul’da IĞDIR ve Şanlıurfa"]
    outputs = [text.lower() for text in references]
    options = {"metrics": ["bleu", "chrf", "exact_match", "word_error_rate"], "lowercase": True}
    quality = TranslationQuality(lambda texts: outputs, SOURCES, references, **options)
    assert [round(value, 6) for value in quality.measure().values()] == [100, 100, 100, 0]


@pytest.mark.parametrize(
    ("metric", "outputs", "best"),
    [
        ("exact_match", (["x", "y"], REFERENCES, ["x", REFERENCES[1]], REFERENCES), 2),
        ("word_error_rate", (["x", "y"], ["x", REFERENCES[1]], ["x", "y"], ["x", "y"]), 2),
    ],
)
def test_the_best_epoch_is_kept_and_the_first_of_equals(tmp_path, metric, outputs, best):
    model, file = model_of(), tmp_path / "deep" / "best.keras"
    quality = TranslationQuality(
        answers(*outputs), SOURCES, REFERENCES, metrics=[metric], filepath=file, verbose=False
    )
    kernels = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: kernels.append(array(model.layers[-1].kernel))
    )
    history = model.fit(DATA, DATA, epochs=4, verbose=0, callbacks=[note, quality]).history
    assert len(history[f"val_{metric}"]) == 4
    kept = keras.saving.load_model(file)
    np.testing.assert_array_equal(array(kept.layers[-1].kernel), kernels[best - 1])
    assert (
        json.loads((tmp_path / "deep" / "best.keras.json").read_text(encoding="utf-8"))["epoch"]
        == best
    )


def test_a_resumed_training_knows_the_best_so_far(tmp_path):
    file = tmp_path / "best.keras"
    arguments = dict(metrics=["exact_match"], filepath=file, verbose=False)
    first = TranslationQuality(answers(REFERENCES), SOURCES, REFERENCES, **arguments)
    first.set_model(model_of(1.0))
    first.on_epoch_end(0, {})
    second = TranslationQuality(answers(["x", REFERENCES[1]]), SOURCES, REFERENCES, **arguments)
    second.set_model(model_of(2.0))
    second.on_epoch_end(1, {})
    assert second.best["epoch"] == 1
    assert array(keras.saving.load_model(file).layers[-1].kernel) == 1.0


def test_a_new_training_does_not_keep_the_model_of_an_earlier_one(tmp_path):
    file = tmp_path / "best.keras"
    arguments = dict(metrics=["exact_match"], filepath=file, verbose=False)
    for value, found in ((1.0, REFERENCES), (2.0, ["x", "y"])):
        quality = TranslationQuality(answers(found), SOURCES, REFERENCES, **arguments)
        model = model_of(value)
        model.compile(keras.optimizers.SGD(0.0), "mse", **EAGERLY)
        model.fit(DATA, DATA, epochs=1, verbose=0, callbacks=[quality])
    assert array(keras.saving.load_model(file).layers[-1].kernel) == 2.0
    quality = TranslationQuality(answers(REFERENCES), SOURCES, REFERENCES, every=5, **arguments)
    model_of(3.0).fit(DATA, DATA, epochs=1, verbose=0, callbacks=[quality])
    assert quality.best == {"epoch": 1, "exact_match": 100.0}


def test_of_several_calls_of_fit_only_the_last_is_measured_at_its_end(tmp_path):
    """So a training run that was killed between two of them keeps the model it would have kept."""
    arguments = dict(metrics=["exact_match"], filepath=tmp_path / "best.keras", verbose=False)
    quality = TranslationQuality(
        answers(["x", "y"], REFERENCES), SOURCES, REFERENCES, every=5, at_end=False, **arguments
    )
    model = model_of()
    model.fit(DATA, DATA, epochs=2, verbose=0, callbacks=[quality])
    assert quality.last_measured == 1  # the first epoch of all
    model.fit(DATA, DATA, initial_epoch=2, epochs=3, verbose=0, callbacks=[quality])
    assert quality.last_measured == 1
    quality.finish()
    assert quality.best == {"epoch": 3, "exact_match": 100.0}
    quality.finish()  # has nothing left to do
    assert quality.last_measured == 3


def test_finish_without_any_training_measures_the_model_as_it_is(tmp_path):
    file = tmp_path / "best.keras"
    quality = TranslationQuality(
        answers(REFERENCES), SOURCES, REFERENCES, metrics=["exact_match"], filepath=file
    )
    quality.set_model(model_of(3.0))
    quality.finish()
    assert array(keras.saving.load_model(file).layers[-1].kernel) == 3.0


def test_behind_kerass_swap_the_moving_average_is_measured_and_kept(tmp_path):
    """As docs/training.md says; without it, Keras takes the average at the end of `fit` alone."""
    file, model, own, measured = tmp_path / "best.keras", model_of(), [], []
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse", **EAGERLY)

    def weight():
        return float(array(model.trainable_variables[0])[0, 0])

    def translate(texts):
        measured.append(weight())
        return REFERENCES if len(measured) == 3 else SOURCES

    arguments = dict(metrics=["exact_match"], filepath=file, verbose=False)
    quality = TranslationQuality(translate, SOURCES, REFERENCES, **arguments)
    before = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: own.append(weight()))
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    model.fit(DATA, DATA, epochs=3, verbose=0, callbacks=[before, swap, quality])
    average = own[0]  # Keras's begins with the first step
    for value, found in zip(own[1:], measured[1:], strict=True):
        average = 0.9 * average + 0.1 * value
        assert found == pytest.approx(average, rel=1e-5)
    assert measured[2] < 0.9 * own[2]
    kernel = array(keras.saving.load_model(file).layers[-1].kernel)
    assert kernel == pytest.approx(measured[2])


def test_a_new_training_that_was_killed_early_forgets_the_earlier_one_too(tmp_path):
    file = tmp_path / "best.keras"
    arguments = dict(metrics=["exact_match"], filepath=file, verbose=False)
    earlier = TranslationQuality(answers(REFERENCES), SOURCES, REFERENCES, **arguments)
    model_of(1.0).fit(DATA, DATA, epochs=1, verbose=0, callbacks=[earlier])
    assert earlier.best == {"epoch": 1, "exact_match": 100.0}
    # Its first epoch begins, and nothing more.
    new = TranslationQuality(answers(["x", "y"]), SOURCES, REFERENCES, every=3, **arguments)
    new.set_model(model_of(2.0))
    new.on_epoch_begin(0)
    new.on_train_batch_begin(0)
    again = TranslationQuality(answers(["x", "y"]), SOURCES, REFERENCES, every=3, **arguments)
    model = model_of(2.0)
    model.compile(keras.optimizers.SGD(0.0), "mse", **EAGERLY)
    model.fit(DATA, DATA, initial_epoch=1, epochs=2, verbose=0, callbacks=[again])
    assert again.best == {"epoch": 2, "exact_match": 0.0}
    assert array(keras.saving.load_model(file).layers[-1].kernel) == 2.0


@pytest.mark.parametrize("at_end", [False, True])
def test_the_first_epoch_and_every_few_and_the_last_are_measured_and_logged(at_end):
    half = ["x", REFERENCES[1]]
    quality = TranslationQuality(
        answers(half, REFERENCES, ["x", "y"], half),
        SOURCES,
        REFERENCES,
        metrics=["exact_match"],
        every=3,
        at_end=at_end,
        verbose=False,
    )
    history = model_of().fit(DATA, DATA, epochs=7, verbose=0, callbacks=[quality]).history
    last = 50.0 if at_end else 0.0
    assert history["val_exact_match"] == [50.0, 50.0, 100.0, 100.0, 100.0, 0.0, last]


@pytest.mark.parametrize("comes", ["before", "after"])
def test_an_epoch_that_another_callback_makes_the_last_is_measured(tmp_path, comes):
    quality = TranslationQuality(
        answers(["x", "y"], REFERENCES),
        SOURCES,
        REFERENCES,
        metrics=["exact_match"],
        every=5,
        filepath=tmp_path / "best.keras",
        verbose=False,
    )
    model = model_of()

    def stop(epoch, logs):
        model.stop_training = epoch == 1

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=stop), quality]
    if comes == "after":
        callbacks.reverse()
    history = model.fit(DATA, DATA, epochs=9, verbose=0, callbacks=callbacks).history
    assert quality.best == {"epoch": 2, "exact_match": 100.0}
    logged = 100.0 if comes == "before" else 0.0  # later, it comes too late for the logs
    assert history["val_exact_match"] == [0.0, logged]


def test_beside_an_average_it_measures_the_weights_of_the_last_epoch_themselves(tmp_path):
    """`AverageCheckpoints` has given the model the mean when `fit` is over."""
    model, own, measured = model_of(1.0), [], []

    def translate(texts):
        measured.append(float(array(model.layers[-1].kernel)[0, 0]))
        return REFERENCES

    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: own.append(float(array(model.layers[-1].kernel)[0, 0]))
    )
    quality = TranslationQuality(
        translate,
        SOURCES,
        REFERENCES,
        metrics=["exact_match"],
        every=2,
        filepath=tmp_path / "best.keras",
        verbose=False,
    )
    average = AverageCheckpoints(tmp_path / "epochs")
    model.fit(DATA, 3 * DATA, epochs=3, verbose=0, callbacks=[note, average, quality])
    assert measured == own
    assert own[0] < own[1] < own[2]
    assert float(array(model.layers[-1].kernel)[0, 0]) == pytest.approx(np.mean(own))


def test_the_mean_of_checkpoints_is_measured_and_kept(tmp_path):
    model = model_of(0.0)
    average = AverageCheckpoints(tmp_path, last=10, at_end=False)
    kernel, seen = model.layers[-1].kernel, []

    def translate(texts):
        seen.append(float(array(kernel)[0, 0]))
        return REFERENCES

    quality = TranslationQuality(
        translate,
        SOURCES,
        REFERENCES,
        metrics=["exact_match"],
        average=average,
        filepath=tmp_path / "best.keras",
        verbose=False,
    )
    for callback in (average, quality):
        callback.set_model(model)
    for epoch, value in enumerate((1.0, 3.0)):
        kernel.assign([[value]])
        for callback in (average, quality):
            callback.on_epoch_end(epoch, {})
    assert seen == [1.0, 2.0]
    assert float(array(kernel)[0, 0]) == 3.0


def test_a_training_shorter_than_every_keeps_its_mean_at_the_end(tmp_path):
    model, kernels = model_of(1.0), []
    average = AverageCheckpoints(tmp_path, at_end=False)
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: kernels.append(array(model.layers[-1].kernel))
    )
    quality = TranslationQuality(
        answers(["x", "y"], REFERENCES),
        SOURCES,
        REFERENCES,
        metrics=["exact_match"],
        every=10,
        average=average,
        filepath=tmp_path / "best.keras",
        verbose=False,
    )
    model.fit(DATA, 3 * DATA, epochs=3, verbose=0, callbacks=[note, average, quality])
    kept = keras.saving.load_model(tmp_path / "best.keras")
    np.testing.assert_allclose(array(kept.layers[-1].kernel), np.mean(kernels, axis=0), atol=1e-6)
    assert quality.best == {"epoch": 3, "exact_match": 100.0}


@pytest.mark.parametrize("place", ["behind", "nowhere"])
def test_an_average_that_does_not_come_before_is_refused(tmp_path, place):
    """It would lack the epoch that is measured, or have those of an earlier training."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    average = AverageCheckpoints(tmp_path / "epochs", last=2)
    quality = TranslationQuality(list, SOURCES, REFERENCES, ["exact_match"], average=average)
    callbacks = [quality, average] if place == "behind" else [quality]
    with pytest.raises(ValueError, match="come before TranslationQuality.* up to epoch 0"):
        model.fit(DATA, DATA, verbose=0, callbacks=callbacks)


def test_the_last_epoch_is_measured_too(tmp_path):
    half = ["x", REFERENCES[1]]
    quality = TranslationQuality(
        answers(half, half, REFERENCES),
        SOURCES,
        REFERENCES,
        metrics=["exact_match"],
        every=2,
        filepath=tmp_path / "best.keras",
        verbose=False,
    )
    model_of().fit(DATA, DATA, epochs=3, verbose=0, callbacks=[quality])
    assert quality.best == {"epoch": 3, "exact_match": 100.0}


def test_a_training_stopped_before_its_only_measurement_is_measured_when_run_again(tmp_path):
    file = tmp_path / "best.keras"
    quality = TranslationQuality(
        answers(REFERENCES), SOURCES, REFERENCES, metrics=["exact_match"], filepath=file
    )
    model_of().fit(DATA, DATA, initial_epoch=3, epochs=3, verbose=0, callbacks=[quality])
    assert file.exists()


def test_one_killed_before_its_last_measurement_is_measured_when_run_again(tmp_path):
    file = tmp_path / "best.keras"
    arguments = dict(metrics=["exact_match"], every=2, filepath=file, verbose=False)
    half = ["x", REFERENCES[1]]
    first = TranslationQuality(answers(["x", "y"], half), SOURCES, REFERENCES, **arguments)
    model_of(1.0).fit(DATA, DATA, epochs=2, verbose=0, callbacks=[first])
    assert first.best == {"epoch": 2, "exact_match": 50.0}
    # Killed after the third epoch: its state is kept, it is not measured.
    again = TranslationQuality(answers(REFERENCES), SOURCES, REFERENCES, **arguments)
    assert (again.best, again.last_measured) == (first.best, 2)
    plan = dict(initial_epoch=3, epochs=3, verbose=0)
    model_of(2.0).fit(DATA, DATA, callbacks=[again], **plan)
    assert again.best == {"epoch": 3, "exact_match": 100.0}
    assert array(keras.saving.load_model(file).layers[-1].kernel) == 2.0
    # Once measured it is not measured again, whether or not it was the best.
    for last, epochs in ((REFERENCES, 3), (["x", "y"], 5), (["x", "y"], 5)):
        calls = []
        later = TranslationQuality(
            lambda texts, last=last, calls=calls: calls.append(1) or last,
            SOURCES, REFERENCES, **arguments,
        )  # fmt: skip
        due = later.last_measured < epochs
        plan = dict(initial_epoch=epochs, epochs=epochs, verbose=0)
        model_of(3.0).fit(DATA, DATA, callbacks=[later], **plan)
        assert (len(calls), later.last_measured) == (int(due), epochs)
        assert later.best == {"epoch": 3, "exact_match": 100.0}


def test_a_refused_training_forgets_nothing(tmp_path):
    """Another callback refuses it: the model that was kept is still the best."""

    class Refuse(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            raise ValueError("refused")

    file = tmp_path / "best.keras"
    arguments = dict(metrics=["exact_match"], filepath=file, verbose=False)
    first = TranslationQuality(answers(REFERENCES), SOURCES, REFERENCES, **arguments)
    model_of(1.0).fit(DATA, DATA, epochs=1, verbose=0, callbacks=[first])
    refused = TranslationQuality(answers(["x", "y"]), SOURCES, REFERENCES, **arguments)
    with pytest.raises(ValueError, match="refused"):
        model_of(2.0).fit(DATA, DATA, verbose=0, callbacks=[refused, Refuse()])
    again = TranslationQuality(answers(["x", "y"]), SOURCES, REFERENCES, **arguments)
    model_of(2.0).fit(DATA, DATA, initial_epoch=1, epochs=2, verbose=0, callbacks=[again])
    assert again.best == {"epoch": 1, "exact_match": 100.0}
    assert array(keras.saving.load_model(file).layers[-1].kernel) == 1.0


def test_csv_columns_stay_in_place_when_a_training_goes_on(tmp_path):
    def fit(first, last):
        quality = TranslationQuality(
            lambda texts: REFERENCES, SOURCES, REFERENCES, metrics=["exact_match"], every=2
        )
        log = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"), append=True)
        plan = dict(initial_epoch=first, epochs=last, verbose=0, callbacks=[quality, log])
        model_of().fit(DATA, DATA, validation_data=(DATA, DATA), **plan)

    fit(0, 3)
    fit(3, 5)
    with open(tmp_path / "log.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["val_exact_match"] for row in rows] == ["100.0"] * 5
    # Without a file for the best model, a `fit` knows no figures of an earlier one.
    assert [row["val_exact_match_epoch"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert all(float(row["val_loss"]) >= 0 for row in rows)


@pytest.mark.parametrize("text", ["", "[]", '{"epoch": 1, "bleu": 30.0}'])
def test_a_file_of_figures_that_does_not_fit_is_named(tmp_path, text):
    (tmp_path / "best.keras").touch()
    (tmp_path / "best.keras.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="best.keras.json must have the exact_match"):
        TranslationQuality(
            str, SOURCES, REFERENCES, metrics=["exact_match"], filepath=tmp_path / "best.keras"
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metrics": "bleu"}, "`metrics` must be a list"),
        ({"verbose": 2}, "`verbose` must be"),
        ({"metrics": ["bleurt"]}, "`metrics` must be one of"),
        ({"metrics": []}, "at least one metric"),
        ({"every": 0}, "`every` must be a positive integer"),
        ({"at_end": 1}, "`at_end` must be"),
        ({"references": ["one"]}, "equally many"),
        ({"filepath": "best.weights.h5"}, "must end in .keras. Received: filepath='best.weights"),
    ],
)
def test_bad_arguments_raise(change, message):
    arguments = {"sources": SOURCES, "references": REFERENCES, "metrics": ["exact_match"]} | change
    with pytest.raises(ValueError, match=message):
        TranslationQuality(str, **arguments)


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_a_metric_without_its_package_says_how_to_install_it(metric, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match=r"pip install .*\[eval\]"):
        TranslationQuality(list, SOURCES, REFERENCES, [metric])
