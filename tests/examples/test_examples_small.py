"""The examples as a user runs them: each ends with its figure, which long runs hold to a bound.

A slow test runs all lines of an example, but trains for three steps. The long one beside it trains
until the example beats its baseline.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from character_language_model import ngram_bits, validation_rows
from keras_transformer.recipes import dates
from tests.examples.few_steps import shorten
from train_on_files import read_lines

SLOW, LONG = pytest.mark.slow, pytest.mark.long
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def figures(script, *arguments, epochs=None):
    """Runs an example; returns the numbers with a decimal point in its last line.

    Without `epochs` all of its training is three steps.
    """
    program = [EXAMPLES / script] if epochs else ["-m", "tests.examples.few_steps"]
    program += [] if epochs else [EXAMPLES / script]
    done = subprocess.run(
        [sys.executable, *map(str, program), *map(str, arguments), "--epochs", str(epochs or 1)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return [float(number) for number in re.findall(r"\d+\.\d+", done.stdout.splitlines()[-1])]


@pytest.mark.slow
def test_the_classifier_ends_with_its_figures():
    accuracy, majority = figures("classify_text.py")
    assert 0 <= accuracy <= 100
    assert majority < 20


@pytest.mark.long
def test_the_classifier_tells_the_languages_apart():
    accuracy, _ = figures("classify_text.py", epochs=3)
    assert accuracy >= 94  # 99 after eight epochs


@pytest.mark.parametrize(
    ("epochs", "most"), [pytest.param(None, 9, marks=SLOW), pytest.param(6, -0.1, marks=LONG)]
)
def test_the_language_model_beats_n_grams(epochs, most):
    bits, ngrams = figures("character_language_model.py", epochs=epochs)
    assert 1.0 < bits < ngrams + most


@pytest.mark.parametrize("epochs", [pytest.param(None, marks=SLOW), pytest.param(2, marks=LONG)])
def test_the_forecasts_come_near_the_noise_and_are_drawn(epochs, tmp_path):
    arguments = ("forecast_series.py", "--output", tmp_path)
    error, last_week, last_value, noise = figures(*arguments, epochs=epochs)
    assert noise < min(error, last_week, last_value)
    if epochs:
        assert error < min(last_week, last_value, 1.3 * noise)
    assert (tmp_path / "forecast.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("epochs", "least"), [pytest.param(None, 0, marks=SLOW), pytest.param(2, 50, marks=LONG)]
)
def test_every_picture_is_drawn_from_trained_translators(epochs, least, tmp_path):
    (accuracy,) = figures("draw_plots.py", "--output", tmp_path, epochs=epochs)
    assert accuracy >= least  # 100 after ten epochs
    page = (EXAMPLES.parent / "docs/plots.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"pictures/(\w+\.png)", page))
    assert {path.name for path in tmp_path.iterdir()} == shown
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("epochs", "least"), [pytest.param(None, -1, marks=SLOW), pytest.param(2, 20, marks=LONG)]
)
def test_the_recurrent_model_is_aligned_and_drawn(epochs, least, tmp_path):
    (right,) = figures("recurrent_alignment.py", "--output", tmp_path, epochs=epochs)
    assert right > least  # 99 after six epochs
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("epochs", "more"), [pytest.param(None, -100, marks=SLOW), pytest.param(8, 10, marks=LONG)]
)
def test_the_layers_beat_guessing_in_a_functional_model(epochs, more):
    accuracy, guessing = figures("tune_layers.py", "--trials", 1, epochs=epochs)
    assert accuracy > guessing + more


@pytest.mark.parametrize(
    ("backend", "epochs", "least"),
    [
        pytest.param("jax", None, -1, marks=SLOW),
        pytest.param("torch", None, -1, marks=SLOW),
        pytest.param("jax", 5, 5, marks=LONG),
        pytest.param("torch", 5, 5, marks=LONG),
    ],
)
def test_words_are_spelt_backwards_without_tensorflow(backend, epochs, least, monkeypatch):
    pytest.importorskip(backend)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    (right,) = figures("train_without_tensorflow.py", epochs=epochs)
    assert right > least  # 99 after twelve epochs


def run_cells(script, folder, monkeypatch, until=None, **constants):
    """Runs a script of cells, whole or up to a text, with other constants; returns its names."""
    code = (EXAMPLES / script).read_text(encoding="utf-8")
    if until is not None:
        code, found, _ = code.partition(until)
        assert found
    for name, value in constants.items():
        code, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", code, flags=re.MULTILINE)
        assert count == 1
    monkeypatch.chdir(folder)
    names = {}
    exec(compile(code, script, "exec"), names)
    return names


@pytest.mark.parametrize(
    ("epochs", "least"), [pytest.param(1, 0, marks=SLOW), pytest.param(8, 0.9, marks=LONG)]
)
def test_the_notebook_of_attention_draws_what_a_trained_model_looks_at(
    epochs, least, tmp_path, monkeypatch
):
    if epochs == 1:
        monkeypatch.setattr(keras.Model, "fit", shorten(keras.Model.fit))
    names = run_cells("look_at_attention.py", tmp_path, monkeypatch, EPOCHS=epochs)
    assert names["accuracy"] > least
    written = {path.name for path in (tmp_path / "runs/look_at_attention").iterdir()}
    assert written == {"positions.png", "attention.png", "learning_curve.png"}


@pytest.mark.slow
def test_the_first_example_ends_with_an_export_beside_earlier_ones(tmp_path, monkeypatch):
    exports = tmp_path / "runs/train_translator/export"
    (exports / "1").mkdir(parents=True)
    # Hardly trained, it writes the longest outputs: so there are few to write.
    make, split = dates.date_pairs, dates.split_pairs
    monkeypatch.setattr(
        dates, "date_pairs", lambda _, *given, **options: make(2000, *given, **options)
    )
    few = dict(num_validation=50, num_test=20)
    monkeypatch.setattr(
        dates, "split_pairs", lambda pairs, **options: split(pairs, **options | few)
    )
    names = run_cells("train_translator.py", tmp_path, monkeypatch, EPOCHS=1)
    assert 0 <= names["right"] <= len(names["test"])
    assert "May 3, 2026" in translated_alone(exports / "2")


@pytest.mark.long
def test_the_first_example_learns_dates_and_its_export_needs_tensorflow_alone(
    tmp_path, monkeypatch
):
    stop = "# ## Strings in, strings out"
    run_cells("train_translator.py", tmp_path, monkeypatch, until=stop, EPOCHS=1)
    names = run_cells("train_translator.py", tmp_path, monkeypatch)  # it goes on
    assert names["resume"].epoch == 8
    assert names["right"] / len(names["test"]) >= 0.98
    assert "3 mai 2026" in translated_alone(tmp_path / "runs/train_translator/export/1")


def translated_alone(export):
    """What `translate_saved_model.py` prints of an export of the first example."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "translate_saved_model.py", export, "May 3, 2026", ""],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last = "2 texts translated; keras_transformer is not loaded here."
    assert done.stdout.splitlines()[-1] == last
    return done.stdout


@pytest.mark.slow
def test_two_files_become_a_saved_model(tmp_path):
    sources = [f"{a} {b} {c}" for a in "abcdefg" for b in "hijkl" for c in "mnopq"]
    for name, texts in (("a", sources), ("b", [text[::-1] for text in sources])):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    files = tmp_path / "a", tmp_path / "b"
    (tmp_path / "run/export/1").mkdir(parents=True)  # an earlier export stays
    (perplexity,) = figures(*("train_on_files.py", *files, "--output", tmp_path / "run"), epochs=2)
    assert 1 < perplexity < 1000  # of a model that has seen a few batches
    assert (tmp_path / "run/export/2/saved_model.pb").exists()


def test_only_line_feeds_end_a_line_of_a_file_that_is_trained_on(tmp_path):
    file = tmp_path / "texts"
    file.write_bytes("\ufeffa\rb\r\n\u2028 c\n\n\n".encode())
    assert read_lines(file) == ["a\rb", "\u2028 c", "", ""]
    file.write_bytes(b"a\nb")
    assert read_lines(file) == ["a", "b"]


def test_each_held_out_character_counts_once_with_its_past():
    ids = np.arange(1, 1001)
    inputs, labels = validation_rows(ids, start=900)
    counted = labels > 0
    assert sorted(labels[counted]) == list(range(901, 1001))
    np.testing.assert_array_equal(labels[counted] - inputs[counted], 1)
    assert counted.argmax(axis=1).min() >= 64


def test_n_gram_bits_by_hand():
    # "b" after "aaaaaa": 1/2 over the alphabet, then (0 + 1 * p) / (1 + 1) for each of 5 orders.
    assert ngram_bits("aaaaaab", start=6, num_characters=2) == 6.0


def test_two_examples_are_notebooks_too():
    assert [path.stem for path in NOTEBOOKS] == ["look_at_attention", "train_translator"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_script(path):
    jupytext = pytest.importorskip("jupytext")
    notebook = jupytext.read(path)
    script = jupytext.read(path.with_suffix(".py"), fmt="py:percent")
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in script.cells
    ]
    assert not any(cell.get("outputs") for cell in notebook.cells)
