"""The command `distill`: its options, what it refuses, and what it prints."""

import json
import shutil

import pytest

from keras_transformer.commands import main as command_line
from keras_transformer.recipes.run_files import VOCABULARY
from keras_transformer.recipes.settings import FIELDS


@pytest.fixture
def teacher(run_directory, tmp_path, monkeypatch):
    """A run whose training files are in the directory that the command starts in."""
    monkeypatch.chdir(tmp_path)
    for name in ("letters.low", "letters.up"):
        (tmp_path / name).write_text("a\n", encoding="utf-8")
    return run_directory


@pytest.fixture
def distilled(monkeypatch):
    """What the command asks for; nothing is trained."""
    from keras_transformer.recipes import distillation
    from keras_transformer.recipes.evaluation import Score
    from keras_transformer.recipes.testing import Run

    asked = []

    def distill(teacher, output, **given):
        asked.append((teacher, output, given))
        print("from Keras")
        run = Run(None, [Score("exact_match", 49.0, "texts:2")], "Exact match: 49.00%")
        speeds = {1: {"teacher": 100.0, "student": 200.0}}
        return distillation.Distilled(run, [Score("exact_match", 50.0, "texts:2")], speeds)

    monkeypatch.setattr(distillation, "distill", distill)
    return asked


def test_options_are_the_settings_but_for_those_that_are_the_teachers():
    args = vars(command_line.make_parser().parse_args(["distill", "run", "--output", "new"]))
    left_out = {*VOCABULARY, "start_from", "backend", "input_sentence_size"}
    assert {*args} - {"output", "json", "run", "refuse"} == {*FIELDS} - left_out
    assert args["teacher"] == "run"


def test_it_ends_with_the_figures_of_both_and_json_has_them(command, teacher, distilled):
    status, out, _ = command("distill", teacher, "--output", "new", "--epochs", 3)
    assert status == 0
    assert out.splitlines() == [
        "from Keras",
        "Exact match: 49.00%",
        "         Exact match  tokens a second at batch 1",
        "teacher  50.00        100",
        "student  49.00        200",
        "         -1.00        2.00 times",
    ]
    assert distilled == [(str(teacher), "new", {"epochs": 3})]
    status, out, err = command("distill", teacher, "--output", "new", "--json")
    found = json.loads(out)
    assert found["tokens_per_second"] == {"1": {"teacher": 100.0, "student": 200.0}}
    assert found["scores"]["student"]["exact_match"]["value"] == 49.0
    assert found["settings"]["preset"] == "fast-tiny"
    assert "from Keras" in err


def test_what_is_wrong_is_refused_in_one_line(command, teacher, tmp_path):
    imported = tmp_path / "imported"
    shutil.copytree(teacher, imported)
    (imported / "imported.json").write_text('{"from": "marian"}', encoding="utf-8")
    for given, message in (
        (["nowhere"], "nowhere: there is no such directory"),
        ([teacher, "--seed", 9], "cannot be the teacher of this run: seed was 5 and is 9"),
        ([teacher, "--train", "x", "y"], "x: there is no such file. Check the path"),
        ([teacher, "--dropout", 2], "--dropout must be at least 0 and below 1"),
        ([teacher, "--vocab-size", 9], "unrecognized arguments: --vocab-size 9"),
        ([imported], "Received: a model of another system"),
    ):
        status, out, err = command("distill", *given, "--output", tmp_path / "new")
        assert (status, out) == (1, "")
        assert err.startswith("error: ")
        assert message in err
        assert err.count("\n") == 1
    status, _, err = command("distill", teacher)
    assert (status, "required: --output" in err) == (1, True)
    assert not (tmp_path / "new").exists()
