import json

import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling
from keras_transformer.recipes.run_directory import RunDirectory
from keras_transformer.recipes.runs import (
    changed_search,
    find_export,
    is_run,
    load_translator,
    open_signatures,
    search_of,
)
from keras_transformer.recipes.settings import Settings
from keras_transformer.text import CharacterTokenizer
from tests.serving.trained import translator, words


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose export has another search than the default."""
    path = tmp_path_factory.mktemp("runs") / "letters"
    directory = RunDirectory(path)
    directory.open(Settings(train=("letters.low", "letters.up")))
    directory.save_model(translator().model, "model.keras")
    translator().source_tokenizer.save(path / "source.tokenizer")
    directory.export(translator(), "a score")
    return path


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


def test_a_training_leaves_its_export_the_newest(tmp_path):
    class Made:
        def export(self, path, card, verbose):
            path.mkdir()
            (path / "saved_model.pb").write_text("new", encoding="utf-8")

    directory = RunDirectory(tmp_path / "run")
    directory.open(Settings.from_preset())
    for _ in range(2):
        directory.export(Made(), "")
        assert find_export(directory.path) == directory.path / "export" / "1"
    (directory.path / "export" / "2").mkdir()  # made apart, of the model of before
    (directory.path / "export" / "2" / "saved_model.pb").touch()
    directory.export(Made(), "")
    assert find_export(directory.path) == directory.path / "export" / "3"


def test_a_run_is_loaded_with_the_settings_of_its_export(run):
    loaded = load_translator(run)
    own = translator()
    for name in ("max_length", "max_source_length", "jit_compile", "split_sentences"):
        assert getattr(loaded, name) == getattr(own, name), name
    assert loaded.search.get_config() == own.search.get_config()
    texts = words(6, seed=3)
    assert loaded(texts) == own(texts)
    with pytest.raises(ValueError, match="must be the directory of a run"):
        load_translator(run / "export")


def test_each_side_has_its_own_vocabulary_where_there_are_two(run, tmp_path):
    for name in ("settings.toml", "model.keras", "source.tokenizer"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    assert load_translator(tmp_path).target_tokenizer.vocab_size == translator().model.vocab_size
    CharacterTokenizer.train(["xyz"]).save(tmp_path / "target.tokenizer")
    loaded = load_translator(tmp_path)
    sizes = loaded.source_tokenizer.vocab_size, loaded.target_tokenizer.vocab_size
    assert sizes == (translator().model.vocab_size, 4 + 3)


def test_a_search_is_changed_where_something_is_given():
    found = Sampling(temperature=0.5)
    assert changed_search(found, None, None) is found
    search = changed_search(found, 6, None)
    assert (type(search), search.beam_size, search.length_penalty) == (BeamSearch, 6, 0.6)
    own = BeamSearch(3, 1.5, min_length=2)
    search = changed_search(own, 5, None)
    assert (search.beam_size, search.num_hypotheses, search.length_penalty) == (5, 5, 1.5)
    assert search.min_length == 2
    assert changed_search(own, None, 0.25).length_penalty == 0.25
    assert isinstance(changed_search(own, 1, None), GreedySearch)
    assert changed_search(own, 1, None).min_length == 2
    for given in ((own, 1, 0.5), (found, None, 0.5)):
        with pytest.raises(ValueError, match="needs a beam"):
            changed_search(*given)


def test_the_search_of_a_card_is_one_of_the_package():
    own = {"class": "BeamSearch", "settings": BeamSearch(3, 1.5).get_config()}
    assert search_of({"search": own}).get_config() == BeamSearch(3, 1.5).get_config()
    with pytest.raises(ValueError, match="a class of its own, Mine"):
        search_of({"search": {"class": "Mine", "settings": {}}})


def test_a_run_without_an_export_is_loaded_with_its_own_settings(run, tmp_path):
    for name in ("model.keras", "source.tokenizer"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    settings = Settings(train=("a", "b"), beam_size=1, max_length=40, xla_export=False)
    (tmp_path / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    loaded = load_translator(tmp_path)
    assert isinstance(loaded.search, GreedySearch)
    assert (loaded.max_source_length, loaded.jit_compile) == (40, False)
    assert load_translator(tmp_path, beam_size=3).search.beam_size == 3


@pytest.mark.slow
def test_signatures_of_an_export_and_of_a_model_answer_alike(run, tmp_path):
    texts = np.array(words(5, seed=4), object)
    exported = open_signatures(run / "export")["n_best"](text=texts)
    loaded = open_signatures(run, beam_size=3)["n_best"](text=texts)
    assert exported["translations"].tolist() == loaded["translations"].tolist()
    np.testing.assert_allclose(exported["scores"], loaded["scores"], atol=1e-4)
    with pytest.raises(ValueError, match="to change beam_size: an export keeps its search"):
        open_signatures(run / "export", beam_size=2)
    with pytest.raises(ValueError, match="neither an export nor a run"):
        open_signatures(tmp_path)


def test_the_card_of_an_export_has_the_settings_of_its_run(run):
    card = json.loads((run / "export/1/assets.extra/model_card.json").read_text(encoding="utf-8"))
    assert card["languages"]["source"] == "low"
