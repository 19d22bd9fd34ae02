"""The tables and pictures of the experiments, from results made up so that the outcome is known."""

import types

import numpy as np
import pytest

pytest.importorskip("babel")
pytest.importorskip("matplotlib")

from benchmarks import comparison_report, statements, variants
from benchmarks.experiments import Results

PNG = b"\x89PNG"
SEEDS = [1, 2, 3]


@pytest.fixture
def made_up(tmp_path):
    """Results and arguments of a finished run."""
    arguments = types.SimpleNamespace(seeds=SEEDS, pictures=str(tmp_path / "pictures"))
    return Results(tmp_path / "results.jsonl"), arguments


def test_what_attention_gains_is_a_difference_of_differences(made_up, capsys):
    results, arguments = made_up
    first_and_last = {"no attention": (0.8, 0.3), "scaled dot": (0.9, 0.5), "additive": (1.0, 1.0)}
    for name in statements.REVERSERS:
        for seed in SEEDS:
            key = {"experiment": "long", "model": name, "updates": statements.LONG_UPDATES}
            ends = first_and_last.get(name, (0.9, 0.9))
            right = np.linspace(*ends, len(statements.LENGTHS)).tolist()
            results.add({**key, "seed": seed}, {"right": right})
    statements.check_long(results, arguments)  # nothing is missing, so nothing is trained
    # 100 - 80 at length 5, 100 - 30 at 30, and the same for each seed.
    expected = "additive attention gains 20.0 points at length 5 and 70.0 at 30: 50.0 ± 0.0 more"
    assert expected in capsys.readouterr().out
    picture = f"{arguments.pictures}/statement_long.png"
    with open(picture, "rb") as file:
        assert file.read(4) == PNG


def test_accuracies_are_drawn_for_every_width(made_up, capsys):
    results, arguments = made_up
    for similarity in statements.SIMILARITIES:
        for width in statements.TRAINED_WIDTHS:
            key = {"experiment": "scaling", "similarity": similarity, "d_k": width}
            for seed in SEEDS:
                key |= {"updates": statements.LOOKUP_UPDATES, "seed": seed}
                results.add(key, {"accuracy": 0.5})
    statements.check_scaling(results, arguments)
    assert capsys.readouterr().out.count("50.0 ± 0.0, 50.0 ± 0.0, 50.0 ± 0.0, 50.0 ± 0.0") == 3
    with open(f"{arguments.pictures}/statement_scaling.png", "rb") as file:
        assert file.read(4) == PNG


def test_a_statement_is_judged_by_differences_within_a_seed(made_up, capsys):
    results, arguments = made_up
    losses = {"added": (0.3, 0.5, 0.9), "appended": (0.4, 0.6, 1.0)}  # apart by 0.1 each time
    for label, options in variants.STATEMENTS["sum"].variants.items():
        for seed, loss in zip(SEEDS, losses[label], strict=True):
            found = {"loss": loss, "exact": 0.25, "parameters": 1000}
            results.add(variants.key_of(options, seed), found)
    variants.check_parts("sum", results, arguments)
    printed = capsys.readouterr().out
    assert "added against appended: lower by 0.100 ± 0.000: better" in printed
    assert "1,000 parameters, held-out loss 0.567" in printed
    with open(f"{arguments.pictures}/statement_sum.png", "rb") as file:
        assert file.read(4) == PNG


def test_the_comparison_gives_the_quality_of_each_length(tmp_path, capsys):
    lengths = np.repeat([2, 4, 6, 8, 10, 12], 20)
    times = dict.fromkeys(comparison_report.TIMES.values(), 1.5)
    row = {"parameters": 1000, "qualities": (100.0 * (lengths < 7)).tolist(), **times}
    rows = {"dot": [row, row], "Transformer": [row, row]}
    comparison_report.print_table(rows, lengths, "exact match")
    head, *lines = capsys.readouterr().out.splitlines()
    bins = comparison_report.length_bins(lengths)
    assert all(comparison_report.label_of(*ends) in head for ends in bins)
    for line in lines:
        assert " 50.0 " in line
        assert line.split()[-len(times) :] == ["1.50"] * len(times)
    by_length = comparison_report.by_length([row, row], lengths)
    assert by_length[0].tolist() == [100.0, 100.0, 100.0]
    assert by_length[-1].tolist() == [0.0, 0.0, 0.0]
    comparison_report.draw(rows, lengths, "exact match", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(PNG)
