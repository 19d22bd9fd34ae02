"""The run directory: nothing finished is lost, whichever write a crash interrupts."""

import os

import keras
import numpy as np
import pytest

from run_directory import RunDirectory


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
    opened.open({"seed": 1})
    return opened


def test_a_new_directory_has_no_checkpoint_and_no_history(directory):
    assert directory.checkpoint() == (None, 0)
    assert directory.read_history(0) == []


def test_an_epoch_is_kept_whole_and_the_one_before_goes(directory):
    directory.finish_epoch(model(1.0), 1, rows(1), is_best=True)
    directory.finish_epoch(model(2.0), 2, rows(2), is_best=False)
    path, epoch = directory.checkpoint()
    assert (path.name, epoch) == ("checkpoint-0002.keras", 2)
    assert value_of(keras.saving.load_model(path)) == 2.0
    assert value_of(directory.load_model()) == 1.0
    assert directory.read_history(2) == rows(2)
    assert len(list(directory.path.glob("checkpoint-*"))) == 1


@pytest.mark.parametrize("survivors", [0, 1, 2])
def test_a_crash_in_an_epochs_writes_leaves_the_epoch_before(directory, monkeypatch, survivors):
    directory.finish_epoch(model(1.0), 1, rows(1), is_best=True)
    replace, calls = os.replace, []

    def crash_later(source, target):
        calls.append(target)
        if len(calls) > survivors:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr("os.replace", crash_later)
    with pytest.raises(KeyboardInterrupt):
        directory.finish_epoch(model(2.0), 2, rows(2), is_best=True)
    monkeypatch.undo()

    again = RunDirectory(directory.path)
    again.open({"seed": 1})
    path, epoch = again.checkpoint()
    assert epoch == 1
    assert value_of(keras.saving.load_model(path)) == 1.0
    assert again.read_history(epoch) == rows(1)
    again.finish_epoch(model(3.0), 2, rows(2), is_best=True)
    assert value_of(again.load_model()) == 3.0


def test_a_crash_before_the_settings_are_written_leaves_the_directory_usable(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".settings.json").write_text("{")
    RunDirectory(tmp_path / "run").open({"seed": 1})


def test_settings_may_change_until_something_is_trained(directory):
    (directory.path / "source.tokenizer").write_text("learnt for the old settings")
    RunDirectory(directory.path).open({"seed": 2})
    assert not (directory.path / "source.tokenizer").exists()
    directory.finish_epoch(model(1.0), 1, rows(1), is_best=True)
    with pytest.raises(ValueError, match="another run: seed was 2 and is 3. Give another --output"):
        RunDirectory(directory.path).open({"seed": 3})


def test_somebody_elses_directory_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="is no run of this program. Give another --output"):
        RunDirectory(tmp_path).open({"seed": 1})
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
