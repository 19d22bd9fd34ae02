import math

import numpy as np
import pytest

from keras_transformer.recipes.settings import Settings
from tests.serving.trained import translator


@pytest.mark.slow
def test_each_pair_and_all_pairs_have_their_figures(run_directory, tmp_path, command, figures):
    sources, targets = ["abc", "g", "a" * 2000], ["CBA", "A", "A"]
    for name, lines in (("source", sources), ("target", targets)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    given = ("score", run_directory, tmp_path / "source", tmp_path / "target")
    expected = [log_prob for log_prob, _ in translator().score(sources[:2], targets[:2])]
    status, out, _ = command(*given, "--batch-size", 2)
    assert status == 0
    rows = [line.split("\t") for line in out.splitlines() if "\t" in line]
    assert [float(row[0]) for row in rows[:2]] == pytest.approx(expected, abs=2e-4)
    assert [row[1] for row in rows[:2]] == ["4", "2"]
    perplexity = math.exp(-sum(expected) / 6)
    assert out.splitlines()[-1] == f"Perplexity {perplexity:.4f} over 6 tokens"
    assert out.splitlines()[2] == "too long"
    assert "Too long for the model, not counted: 1 of 3 pairs" in out
    found = figures(*given, "--total")
    assert (found["pairs"], found["too_long"], found["tokens"]) == (3, 1, 6)
    assert found["scores"] == []
    assert found["perplexity"] == pytest.approx(perplexity, abs=1e-4)


def test_files_of_other_lengths_are_refused(run_directory, tmp_path, command):
    (tmp_path / "one").write_text("a\n", encoding="utf-8")
    (tmp_path / "two").write_text("a\nb\n", encoding="utf-8")
    status, _, err = command("score", run_directory, tmp_path / "one", tmp_path / "two")
    assert status == 1
    assert "give files of equal length" in err


@pytest.mark.parametrize(
    ("format", "source", "target", "asked"),
    [
        ("characters", "ab", "b a", ("a b", "b ▁ a")),
        ("inflection", "go\tV;PST", "went", ("g o <V> <PST>", "w e n t")),
        ("g2p", "tool", "t uː l", ("t o o l", "t uː l")),
    ],
)
def test_a_model_of_symbols_scores_what_the_files_hold(
    format, source, target, asked, tmp_path, command, monkeypatch
):
    from keras_transformer.recipes import runs

    found = []

    def score(source, target):
        found.extend(text.numpy()[0].decode() for text in (source, target))
        return {"log_prob": np.zeros(1), "num_tokens": np.ones(1), "truncated": np.zeros(1)}

    monkeypatch.setattr(runs, "open_signatures", lambda *given, **options: {"score": score})
    settings = Settings.from_preset(train="words.tsv", format=format)
    (tmp_path / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    (tmp_path / "model.keras").touch()
    for name, text in (("source", source), ("target", target)):
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    status, _, err = command("score", tmp_path, tmp_path / "source", tmp_path / "target")
    assert status == 0, err
    assert tuple(found) == asked
