"""The run directory: nothing finished is lost, whichever write a crash interrupts."""

import csv
import dataclasses
import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer.atomic_files import new_directory
from keras_transformer.callbacks import ExactResume
from keras_transformer.recipes.run_directory import (
    CheckLoss,
    KeepHistory,
    RunDirectory,
    find_languages,
)
from keras_transformer.recipes.run_files import read_predictions, read_run
from keras_transformer.recipes.runs import load_translator
from keras_transformer.recipes.settings import Settings
from tests.locale_environments import environment


def model(value):
    layers = [keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")]
    made = keras.Sequential(layers)
    made.layers[0].kernel.assign([[value]])
    return made


def value_of(made):
    return float(np.asarray(made.layers[0].kernel)[0, 0])


def rows(count):
    return [
        {"epoch": float(n + 1), "val_perplexity": 9.0 - n, "seconds": 1.0} for n in range(count)
    ]


@pytest.fixture
def directory(tmp_path):
    opened = RunDirectory(tmp_path / "run")
    opened.open(Settings.from_preset(seed=1))
    return opened


def finish_epoch(directory, epoch):
    """Ends an epoch as a training run does: the history first, the state last."""
    directory.write_history(rows(epoch))
    directory.save_model(model(float(epoch)), "model.keras")
    resume = ExactResume(directory.path)
    compiled = model(float(epoch))
    compiled.compile("sgd", "mse")
    resume.set_model(compiled)
    resume.on_epoch_end(epoch - 1)


def test_a_new_directory_has_no_epoch_and_no_history(directory):
    assert directory.epochs_done() == 0
    assert directory.read_history(0) == []


@pytest.mark.parametrize("survivors", [0, 1, 2])
def test_a_crash_in_an_epochs_writes_leaves_the_epoch_before(directory, monkeypatch, survivors):
    finish_epoch(directory, 1)
    replace, calls = os.replace, []

    def crash_later(source, target):
        calls.append(target)
        if len(calls) > survivors:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr("os.replace", crash_later)
    with pytest.raises(KeyboardInterrupt):
        finish_epoch(directory, 2)
    monkeypatch.undo()

    again = RunDirectory(directory.path)
    again.open(Settings.from_preset(seed=1))
    assert again.epochs_done() == 1
    assert again.read_history(1) == rows(1)
    assert value_of(again.load_model()) in (1.0, 2.0)  # whole, whichever
    finish_epoch(again, 2)
    assert again.epochs_done() == 2
    assert value_of(again.load_model()) == 2.0


def test_what_an_epoch_did_not_measure_is_not_there(directory):
    measured = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0, "val_bleu": 30.0}]
    directory.write_history(measured)
    assert directory.read_history(2) == measured


def test_a_crash_before_the_settings_are_written_leaves_the_directory_usable(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".settings.toml").write_text("[", encoding="utf-8")
    RunDirectory(tmp_path / "run").open(Settings.from_preset(seed=1))


def test_settings_may_change_until_something_is_trained(directory):
    (directory.path / "source.tokenizer").write_text(
        "learned for the old settings", encoding="utf-8"
    )
    (directory.path / "model.keras.json").write_text("{}", encoding="utf-8")
    (directory.path / "epochs").mkdir()
    RunDirectory(directory.path).open(Settings.from_preset(seed=2))
    assert [file.name for file in directory.path.iterdir()] == ["settings.toml"]
    finish_epoch(directory, 1)
    with pytest.raises(ValueError, match="another run: seed was 2 and is 3. Give another --output"):
        RunDirectory(directory.path).open(Settings.from_preset(seed=3))


def test_a_model_stays_though_no_epoch_was_finished(directory):
    directory.save_model(model(1.0), "model.keras")
    RunDirectory(directory.path).open(Settings.from_preset(seed=1))
    with pytest.raises(ValueError, match="holds another run: seed was 1 and is 2"):
        RunDirectory(directory.path).open(Settings.from_preset(seed=2))
    assert value_of(directory.load_model()) == 1.0


def test_a_run_neither_starts_nor_learns_from_its_own_directory(directory, monkeypatch):
    monkeypatch.chdir(directory.path.parent)
    for name in ("start_from", "teacher"):
        settings = Settings.from_preset(**{name: "./run"})
        rule = f"`{name}` must be another directory than the output. Received: {name}='./run'"
        with pytest.raises(ValueError, match=rule):
            directory.check(settings)


HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "wb")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


def test_a_directory_belongs_to_one_process_until_that_dies(directory):
    lock = directory.path / ".lock"
    process = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE)
    with process:
        assert process.stdout.readline() == b"held\n"
        rule = f"{directory.path} must not be in use. Received: another process trains there"
        with pytest.raises(ValueError, match=rule), directory.claimed():
            pass
        process.kill()
    assert lock.exists()
    with directory.claimed():
        assert lock.exists()
    assert not lock.exists()


def test_a_file_system_without_locks_refuses_nobody(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    directory = RunDirectory(tmp_path / "run")
    with directory.claimed():
        directory.open(Settings.from_preset(seed=1))


def test_what_was_noted_of_an_import_goes_with_a_run_that_trained_nothing(directory):
    """A run that then starts from no import has a model of its own."""
    directory.write("imported.json", "{}")
    RunDirectory(directory.path).open(Settings.from_preset(seed=2))
    assert [file.name for file in directory.path.iterdir()] == ["settings.toml"]


OPEN = r"""
import sys
from types import SimpleNamespace
from keras_transformer.recipes.run_directory import RunDirectory
from keras_transformer.recipes.settings import Settings

directory = RunDirectory(sys.argv[1])
directory.open(Settings.from_preset(train=(sys.argv[2],), seed=1))
card = directory.path / "export" / "1" / "assets.extra" / "model_card.json"
card.parent.mkdir(parents=True, exist_ok=True)
languages = '{"source": "en", "target": "de"}'
texts = '{"input": ["Text."], "output": ["Text."]}'
found = f'{{"languages": {languages}, "texts": {texts}, "jit_compile": false}}'
card.write_text(found, encoding="utf-8")
(directory.path / "export" / "1" / "saved_model.pb").touch()
directory.write("summary.txt", "a summary")
directory.write_translations([("a source", "a target")], ["a target"])
directory.write_readme()
"""


@pytest.mark.slow
def test_a_run_whose_file_names_are_not_ascii_goes_on_in_any_locale(tmp_path):
    output = tmp_path / "\u00fcbung"
    for name in ("ascii", "utf-8"):
        own = {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", OPEN, output, "daten/\u00fcbung.en"],
            env=environment(name, tmp_path) | own,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        for file, line in [
            ("settings.toml", 'train = ["daten/\u00fcbung.en"]'),
            ("README.txt", "\u00fcbung"),
        ]:
            assert line in (output / file).read_text(encoding="utf-8")


def test_a_run_of_an_earlier_version_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "settings.json").write_text("{}", encoding="utf-8")
    directory = RunDirectory(tmp_path)
    for refused in (
        lambda: directory.open(Settings.from_preset()),
        lambda: directory.check_start(Settings.from_preset(), ["d_model"]),
        lambda: load_translator(tmp_path),
    ):
        with pytest.raises(ValueError, match="a run of version 0.1.0, whose export in .* still"):
            refused()


def test_a_test_counts_until_its_pairs_or_its_search_are_others(directory):
    settings, pairs = Settings.from_preset(seed=1), [("a", "b"), ("c \n", '"d"\t')]
    for name in ("README.txt", "summary.txt"):
        assert not directory.is_tested(pairs)
        directory.write_translations(pairs, ["b", "d"])
        directory.write(name, "a summary\n")
    (directory.path / "export").mkdir()
    assert directory.is_tested(pairs)
    assert directory.summary() == "a summary"
    assert not directory.is_tested(pairs[:1])
    directory.open(dataclasses.replace(settings, epochs=3))
    assert directory.is_tested(pairs)
    directory.open(dataclasses.replace(settings, beam_size=8))
    assert not directory.is_tested(pairs)
    assert directory.summary() == ""


def test_what_a_run_found_out_stays_when_it_goes_on(directory):
    directory.open(Settings.from_preset(seed=1), pairs_digest="x")
    directory.note(split_sentences=True)
    directory.open(Settings.from_preset(seed=1), pairs_digest="x")
    assert read_run(directory.path)[1] == {"split_sentences": True, "pairs_digest": "x"}


def test_languages_are_locales_or_the_endings_of_two_files():
    assert find_languages(Settings.from_preset()) == {"source": "en", "target": "fr"}
    files = Settings.from_preset(train=("train.en", "b/train.de.gz"))
    assert find_languages(files) == {"source": "en", "target": "de"}
    assert find_languages(Settings.from_preset(train="a.tsv")) == {"source": "", "target": ""}


def test_somebody_elses_directory_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious", encoding="utf-8")
    with pytest.raises(ValueError, match="is not a run of this program. Give another --output"):
        RunDirectory(tmp_path).open(Settings.from_preset(seed=1))
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_loss_that_is_no_number_ends_the_run():
    with pytest.raises(ValueError, match="the val_loss of epoch 3 is nan: the training has div"):
        CheckLoss().on_epoch_end(2, {"loss": 1.0, "val_loss": float("nan")})


def test_what_was_not_measured_is_left_out_and_time_ends_the_training(directory):
    keep = KeepHistory(directory, [], minutes=1e-9)
    keep.set_model(model(1.0))
    keep.on_train_begin()
    # TranslationQuality repeats the figure of epoch 5.
    keep.on_epoch_end(5, {"loss": float("nan"), "val_bleu": 30.0, "val_bleu_epoch": 5})
    keep.on_epoch_end(6, {"loss": 1.0, "val_bleu": 31.0, "val_bleu_epoch": 7})
    assert [sorted(row) for row in directory.read_history(2)] == [
        ["epoch", "seconds"],
        ["epoch", "loss", "seconds", "val_bleu"],
    ]
    assert keep.model.stop_training


def test_the_seconds_of_the_epochs_are_all_of_the_time(directory, monkeypatch):
    """What is saved and shown after an epoch too, up to the end of the last."""
    times = iter([10.0, 13.0, 18.0])
    monkeypatch.setattr(
        "keras_transformer.recipes.run_directory.time.perf_counter", lambda: next(times)
    )
    keep = KeepHistory(directory, [], minutes=1.0)
    keep.set_model(model(1.0))
    keep.on_train_begin()
    for epoch in range(2):
        keep.on_epoch_end(epoch, {"loss": 1.0})
    assert [row["seconds"] for row in keep.history] == [3.0, 5.0]


def test_an_export_is_announced_before_it_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(RunDirectory, "card", lambda self, scores: {})

    def export(path, card, verbose):
        assert capsys.readouterr().out.startswith(f"Exporting to {tmp_path / 'export' / '1'}; ")
        path.mkdir()

    RunDirectory(tmp_path).export(SimpleNamespace(export=export), "")
    assert (tmp_path / "export" / "1").is_dir()


def test_an_export_removes_what_killed_ones_left(tmp_path, monkeypatch):
    monkeypatch.setattr(RunDirectory, "card", lambda self, scores: {})
    for name in (".export", ".export-before", ".export-1a2b/new/variables", "export/1"):
        (tmp_path / name).mkdir(parents=True)

    def export(path, card, verbose):
        path.mkdir()

    # Another process may be writing the ONNX file of the run.
    with new_directory(tmp_path / "onnx"):
        RunDirectory(tmp_path).export(SimpleNamespace(export=export), "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "onnx"]


def test_every_text_is_read_back_from_predictions_and_plain_rows_have_no_quotes(directory):
    texts = ["a\rb", 'a "\r"', "a\nb", "a\tb", 'a "b"', "", "a" * 200_000]
    limit = csv.field_size_limit()
    directory.write_translations([("a b", "c"), *((text, "b") for text in texts)], ["d", *texts])
    rows = read_predictions(directory.path)
    assert [row["source"] for row in rows] == ["a b", *texts]
    assert [row["output"] for row in rows] == ["d", *texts]
    assert csv.field_size_limit() == limit
    written = (directory.path / "predictions.tsv").read_bytes()
    assert written.startswith(b"source\treference\toutput\na b\tc\td\n")
    assert b'"a\nb"\tb\t"a\nb"\n' in written
