"""A training run in this process: stopped, gone on with, refused, and what it leaves."""

import csv
import dataclasses
import importlib.util
import json
import math
import re
import shutil
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer.recipes import build, large_files, training
from keras_transformer.recipes.run_directory import RunDirectory
from keras_transformer.recipes.runs import load_translator
from keras_transformer.recipes.settings import Settings, read_settings
from keras_transformer.recipes.training import make_stages, train
from keras_transformer.serving.string_functions import StringFunctions
from keras_transformer.text import corpus as text_corpus
from tests.recipes.interruptions import Stop

FILES = {
    "README.txt",
    "attention.png",
    "export",
    "history.csv",
    "learning_curve.png",
    "model.keras",
    "predictions.tsv",
    "settings.toml",
    "source.tokenizer",
    "state.npz",
    "summary.txt",
    "translations.txt",
}


@pytest.fixture(scope="module")
def plainly():
    """Steps are not compiled by XLA, which takes longer than they do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "xla_pays", lambda settings: False)
        yield


def small(corpus, **given):
    parts = {
        name: tuple(str(corpus / f"{file}.{ending}") for ending in ("en", "xx"))
        for name, file in (("train", "text"), ("validation", "test"), ("test", "test"))
    }
    sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=16, max_shapes=1, vocab_size=60)
    steps = dict(tokens_per_batch=512, epochs=2, warmup_steps=10, learning_rate=0.01, beam_size=2)
    return Settings.from_preset("tiny", **{**parts, **sizes, **steps, "xla_export": False, **given})


def rows_of(output):
    with open(output / "history.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def stopped(corpus, tmp_path_factory, plainly):
    """A run that was interrupted in its second epoch, then run again: its directory and scores."""
    output = tmp_path_factory.mktemp("runs") / "run"
    settings = small(corpus)
    check_loss = training.CheckLoss
    only = property(lambda self: {"serving_default": self.serving_default})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "CheckLoss", lambda: Stop(epoch=1))
        patch.setattr(training, "NUM_SAMPLES", 0)
        with pytest.raises(KeyboardInterrupt):
            train(settings, output)
        assert RunDirectory(output).epochs_done() == 1
    assert training.CheckLoss is check_loss
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StringFunctions, "signatures", only)  # each takes seconds to trace
        return output, train(settings, output)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory, plainly):
    """The directory of the same run without a stop, two epochs."""
    output = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "finish_run", lambda *given: None)
        patch.setattr(training, "NUM_SAMPLES", 0)  # whose search is traced
        train(small(corpus), output)
    return output


@pytest.fixture
def without_export(monkeypatch):
    """Runs write no SavedModel, which takes longer than they do."""
    monkeypatch.setattr(RunDirectory, "export", lambda *given: None)


def weights_of(output):
    with np.load(output / "state.npz") as state:
        return {name: state[name] for name in state.files}


@pytest.mark.slow
def test_a_run_stopped_and_started_again_ends_with_the_bits_of_a_whole_one(stopped, whole):
    ours, theirs = weights_of(stopped[0]), weights_of(whole)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert [row["epoch"] for row in rows_of(stopped[0])] == ["1", "2"]
    assert [row["val_loss"] for row in rows_of(stopped[0])] == [
        row["val_loss"] for row in rows_of(whole)
    ]


@pytest.mark.slow
def test_a_run_on_large_files_ends_with_the_bits_of_one_on_lists(
    corpus, whole, tmp_path, plainly, monkeypatch
):
    monkeypatch.setattr(training, "finish_run", lambda *given: None)
    monkeypatch.setattr(training, "NUM_SAMPLES", 0)
    with monkeypatch.context() as patch:
        patch.setattr(training, "CheckLoss", lambda: Stop(epoch=1))
        with pytest.raises(KeyboardInterrupt):
            train(small(corpus, on_disk_from=0), tmp_path / "run")
    # Neither is read again.
    monkeypatch.setattr(large_files, "_Reader", None)
    monkeypatch.setattr(text_corpus, "tokenize_files", None)
    train(small(corpus, on_disk_from=0), tmp_path / "run")
    ours, theirs = weights_of(tmp_path / "run"), weights_of(whole)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    (prepared,) = (tmp_path / "run" / "corpora").glob("*/corpus.json")
    assert json.loads(prepared.read_text(encoding="utf-8"))["report"]["num_pairs"] == 200


@pytest.mark.slow
def test_a_run_on_two_corpora_has_three_times_the_tokens_and_goes_on(
    corpus, whole, tmp_path, plainly, monkeypatch
):
    monkeypatch.setattr(training, "finish_run", lambda *given: None)
    monkeypatch.setattr(training, "NUM_SAMPLES", 0)
    settings = small(corpus, train=2 * small(corpus).train, mixing_weights=(1, 2))
    train(settings, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(training, "CheckLoss", lambda: Stop(epoch=1))
        with pytest.raises(KeyboardInterrupt):
            train(settings, tmp_path / "run")
    train(settings, tmp_path / "run")
    ours, theirs = weights_of(tmp_path / "run"), weights_of(tmp_path / "whole")
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    mixed, once = (float(rows_of(path)[0]["tokens"]) for path in (tmp_path / "run", whole))
    assert mixed == 3 * once


def test_it_ends_with_every_file_and_the_figures(stopped):
    output, made = stopped
    names = {file.name for file in output.iterdir()}
    assert names == FILES
    figures = {"loss", "val_loss", "val_perplexity", "learning_rate", "seconds"}
    assert figures <= set(rows_of(output)[0])
    assert [line.split(":")[0] for line in made.summary.splitlines()] == [
        "Exact match", "chrF", "BLEU", "lower-cased BLEU",
    ]  # fmt: skip
    assert "case:lc" in made.summary.splitlines()[-1]
    assert (output / "summary.txt").read_text(encoding="utf-8") == f"{made.summary}\n"
    assert [score.name for score in made.scores][-1] == "lowercase_bleu"


@pytest.mark.slow
def test_its_translations_are_those_of_the_model_it_kept(stopped, corpus):
    output, _ = stopped
    lines = (output / "translations.txt").read_text(encoding="utf-8").splitlines()
    sources = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    assert load_translator(output)(sources) == lines
    assert lines[5] == ""
    with open(output / "predictions.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["source"] for row in rows] == sources
    assert [row["output"] for row in rows] == lines


def test_a_finished_run_says_so_and_ends_with_its_figures(stopped, corpus, capsys, monkeypatch):
    """Nothing is trained, translated or written again, and no model is built."""
    output, made = stopped
    before = {file.name: file.stat().st_mtime_ns for file in output.iterdir()}
    monkeypatch.setattr(training, "open_texts", None)
    again = train(small(corpus), output)
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(f"{output} is finished: 2 epochs, .* minutes of training. .*", lines[-1])
    assert (again.scores, again.summary) == (made.scores, made.summary)
    after = {file.name: file.stat().st_mtime_ns for file in output.iterdir()}
    assert [name for name in after if before.get(name) != after[name]] == ["settings.toml"]


@pytest.mark.slow
def test_another_search_tests_a_finished_run_again_and_trains_nothing(
    stopped, corpus, capsys, plainly, tmp_path, without_export
):
    output = tmp_path / "run"
    shutil.copytree(stopped[0], output)
    train(small(corpus, beam_size=1), output)
    printed = capsys.readouterr().out
    assert "Already trained: 2 epochs" in printed
    assert "test sentences, greedy search" in printed


def test_a_second_training_in_one_directory_is_refused(corpus, tmp_path, monkeypatch):
    settings, output = small(corpus), tmp_path / "run"
    monkeypatch.setattr(training, "open_texts", lambda *given: train(settings, output))
    with pytest.raises(ValueError, match="another process trains there"):
        train(settings, output)
    assert [file.name for file in output.iterdir()] == ["settings.toml"]


def test_settings_that_differ_are_refused_before_texts_are_read_and_the_files_stay(
    stopped, corpus, monkeypatch
):
    output, _ = stopped
    before = (output / "settings.toml").read_bytes()
    monkeypatch.setattr(training, "read_corpus", None)
    with pytest.raises(ValueError, match="holds another run: dropout was 0.3 and is 0.1"):
        train(small(corpus, dropout=0.1), output)
    with pytest.raises(ValueError, match="exists and is not a run of this program"):
        train(small(corpus), corpus)
    assert (output / "settings.toml").read_bytes() == before
    assert read_settings(output / "settings.toml")[1]["training_pairs"] == 198


def test_the_loss_with_label_smoothing_is_told_from_the_cross_entropy(capsys, tmp_path):
    model = SimpleNamespace(count_params=lambda: 1000, jit_compile=False)
    training.announce(model, Settings.from_preset("dates", label_smoothing=0.1))
    smoothed = "loss and val_loss include label smoothing 0.1; cross-entropy and perplexity do not"
    assert smoothed in capsys.readouterr().out
    training.announce(model, Settings.from_preset("dates", label_smoothing=0.0))
    assert "smoothing" not in capsys.readouterr().out
    keep = training.KeepEpoch(
        SimpleNamespace(path=tmp_path),
        [{}],
        translate=list,
        samples=[],
        samples_every=1,
        chooses=False,
        average=None,
    )
    keep.on_epoch_end(0, {"val_loss": 3.0, "val_perplexity": math.e**2})
    said = "  epoch 1: validation cross-entropy 2.000 a token, perplexity 7.39 (best so far)\n"
    assert capsys.readouterr().out == said


def test_devices_with_few_tokens_are_told(capsys):
    for parts, tokens, is_told in ((1, 512, 0), (4, 4096, 0), (8, 4096, 1), (8, 8192, 0)):
        given = dict(train=("a", "b"), backend="jax", data_parallel=parts, tokens_per_batch=tokens)
        training.say_whether_devices_are_idle(Settings.from_preset(**given))
        said = capsys.readouterr().out
        assert bool(said) == is_told
        if is_told:
            assert "each of 8 devices gets 512 tokens" in said
            assert "--tokens-per-batch 32768" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict(epochs=3, warmup_steps=18), "the run has 18 updates, and the warm-up 18: "),
        (dict(epochs=3, warmup_steps=18), "Set --warmup-steps 4, or more --epochs."),
        (dict(epochs=3, warmup_steps=17), ""),
        (dict(epochs=3, warmup_steps=17, accumulate=2), "the run has 9 updates, and the"),
        (dict(epochs=3, warmup_steps=17, batches_per_epoch=2), "the run has 6 updates, and"),
        (dict(epochs=3, warmup_steps=17, both_directions=1), ""),
        (dict(epochs=3, warmup_steps=24, both_directions=1), "the run has 24 updates, and"),
    ],
)
def test_a_run_that_ends_in_its_warm_up_says_so(given, said, capsys):
    settings = Settings.from_preset("dates", **given)
    batches = {False: SimpleNamespace(report=SimpleNamespace(num_batches=6))}
    batches[True] = SimpleNamespace(report=SimpleNamespace(num_batches=12))
    turned = settings.both_directions
    stages = [(turned, batches[True])] * bool(turned) + [(settings.epochs, batches[False])]
    training.say_whether_it_warms_up(settings, stages)
    printed = capsys.readouterr().out
    assert said in printed
    assert bool(printed) == bool(said)


@pytest.mark.slow
def test_the_minutes_end_a_run_after_the_epoch_and_more_of_them_go_on(
    corpus, tmp_path, capsys, plainly, monkeypatch
):
    monkeypatch.setattr(training, "finish_run", lambda *given: None)
    monkeypatch.setattr(training, "NUM_SAMPLES", 0)
    settings = small(corpus, epochs=3, minutes=1e-6)
    train(dataclasses.replace(settings, warmup_steps=500), tmp_path / "warming")
    assert "updates, and the warm-up 500: the learning rate stays low" in capsys.readouterr().out
    train(settings, tmp_path / "run")
    assert "minutes of training: stopping (--minutes 1e-06)" in capsys.readouterr().out
    assert len(rows_of(tmp_path / "run")) == 1
    train(settings, tmp_path / "run")
    assert "Already trained: 1 epoch," in capsys.readouterr().out
    train(dataclasses.replace(settings, epochs=2, minutes=60.0), tmp_path / "run")
    assert "Going on from epoch 1" in capsys.readouterr().out
    assert [row["epoch"] for row in rows_of(tmp_path / "run")] == ["1", "2"]


def test_other_texts_in_files_of_the_same_names_are_refused(stopped, corpus, tmp_path, plainly):
    output, _ = stopped
    settings = small(corpus)
    with pytest.MonkeyPatch.context() as patch:
        read = training.read_corpus

        def changed(settings, folder):
            found = read(settings, folder)
            return found._replace(train=[*found.train[:-1], ("a", "b")])

        patch.setattr(training, "read_corpus", changed)
        with pytest.raises(ValueError, match="holds another run: pairs_digest was"):
            train(settings, output)


@pytest.mark.slow
def test_a_run_may_start_from_another(stopped, corpus, tmp_path, capsys, plainly, monkeypatch):
    """It has the other's vocabulary and weights; a model of another size is refused."""
    monkeypatch.setattr(training, "finish_run", lambda *given: None)
    before = str(stopped[0])
    start = dict(start_from=before, epochs=1, warmup_steps=10, learning_rate=1e-9)
    train(small(corpus, **start), tmp_path / "run")
    assert f"Starting from the model of {before}" in capsys.readouterr().out
    best = min(float(row["val_loss"]) for row in rows_of(stopped[0]))
    (row,) = rows_of(tmp_path / "run")
    assert float(row["val_loss"]) == pytest.approx(best, rel=1e-3)  # at a rate next to none
    for wrong, message in (
        (dict(start_from=str(tmp_path)), "holds no run with a model to start from"),
        (dict(start, d_model=32), "is not a run to start from: d_model was 16 and is 32"),
        (dict(start, lowercase=True), "start from: lowercase was False and is True"),
    ):
        with pytest.raises(ValueError, match=message):
            train(small(corpus, **wrong), tmp_path / "other")


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_run_with_one_line(corpus, tmp_path, plainly):
    with pytest.raises(ValueError, match="the training has diverged. The epochs before are kept"):
        train(small(corpus, learning_rate=1e30, warmup_steps=1), tmp_path / "run")
    assert RunDirectory(tmp_path / "run").epochs_done() == 0


def test_what_a_run_lacks_is_refused_before_it_begins(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name != "tensorflow_text" or None)
    said = r"`drop_duplicates` needs tensorflow_text. Install it: `pip install .*\[tensorflow\]\"`"
    with pytest.raises(ImportError, match=said):
        train(small(corpus, drop_duplicates=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_backend_than_keras_has_is_refused(corpus, tmp_path):
    settings = dataclasses.replace(small(corpus), backend="jax")
    with pytest.raises(ValueError, match="`backend` must be that of Keras, tensorflow"):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_the_recipe_of_the_paper_averages_accumulates_and_measures(corpus, tmp_path, plainly):
    """All options of a recipe at once, two vocabularies among them."""
    settings = small(
        corpus, lowercase=True, accumulate=2, average=2, measure_every=1, epochs=3,
        batches_per_epoch=4, tensorboard=True, r_drop=1, subword_dropout=0.1,
        separate_vocabularies=True, bleu_tokenize="char", precision="mixed_bfloat16",
    )  # fmt: skip
    output = tmp_path / "run"
    made = train(settings, output)
    assert keras.config.dtype_policy().name == "float32"  # again
    assert "tok:char" in made.summary.splitlines()[-1]
    assert {"source.tokenizer", "target.tokenizer"} <= {file.name for file in output.iterdir()}
    assert {file.name for file in (output / "epochs").iterdir()} == {
        "weights-0002.npz", "weights-0003.npz",
    }  # fmt: skip
    rows = rows_of(output)
    for name in ("val_bleu", "val_chrf", "tokens_per_second", "gradient_norm", "padding_ratio"):
        assert all(float(row[name]) >= 0 for row in rows), name
    assert (output / "tensorboard" / "train").is_dir()
    best = max(range(3), key=lambda epoch: float(rows[epoch]["val_bleu"])) + 1
    assert json.loads((output / "model.keras.json").read_text(encoding="utf-8"))["epoch"] == best
    upper = load_translator(output)(["MY CAT", "my cat"])
    assert upper[0] == upper[1] == upper[0].lower()


@pytest.mark.slow
def test_the_mean_of_the_last_epochs_is_there_from_the_first_on(
    corpus, tmp_path, plainly, monkeypatch
):
    monkeypatch.setattr(training, "finish_run", lambda *given: None)
    monkeypatch.setattr(training, "NUM_SAMPLES", 0)
    for epochs in (1, 3):
        train(small(corpus, average=2, epochs=epochs), tmp_path / "run")
        model = RunDirectory(tmp_path / "run").load_model()
        kept = sorted((tmp_path / "run" / "epochs").iterdir())
        assert len(kept) == min(2, epochs)
        files = [np.load(file) for file in kept]
        names = [name for name in files[0].files if name != "facts"]
        means = [np.mean([file[name] for file in files], axis=0) for name in names]
        ours = sorted(float(np.sum(weight)) for weight in model.get_weights())
        theirs = sorted(float(np.sum(mean)) for mean in means)
        assert ours == pytest.approx(theirs, abs=1e-4)


@pytest.mark.slow
def test_both_directions_come_first_and_twice_the_tokens(corpus, tmp_path, capfd, plainly):
    settings = small(corpus, both_directions=2, epochs=3, average=1, measure_every=3)
    train(settings, tmp_path / "run")
    printed = capfd.readouterr()
    # The last epoch of both directions is not the run's last.
    assert "epoch 3: bleu" in printed.out
    assert "epoch 2: bleu" not in printed.out
    assert "396 of 396 pairs" in printed.err
    tokens = [float(row["tokens"]) for row in rows_of(tmp_path / "run")]
    assert tokens[0] == tokens[1]
    # The words backwards are as many tokens as the words are, but for the vocabulary.
    assert 1.8 < tokens[0] / tokens[2] < 2.2


def test_samples_are_lines_that_fit():
    assert training.shortened("a dog") == "a dog"
    assert training.shortened("ein Hund " * 30) == f"{'ein Hund ' * 22} …"
    assert len(training.shortened("truck " * 300)) == training.SAMPLE_WIDTH


class Batches:
    """Notes which batches are asked for."""

    def training_batches(self, first_epoch, turned_too=False):
        return (first_epoch, turned_too)


@pytest.mark.parametrize(
    ("both", "epochs", "done", "expected"),
    [
        (0, 4, 0, [(4, (0, False))]),
        (0, 4, 3, [(4, (3, False))]),
        (2, 4, 0, [(2, (0, True)), (4, (2, False))]),
        (2, 4, 1, [(2, (1, True)), (4, (2, False))]),
        (2, 4, 2, [(4, (2, False))]),
        (4, 2, 0, [(2, (0, True))]),
        (4, 4, 4, [(4, (4, False))]),
    ],
)
def test_stages_are_what_is_left_to_train(both, epochs, done, expected):
    settings = Settings.from_preset(both_directions=both, epochs=epochs)
    assert make_stages(settings, Batches(), done) == expected
