"""An unpacked package of Argos Translate is opened by pointing at it."""

import json
import shutil

import pytest

pytest.importorskip("ctranslate2")

from keras_transformer import GreedySearch, Transformer
from keras_transformer.interop import load_ctranslate2, save_ctranslate2
from keras_transformer.recipes.imported import find_system
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer
from tests.interop.ctranslate2_models import randomised

TEXTS = ["a man rides a horse on the beach", "two dogs play with a red ball"]
# What packages have: https://github.com/argosopentech/argos-translate.
METADATA = {"package_version": "1.9", "from_code": "en", "to_code": "de", "target_prefix": ""}


@pytest.fixture
def package(tmp_path):
    """A package as it is unpacked, and the translator that is in it."""
    tokenizer = SentencePieceTokenizer.train(TEXTS * 6, vocab_size=50)
    tokenizer = SentencePieceTokenizer(tokenizer.model, tags=["<de>", ">>fra<<"])
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=16, num_heads=2, d_ff=24)
    translator = Translator(randomised(model, 1), tokenizer, search=GreedySearch())
    folder = tmp_path / "translate-en_de-1_9"
    folder.mkdir()
    save_ctranslate2(translator, folder / "model")
    (folder / "model" / "source.spm").rename(folder / "sentencepiece.model")
    (folder / "model" / "target.spm").unlink()
    (folder / "metadata.json").write_text(json.dumps(METADATA), encoding="utf-8")
    return folder, translator


def write_prefix(folder, prefix):
    settings = json.dumps({**METADATA, "target_prefix": prefix})
    (folder / "metadata.json").write_text(settings, encoding="utf-8")


def test_a_package_translates_as_its_model_with_the_search_of_argos(package):
    folder, translator = package
    assert find_system(folder) == "ctranslate2"
    found = load_ctranslate2(folder)
    assert found.score(TEXTS, TEXTS[::-1]) == translator.score(TEXTS, TEXTS[::-1])
    search = found.search
    assert (search.beam_size, search.length_penalty, search.length_formula) == (4, 0.2, "power")
    assert (search.early_stopping, found.split_sentences, found.target_tag) == (True, True, None)
    options = {"search": GreedySearch(), "split_sentences": False}
    given = load_ctranslate2(folder, **options)
    assert given.search is options["search"]
    assert not given.split_sentences


@pytest.mark.parametrize("prefix", ["<de>", ">>fra<<"])
def test_the_prefix_of_a_package_begins_every_output(prefix, package):
    folder, _ = package
    write_prefix(folder, prefix)
    found = load_ctranslate2(folder)
    assert found.target_tag == prefix
    assert load_ctranslate2(folder, target_tag=None).target_tag is None


def test_a_package_that_is_wrong_is_refused_in_one_line(package):
    folder, _ = package
    write_prefix(folder, 5)
    with pytest.raises(ValueError, match="`target_prefix` must be a string. Received: 5"):
        load_ctranslate2(folder)
    write_prefix(folder, None)
    (folder / "sentencepiece.model").unlink()
    with pytest.raises(ValueError, match="`source_tokenizer` must name a sentencepiece model"):
        load_ctranslate2(folder)
    shutil.rmtree(folder / "model")
    with pytest.raises(ValueError, match=r"must hold model\.bin. Received: metadata\.json"):
        load_ctranslate2(folder)
