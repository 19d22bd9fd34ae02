"""The small examples as a user runs them: each beats its baseline, and says so in its last line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from character_language_model import ngram_bits, validation_rows

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def figures(script, *arguments):
    """Runs an example; returns the numbers with a decimal point in its last line."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return [float(number) for number in re.findall(r"\d+\.\d+", done.stdout.splitlines()[-1])]


@pytest.mark.slow
def test_the_classifier_tells_the_languages_apart():
    accuracy, majority = figures("classify_text.py", "--epochs", 3)
    assert accuracy >= 94  # 96 after three epochs, 99 after eight
    assert majority < 20


@pytest.mark.slow
def test_the_language_model_beats_n_grams():
    bits, ngrams = figures("character_language_model.py")
    assert 1.0 < bits < ngrams - 0.1


@pytest.mark.slow
def test_the_forecasts_come_near_the_noise_and_are_drawn(tmp_path):
    arguments = ("--epochs", 2, "--output", tmp_path)  # of 8: half of the time
    error, last_week, last_value, noise = figures("forecast_series.py", *arguments)
    assert noise < error < 0.6 * min(last_week, last_value)
    assert error < 1.3 * noise
    assert (tmp_path / "forecast.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_every_picture_is_drawn_from_trained_translators(tmp_path):
    (accuracy,) = figures("draw_plots.py", "--epochs", "2", "--output", tmp_path)
    assert accuracy > 50  # 78 after two epochs, 100 after ten
    page = (EXAMPLES.parent / "docs/plots.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"pictures/(\w+\.png)", page))
    assert {path.name for path in tmp_path.iterdir()} == shown
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


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
