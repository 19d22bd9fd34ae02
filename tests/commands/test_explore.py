import pytest

from keras_transformer import BeamSearch
from keras_transformer.recipes import attention_explorer, runs
from keras_transformer.recipes.attention_explorer import explore, make_page
from keras_transformer.recipes.runs import load_translator
from keras_transformer.recipes.settings import Settings
from keras_transformer.serving import Translator
from tests.serving.trained import translator


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_it_writes_the_page_and_says_the_translation(run_directory, figures, command, tmp_path):
    output = tmp_path / "page.html"
    found = figures("explore", run_directory, "abc", "--output", output, "--beam-size", 2)
    assert (found["output"], found["translation"]) == (str(output), "CBA")
    letters = translator()
    own = Translator(letters.model, letters.source_tokenizer, search=BeamSearch(2, 0.6))
    data = explore(own, "abc")
    assert output.read_text(encoding="utf-8") == make_page(data)
    status, _, err = command("explore", run_directory, "a" * 101, "--output", output)
    assert status == 1
    assert err.startswith("error: `sentence` must have from 1 to 100 tokens")


def test_a_model_of_symbols_reads_and_writes_words(figures, tmp_path, monkeypatch):
    read = []

    def explore(translator, sentence):
        read.append(sentence)
        return {"steps": [], "nodes": [], "translation": "b ▁ a"}

    monkeypatch.setattr(attention_explorer, "explore", explore)
    monkeypatch.setattr(attention_explorer, "write_page", lambda path, data: path.touch())
    monkeypatch.setattr(runs, "load_translator", lambda path, **options: translator())
    settings = Settings.from_preset(train="words.tsv", format="characters")
    (tmp_path / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    (tmp_path / "model.keras").touch()
    assert figures("explore", tmp_path, "a b")["translation"] == "b a"
    assert read == ["a ▁ b"]


def test_the_search_is_that_of_the_run_unless_options_change_it(
    run_directory, command, monkeypatch
):
    searches = []

    def load(*args, **options):
        searches.append(load_translator(*args, **options).search)
        raise ValueError("enough")

    monkeypatch.setattr("keras_transformer.recipes.runs.load_translator", load)
    for options in ((), ("--beam-size", 2, "--length-penalty", 1), ("--beam-size", 1)):
        command("explore", run_directory, "abc", *options)
    assert [search.get_config().get("beam_size") for search in searches] == [3, 2, None]
    assert [search.length_penalty for search in searches] == [0.6, 1.0, None]


def test_an_export_is_refused(run_directory, command):
    status, _, err = command("explore", run_directory / "export", "abc")
    assert status == 1
    assert "must be the directory of a run" in err
