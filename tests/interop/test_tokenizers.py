"""Sentencepiece files are those named, those beside the model, or refused."""

import re
import shutil

import numpy as np
import pytest

from keras_transformer import GreedySearch, Transformer
from keras_transformer.interop import load_ctranslate2
from keras_transformer.interop.tokenizers import sentencepiece_files
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer

TEXTS = ["a man rides a horse on the beach", "two dogs play with a red ball"]


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Directories of CTranslate2 without sentencepiece files, which lie above, and translators."""
    pytest.importorskip("ctranslate2")
    from keras_transformer.interop import save_ctranslate2
    from tests.interop.ctranslate2_models import randomised

    made = {}
    one, other = (
        SentencePieceTokenizer.train(texts * 6, vocab_size=size)
        for texts, size in ((TEXTS, 50), ([text[::-1] for text in TEXTS], 47))
    )
    for name, target in (("joint", one), ("separate", other)):
        ids = {"source_vocab_size": one.vocab_size, "target_vocab_size": target.vocab_size}
        ids = {"vocab_size": one.vocab_size} if target is one else ids
        model = Transformer(**ids, num_layers=1, d_model=16, num_heads=2, d_ff=24)
        translator = Translator(
            randomised(model, 1), one, target, GreedySearch(), jit_compile=False
        )
        package = tmp_path_factory.mktemp(name)
        save_ctranslate2(translator, package / "model")
        (package / "model" / "source.spm").rename(package / "sentencepiece.model")
        (package / "model" / "target.spm").rename(package / "target.model")
        made[name] = package, translator
    return made


def load(directory, **options):
    options = {"search": GreedySearch(), "max_length": 9, "jit_compile": False, **options}
    return load_ctranslate2(directory, **options)


def check_scores(found, translator):
    """Checks that texts of both sides become the same tokens: they have the same scores."""
    expected = translator.score(TEXTS, TEXTS[::-1])
    np.testing.assert_allclose(found.score(TEXTS, TEXTS[::-1]), expected, rtol=1e-5)
    assert len({tuple(row) for row in expected}) > 1


def test_the_file_of_an_argos_package_lies_above_its_model(directories):
    package, translator = directories["joint"]
    above = package / "sentencepiece.model"
    both = {"source_tokenizer": str(above), "target_tokenizer": str(above)}
    for files in ({"source_tokenizer": above}, both):
        check_scores(load(package / "model", **files), translator)


def test_separate_vocabularies_need_a_file_of_each_side(directories):
    package, translator = directories["separate"]
    files = {
        "source_tokenizer": package / "sentencepiece.model",
        "target_tokenizer": package / "target.model",
    }
    check_scores(load(package / "model", **files), translator)
    path = files.pop("source_tokenizer")
    with pytest.raises(ValueError, match=r"`source_tokenizer` must name a sentencepiece model"):
        load(package / "model", **files)
    with pytest.raises(ValueError, match=r"`target_tokenizer` must name .* too") as caught:
        load(package / "model", source_tokenizer=path)
    assert "Received: target_tokenizer=None, source_tokenizer=" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sentencepiece_model_beside_the_model_serves_both_sides(directories, tmp_path):
    package, translator = directories["joint"]
    directory = shutil.copytree(package / "model", tmp_path / "model")
    shutil.copy(package / "sentencepiece.model", directory)
    check_scores(load(directory), translator)


@pytest.mark.parametrize("are_separate", [False, True])
def test_a_named_file_wins_over_those_beside(are_separate, tmp_path):
    for name in ("sentencepiece.model", "source.spm", "target.spm", "other.model"):
        (tmp_path / name).touch()
    beside = [tmp_path / "source.spm", tmp_path / "target.spm"]
    nothing = {"source": None, "target": None}
    assert sentencepiece_files(tmp_path, nothing, are_separate) == beside
    named = {"source": tmp_path / "other.model", "target": None}
    found = sentencepiece_files(tmp_path, named, are_separate)
    assert found == [tmp_path / "other.model", tmp_path / "target.spm"]
    named = {"source": tmp_path / "nowhere.model", "target": None}
    rule = re.escape("`path` must be a file. Received: ")
    with pytest.raises(ValueError, match=rf"{rule}.*nowhere\.model"):
        sentencepiece_files(tmp_path, named, are_separate)
