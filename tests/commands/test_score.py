import math

import pytest

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
