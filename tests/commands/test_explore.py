import pytest

from keras_transformer.recipes import attention_explorer, runs
from keras_transformer.recipes.attention_explorer import explore, make_page
from keras_transformer.recipes.settings import Settings
from keras_transformer.recipes.watched_search import WatchedBeamSearch
from tests.serving.trained import translator


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_it_writes_the_page_and_says_the_translation(run_directory, figures, command, tmp_path):
    output = tmp_path / "page.html"
    found = figures("explore", run_directory, "abc", "--output", output, "--beam-size", 2)
    assert (found["output"], found["translation"]) == (str(output), "CBA")
    own = translator()
    tokenizer = own.source_tokenizer
    data = explore(own.model, tokenizer, tokenizer, "abc", WatchedBeamSearch(2, 0.6))
    assert output.read_text(encoding="utf-8") == make_page(data)
    status, _, err = command("explore", run_directory, "a" * 101, "--output", output)
    assert status == 1
    assert err.startswith("error: `sentence` must have from 1 to 100 tokens")


def test_a_model_of_symbols_reads_and_writes_words(figures, tmp_path, monkeypatch):
    read = []

    def explore(model, source_tokenizer, target_tokenizer, sentence, search):
        read.append(sentence)
        return {"steps": [], "nodes": [], "translation": "b ▁ a"}

    monkeypatch.setattr(attention_explorer, "explore", explore)
    monkeypatch.setattr(attention_explorer, "write_page", lambda path, data: path.touch())
    monkeypatch.setattr(runs, "load_translator", lambda path: translator())
    settings = Settings.from_preset(train="words.tsv", format="characters")
    (tmp_path / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
    (tmp_path / "model.keras").touch()
    assert figures("explore", tmp_path, "a b")["translation"] == "b a"
    assert read == ["a ▁ b"]


def test_an_export_is_refused(run_directory, command):
    status, _, err = command("explore", run_directory / "export", "abc")
    assert status == 1
    assert "must be the directory of a run" in err
