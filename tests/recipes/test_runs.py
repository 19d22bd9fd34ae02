import json

import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.recipes.run_directory import RunDirectory
from keras_transformer.recipes.run_files import find_export
from keras_transformer.recipes.runs import (
    load_tokenizers,
    load_translator,
    open_signatures,
    read_search,
    splits_sentences,
)
from keras_transformer.recipes.settings import Settings
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer
from tests.serving.trained import Exported, translator, words


@pytest.fixture(scope="module")
def run(tmp_path_factory, exported):
    """A run whose export has another search."""
    path = tmp_path_factory.mktemp("runs") / "letters"
    directory = RunDirectory(path)
    search = dict(beam_size=2, length_penalty=0.9)
    sizes = dict(max_length=40, xla_export=False)
    directory.open(Settings(train=("letters.low", "letters.up"), **search, **sizes))
    directory.note(split_sentences=True)
    directory.save_model(translator().model, "model.keras")
    translator().source_tokenizer.save(path / "source.tokenizer")
    directory.export(Exported(exported), "a score")
    return path


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


@pytest.mark.slow
def test_a_run_is_loaded_with_its_own_settings_whatever_its_exports_have(run):
    loaded, own = load_translator(run), translator()
    assert (loaded.search.beam_size, loaded.search.length_penalty) == (2, 0.9)
    assert (loaded.max_source_length, loaded.jit_compile) == (40, False)
    assert loaded.split_sentences is True  # as the training found
    texts = words(6, seed=3)
    assert loaded(texts) == Translator(own.model, own.source_tokenizer, search=loaded.search)(texts)
    changed = load_translator(run, beam_size=1, split_sentences=False, quantize=None)
    assert isinstance(changed.search, GreedySearch)
    assert changed.split_sentences is False
    assert load_translator(run, beam_size=3).search.length_penalty == 0.9
    with pytest.raises(ValueError, match="must be the directory of a run"):
        load_translator(run / "export")


@pytest.mark.slow
def test_each_side_has_its_own_vocabulary_where_there_are_two(run, tmp_path):
    for name in ("settings.toml", "model.keras", "source.tokenizer"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    assert load_translator(tmp_path).target_tokenizer.vocab_size == translator().model.vocab_size
    CharacterTokenizer.train(["xyz"]).save(tmp_path / "target.tokenizer")
    loaded = load_translator(tmp_path)
    sizes = loaded.source_tokenizer.vocab_size, loaded.target_tokenizer.vocab_size
    assert sizes == (translator().model.vocab_size, 4 + 3)


def test_targets_have_the_tokenizer_of_the_sources_unless_they_have_their_own(tmp_path):
    CharacterTokenizer.train(["ab"]).save(tmp_path / "source.tokenizer")
    source, target = load_tokenizers(tmp_path)
    assert source is target
    CharacterTokenizer.train(["xyz"]).save(tmp_path / "target.tokenizer")
    assert [one.vocab_size for one in load_tokenizers(tmp_path)] == [4 + 2, 4 + 3]


def test_the_search_of_a_card_is_one_of_the_package():
    own = {"class": "BeamSearch", "settings": BeamSearch(3, 1.5).get_config()}
    assert read_search({"search": own}).get_config() == BeamSearch(3, 1.5).get_config()
    with pytest.raises(ValueError, match="a class of its own, Mine"):
        read_search({"search": {"class": "Mine", "settings": {}}})


@pytest.mark.parametrize(
    ("given", "sources", "split"),
    [
        ({}, ["A dog. It runs."] + ["A dog runs."] * 19, True),
        ({}, ["A dog. It runs."] * 4 + ["A dog runs."] * 16, False),
        ({"split_sentences": False}, ["A dog runs."], False),
        ({"format": "characters"}, ["a . b"], False),
        ({}, None, False),
    ],
)
def test_a_run_trained_without_tensorflow_reads_texts_as_its_test_has_them(
    tmp_path, given, sources, split
):
    directory = RunDirectory(tmp_path)
    directory.open(Settings.from_preset(train=("a",), backend="jax", **given))
    if sources:
        directory.write_translations([(source, "") for source in sources], sources)
    assert splits_sentences(tmp_path) is split


@pytest.mark.slow
def test_a_run_answers_with_its_own_search_and_an_export_when_it_is_named(run, tmp_path):
    texts = np.array(words(5, seed=4), object)
    assert open_signatures(run)["n_best"](text=texts)["scores"].shape == (5, 2)
    exported = open_signatures(run / "export")["n_best"](text=texts)
    assert exported["scores"].shape == (5, 3)
    options = dict(beam_size=3, length_penalty=0.6)
    loaded = open_signatures(run, **options)["n_best"](text=texts)
    assert exported["translations"].tolist() == loaded["translations"].tolist()
    np.testing.assert_allclose(exported["scores"], loaded["scores"], atol=1e-4)
    with pytest.raises(ValueError, match="to change the search: an export keeps its own"):
        open_signatures(run / "export", beam_size=2)
    with pytest.raises(ValueError, match="must be the directory of a run"):
        open_signatures(tmp_path)
    with pytest.raises(ValueError, match="has no signature 'sing'"):
        open_signatures(run)["sing"]


@pytest.mark.slow
def test_the_card_of_an_export_has_the_settings_of_its_run(run):
    card = json.loads((run / "export/1/assets.extra/model_card.json").read_text(encoding="utf-8"))
    assert card["languages"]["source"] == "low"
