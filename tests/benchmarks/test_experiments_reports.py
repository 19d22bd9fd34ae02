"""The tables and pictures of the experiments, from results made up so that the outcome is known.

The tables of docs/lab/comparison.md are from the results that the repository keeps.
"""

import json
import re
import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest

pytest.importorskip("babel")
pytest.importorskip("matplotlib")

from benchmarks import (
    comparison,
    comparison_report,
    distillation,
    experiments,
    reversing,
    scaling,
    statements,
    variants,
)
from benchmarks.experiments import Results

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
PNG = b"\x89PNG"
SEEDS = [1, 2, 3]
intervals = {}


def bootstrap(groups):
    """That of the experiments; what a table and its picture both ask for is computed once."""
    key = tuple(np.asarray(group, dtype="float64").tobytes() for group in groups)
    if key not in intervals:
        intervals[key] = experiments.bootstrap(groups)
    return intervals[key]


@pytest.fixture(autouse=True)
def nothing_is_computed_twice(monkeypatch):
    monkeypatch.setattr(comparison_report, "bootstrap", bootstrap)


@pytest.fixture
def made_up(tmp_path):
    """Results and arguments of a finished run."""
    arguments = types.SimpleNamespace(seeds=SEEDS, pictures=str(tmp_path / "pictures"))
    return Results(tmp_path / "results.jsonl"), arguments


@pytest.fixture
def nothing_is_trained(monkeypatch):
    """Training, or reading texts for it, raises."""

    def refused(*args, **options):
        raise AssertionError("a result is missing")

    monkeypatch.setattr(keras.Model, "fit", refused)
    for module in (comparison, variants):
        monkeypatch.setattr(module, "date_pairs", refused)
    monkeypatch.setattr(experiments, "one_thread", lambda: None)


def find_tables(text):
    """The lines of each table of a text in Markdown."""
    blocks = text.split("\n\n")
    return [block.strip().splitlines() for block in blocks if block.strip().startswith("| ")]


def holds(page, printed):
    """Whether a page has all tables of what was printed, at least one, each whole."""
    tables = find_tables(printed)
    return bool(tables) and all(table in find_tables(page) for table in tables)


def test_a_changed_number_and_a_missing_line_are_found():
    page = "text\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\ntext\n"
    assert holds(page, "said: x\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\nDrew y\n")
    assert not holds(page, "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 5 |\n")
    assert not holds(page, "| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert not holds(page, "no table\n")


def printed_by_the_comparison(results, tmp_path, monkeypatch, *options):
    arguments = ["--results", str(results), "--picture", str(tmp_path / "picture.png"), *options]
    monkeypatch.setattr(sys, "argv", ["comparison", *arguments])
    comparison.main()


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_is_trained")
def test_the_page_has_what_the_comparison_prints(tmp_path, monkeypatch, capsys):
    printed_by_the_comparison(RESULTS / "comparison.jsonl", tmp_path, monkeypatch)
    page = (REPOSITORY / "docs" / "lab" / "comparison.md").read_text(encoding="utf-8")
    assert holds(page, capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_is_trained")
def test_the_page_has_what_the_comparison_prints_of_multi30k(tmp_path, monkeypatch, capsys):
    page = (REPOSITORY / "docs" / "lab" / "comparison.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"python -m benchmarks\.comparison (--source(?:.|\\\n)*?)\n```", page)
    options = command.replace("\\\n", " ").replace("$DATA", "multi30k").split()
    printed_by_the_comparison(RESULTS / "multi30k.jsonl", tmp_path, monkeypatch, *options)
    assert holds(page, capsys.readouterr().out)


@pytest.mark.parametrize(
    "name",
    # That on scaling computes what it prints, for many widths.
    [pytest.param(n, marks=pytest.mark.slow if n == "scaling" else ()) for n in statements.NAMES],
)
@pytest.mark.usefixtures("nothing_is_trained")
def test_the_page_has_what_the_statements_print(name, tmp_path, capsys):
    statements.check(name, Results(RESULTS / "statements.jsonl"), str(tmp_path))
    page = (REPOSITORY / "docs" / "lab" / "comparison.md").read_text(encoding="utf-8")
    assert holds(page, capsys.readouterr().out)
    assert (tmp_path / f"statement_{name}.png").read_bytes().startswith(PNG)


def test_speeds_of_the_distillation_stand_beside_the_teachers(tmp_path, capsys):
    results = Results(tmp_path / "results.jsonl")
    for layers, source, weights, test, speed in (
        ("4+4", "the corpus", "float32", 90.0, 100.0),
        ("4+4", "the corpus", "int8", 89.0, 50.0),
        ("6+1", "the teacher", "float32", 89.5, 210.0),
        ("6+1", "the teacher", "int8", 88.0, 240.0),
    ):
        options = {"learns from": source, "weights": weights}
        figures = {"test": test, "tokens_per_second": {"1": speed, "8": 9 * speed}}
        results.add(
            {"experiment": "distillation dates"}, {"model": layers, "options": options, **figures}
        )
    capsys.readouterr()
    distillation.report(results, tmp_path / "picture.png")
    ((_, _, *lines),) = find_tables(capsys.readouterr().out)
    assert lines[1] == (
        "| 6+1 | the teacher | 89.5 | 88.0 | 210 (2.1) | 240 (2.4) | 1,890 (2.1) | 2,160 (2.4) |"
    )


def test_the_kept_results_are_each_once_and_name_no_place():
    for file in RESULTS.iterdir():
        assert not re.search(r'["\s]/', file.read_text(encoding="utf-8")), file
    for file in RESULTS.glob("*.jsonl"):
        text = file.read_text(encoding="utf-8")
        keys = ("experiment", "model", "similarity", "d_k", "options", "recipe", "seed")
        rows = [json.loads(line) for line in text.splitlines()]
        found = [json.dumps([row.get(key) for key in keys]) for row in rows]
        assert len(set(found)) == len(found) > 0


@pytest.mark.usefixtures("nothing_is_trained")
def test_with_another_recipe_kept_results_are_not_taken(tmp_path, monkeypatch):
    monkeypatch.setitem(comparison.RECIPE, "peak", 0.002)
    copy = tmp_path / "comparison.jsonl"
    copy.write_bytes((RESULTS / "comparison.jsonl").read_bytes())
    with pytest.raises(AssertionError, match="a result is missing"):
        printed_by_the_comparison(copy, tmp_path, monkeypatch)


def test_what_attention_gains_is_a_difference_of_differences(made_up, capsys):
    results, arguments = made_up
    ends = {"no attention": (0.8, 0.3), "scaled dot": (0.9, 0.5), "additive": (0.96, 0.93)}
    for name in reversing.REVERSERS:
        first, last = ends.get(name, (0.85, 0.85))
        right = np.linspace(first, last, len(reversing.LENGTHS)).tolist()
        for seed in SEEDS:
            results.add(reversing.make_key(name, seed), {"right": right})
    reversing.check_long(results, arguments)  # nothing is missing, so nothing is trained
    printed = capsys.readouterr().out
    # Without attention 20 % are wrong at length 5 and 70 % at 30, with additive attention 4 % and
    # 7 %: 16 and 63 points, and 5 and 10 times fewer errors. Scaled dot: 10 % and 50 %, so 10 and
    # 20 points, and factors of 2 and 1.4.
    assert "| most that can be gained | 20.0 |" in printed
    assert "| additive, errors divided by | 5.0 |" in printed
    assert "| additive | 47.0 ± 0.0 more | 2.00 times (2.00 to 2.00) |" in printed
    assert "| scaled dot | 10.0 ± 0.0 more | 0.70 times (0.70 to 0.70) |" in printed
    with open(f"{arguments.pictures}/statement_long.png", "rb") as file:
        assert file.read(4) == PNG


def test_no_error_left_is_an_infinite_factor():
    wrong, none = np.full((3, 2), 80.0), np.full((3, 2), 100.0)
    assert reversing.divided(100 - wrong, 100 - none).tolist() == [[np.inf] * 2] * 3
    assert "nan" in reversing.changes(none, wrong)[1]


def test_accuracies_are_drawn_for_every_width(made_up, monkeypatch, capsys):
    monkeypatch.setattr(scaling, "WIDTHS", scaling.TRAINED_WIDTHS)
    results, arguments = made_up
    for similarity in scaling.SIMILARITIES:
        for width in scaling.TRAINED_WIDTHS:
            for seed in SEEDS:
                results.add(scaling.make_key(similarity, width, seed), {"accuracy": 0.5})
    scaling.check_scaling(results, arguments)
    assert (
        capsys.readouterr().out.count("| 50.0 ± 0.0 | 50.0 ± 0.0 | 50.0 ± 0.0 | 50.0 ± 0.0 |") == 3
    )
    with open(f"{arguments.pictures}/statement_scaling.png", "rb") as file:
        assert file.read(4) == PNG


def test_a_statement_is_judged_by_differences_within_a_seed(made_up, capsys):
    results, arguments = made_up
    losses = {"added": (0.3, 0.5, 0.9), "appended": (0.4, 0.6, 1.0)}  # apart by 0.1 each time
    for label, options in variants.STATEMENTS["sum"].variants.items():
        for seed, loss in zip(SEEDS, losses[label], strict=True):
            found = {"loss": loss, "exact": 0.25, "parameters": 1000}
            results.add(variants.make_key(options, seed), found)
    variants.check_parts("sum", results, arguments)
    printed = capsys.readouterr().out
    assert "| added | 1,000 | 0.567 ± " in printed
    assert "| 25.0 ± 0.0 | 0.100 ± 0.000 from added | worse |" in printed
    with open(f"{arguments.pictures}/statement_sum.png", "rb") as file:
        assert file.read(4) == PNG


def test_the_comparison_gives_the_quality_of_each_length(tmp_path, capsys):
    lengths = np.repeat([2, 4, 6, 8, 10, 12], 20)
    times = {key: 1.5 for keys in comparison_report.TIMES.values() for key in keys[:2]}
    qualities = (100.0 * (lengths < 7)).tolist()
    row = {"parameters": 1000, "qualities": qualities, "lengths": lengths.tolist(), **times}
    rows = {"dot": [row, row], "Transformer": [row, row]}
    comparison_report.print_tables(rows, "exact match")
    (head, _, *lines), (_, _, *times) = find_tables(capsys.readouterr().out)
    bins = comparison_report.length_bins(lengths)
    assert all(f"| {comparison_report.label_bin(*ends)} " in head for ends in bins)
    assert all("| 1,000 | 50.0 |" in line for line in lines)
    assert times[0] == "| dot | 1.5 (1.5) | 1.5 (1.5) | 1.50 (1.50) |"
    by_length = comparison_report.by_length([row, row])
    assert by_length[0].tolist() == [100.0, 100.0, 100.0]
    assert by_length[-1].tolist() == [0.0, 0.0, 0.0]
    comparison_report.draw(rows, "exact match", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(PNG)
