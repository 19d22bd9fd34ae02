"""What the files of a run and an export say; tests of what is refused before Keras is imported."""

import json

import pytest

from keras_transformer.recipes.run_files import (
    change_search,
    check_model,
    check_run,
    count_hypotheses,
    find_export,
    is_run,
)
from keras_transformer.recipes.settings import Settings


@pytest.fixture
def run(tmp_path):
    """The files of a run with a model, and of its export with another search."""
    settings = Settings(train=("a", "b"), beam_size=5)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    (tmp_path / "run" / "model.keras").touch()
    card = {"search": {"class": "BeamSearch", "settings": {"beam_size": 8, "num_hypotheses": 7}}}
    write_export(tmp_path / "run" / "export" / "1", card)
    return tmp_path / "run"


def write_export(path, card=None):
    (path / "assets.extra").mkdir(parents=True)
    (path / "saved_model.pb").touch()
    if card is not None:
        text = json.dumps(card)
        (path / "assets.extra" / "model_card.json").write_text(text, encoding="utf-8")


def test_an_export_is_found_in_a_run_among_versions_and_alone(run, tmp_path):
    export = run / "export" / "1"
    assert [find_export(path) for path in (run, run / "export", export)] == [export] * 3
    for name in ("2", "10", "x", ".half"):
        (tmp_path / name).mkdir()
    for name in ("2", "10", "x"):
        (tmp_path / name / "saved_model.pb").touch()
    assert find_export(tmp_path) == tmp_path / "10"
    assert find_export(tmp_path / ".half") is None
    assert is_run(run)
    assert not is_run(export)


def test_what_is_no_model_is_refused_with_what_to_do(run, tmp_path):
    check_model(run, beam_size=2, length_penalty=1.0)
    check_model(run / "export")
    with pytest.raises(ValueError, match="must be the directory of a run to change the search"):
        check_model(run / "export", beam_size=2)
    with pytest.raises(ValueError, match="a length penalty needs a beam of at least 2"):
        check_model(run, beam_size=1, length_penalty=1.0)
    with pytest.raises(ValueError, match="nowhere: there is no such directory"):
        check_model(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="must be the directory of a run, with settings.toml"):
        check_run(run / "export")
    (run / "model.keras").unlink()
    with pytest.raises(ValueError, match="has no model yet. .* keras-transformer train --config"):
        check_run(run)
    check_model(run)  # its export


def test_another_search_is_that_of_the_settings_but_for_what_is_given():
    greedy = Settings(train=("a", "b"), beam_size=1)
    assert change_search(greedy) == greedy
    assert change_search(greedy, 3, 1.5).search_name == "beam 3, length penalty 1.5"
    assert change_search(Settings(train="a"), 1).search_name == "greedy search"
    with pytest.raises(ValueError, match="a length penalty needs a beam of at least 2"):
        change_search(greedy, length_penalty=1.5)


def test_a_run_and_an_export_say_how_many_translations_they_give(run, tmp_path):
    assert count_hypotheses(run) == 5
    assert count_hypotheses(run, beam_size=2) == 2
    assert count_hypotheses(run / "export") == 7
    for number, (card, expected) in enumerate(
        [
            ({"search": {"class": "GreedySearch", "settings": {}}}, 1),
            ({"search": {"class": "Sampling", "settings": {"num_samples": 3}}}, 3),
            ({"search": {"class": "Mine", "settings": {}}}, None),
            (None, None),
        ]
    ):
        write_export(tmp_path / f"of-{number}", card)
        assert count_hypotheses(tmp_path / f"of-{number}") == expected
