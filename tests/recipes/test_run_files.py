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
    read_run,
    student_settings,
)
from keras_transformer.recipes.settings import Settings


def write_run(path, settings):
    path.mkdir(exist_ok=True)
    (path / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    (path / "model.keras").touch()


@pytest.fixture
def run(tmp_path):
    """The files of a run with a model, and of its export with another search."""
    write_run(tmp_path / "run", Settings(train=("a", "b"), beam_size=5))
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


@pytest.fixture
def teacher(run, tmp_path):
    """Writes settings of a run of files that are there, and returns its directory."""
    files = [str(tmp_path / name) for name in ("a", "b")]
    for file in files:
        (tmp_path / file).touch()

    def write(preset="tiny", **given):
        settings = Settings.from_preset(preset, **{"train": files, **given})
        write_run(run, settings)
        return run

    return write


def test_a_student_is_as_its_teacher_but_for_the_layers_and_what_is_given(teacher):
    own = dict(vocab_size=500, dropout=0.2, d_model=64, epochs=7, lowercase=True)
    run = teacher(num_layers=3, both_directions=2, start_from="x", **own)
    files = read_run(run)[0].train
    expected = dict(train=files, backend="tensorflow", teacher=str(run), **own)
    assert student_settings(run) == Settings.from_preset("fast-tiny", **expected)
    given = dict(preset="tiny", num_decoder_layers=2, epochs=9)
    found = student_settings(run, **given)
    assert found == Settings.from_preset(**{**expected, **given})
    # A vocabulary is the teacher's, whatever the preset says.
    run = teacher("dates", train=(), seed=3)
    found = student_settings(run, preset="tiny")
    assert (found.vocab_size, found.num_layers, found.seed) == (600, 4, 3)
    assert student_settings(teacher("fast-tiny")).preset == "fast-tiny"


def test_the_student_of_several_corpora_is_given_one(teacher, tmp_path):
    files = [str(tmp_path / name) for name in ("a", "b")]
    run = teacher(train=files * 2, mixing_weights=(1, 4))
    with pytest.raises(ValueError, match="`train` must be given, the files of one corpus, because"):
        student_settings(run)
    found = student_settings(run, train=files)
    assert (found.train, found.mixing_weights) == (tuple(files), ())


def test_the_student_of_a_recurrent_model_is_a_transformer(teacher):
    run = teacher("mini", model="recurrent", cell="gru", d_model=30, dropout=0.2)
    found = student_settings(run)
    assert (found.model, found.preset, found.d_model) == ("transformer", "fast-mini", 128)
    assert (found.dropout, found.num_layers, found.num_decoder_layers) == (0.2, 4, 1)


def test_symbols_have_no_fast_preset_but_a_student_with_layers_of_its_own(teacher):
    run = teacher("symbols", train=(__file__,), format="g2p")
    with pytest.raises(ValueError, match="must be given where there is no preset 'fast-symbols'"):
        student_settings(run)
    found = student_settings(run, num_decoder_layers=1)
    assert (found.preset, found.num_layers, found.num_decoder_layers) == ("symbols", 2, 1)


def test_what_cannot_be_a_teacher_is_refused(teacher, tmp_path):
    with pytest.raises(ValueError, match="there is no such directory"):
        student_settings(tmp_path / "nowhere")
    gone = str(tmp_path / "gone")
    with pytest.raises(ValueError, match=f"{gone}: there is no such file. .* had it for `test`"):
        student_settings(teacher(test=(gone, gone)))
    run = teacher()
    with pytest.raises(ValueError, match="cannot be the teacher of this run: vocab_size was 8000"):
        student_settings(run, vocab_size=900)
    # Another seed would hold out other pairs, which the teacher was trained on.
    with pytest.raises(ValueError, match="this run: seed was 1 and is 2"):
        student_settings(run, seed=2)
    files = read_run(run)[0].train
    assert student_settings(run, seed=2, validation=files, test=files).seed == 2
    (run / "export" / "1" / "saved_model.pb").unlink()
    with pytest.raises(ValueError, match="has no export. Write it: keras-transformer export"):
        student_settings(run)
    (run / "imported.json").write_text('{"from": "marian"}', encoding="utf-8")
    with pytest.raises(ValueError, match="to be a teacher. Received: a model of another system"):
        student_settings(run)
