"""A translator whose sources end without `eos_id` gives the model their tokens alone."""

import json

import keras
import numpy as np
import pytest

from keras_transformer import GreedySearch, Transformer
from keras_transformer.serving import Translator
from keras_transformer.serving.model_card import text_conventions
from keras_transformer.serving.portable_files import collect_settings
from keras_transformer.text import CharacterTokenizer

LETTERS = CharacterTokenizer("abcdefg")
TEXTS = ["a", "gab", "feedbag", ""]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(5)
    return Transformer(LETTERS.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=12)


@pytest.fixture(scope="module")
def without(model):
    return translator_of(model, source_eos=False)


def translator_of(model, **options):
    options = {"search": GreedySearch(), "max_length": 7, "max_source_length": 32, **options}
    return Translator(model, LETTERS, jit_compile=False, **options)


def ids(text, *end):
    return np.array([[*LETTERS.tokenize([text]).to_list()[0], *end]], "int32")


@pytest.mark.slow
def test_the_model_reads_the_tokens_alone(model, without):
    for text, found in zip(TEXTS[:3], without.n_best(TEXTS[:3]), strict=True):
        expected = model.generate(ids(text), GreedySearch(), max_length=7)
        assert LETTERS.detokenize(np.array(expected.ids)[0]).numpy()[0].decode() == found[0][0]
        np.testing.assert_allclose(found[0][1], float(expected.scores[0, 0]), atol=1e-5)
    assert without.n_best([""]) == [[("", 0.0)]]


@pytest.mark.usefixtures("eagerly")
def test_scores_and_vectors_are_those_of_the_tokens_alone(model, without):
    (score, length), *_ = without.score(["gab"], ["abe"])
    expected = model.score(ids("gab"), ids("abe", LETTERS.eos_id))
    np.testing.assert_allclose(score, float(expected.log_prob[0]), atol=1e-5)
    assert length == 4
    memory = np.array(model.encode(ids("gab")))[0]
    vectors = without.encode(["gab", ""])
    np.testing.assert_allclose(vectors[0], memory.mean(axis=0), atol=1e-5)
    assert (vectors[1] == 0).all()


@pytest.mark.usefixtures("eagerly")
def test_one_more_token_is_read_at_once(model, without):
    text = "abcdefgabcdefgabcdefgabcdefgabcd"  # 32 characters
    other = translator_of(model)
    for translator, count in ((without, 1), (other, 2)):
        segments = translator.string_functions.splitter.split([text], [False])
        assert len(segments.tokens.to_list()) == count
    # A target still has its end, which takes the last place.
    assert without.score([text], [text[:31]])[0][1] == 32
    with pytest.warns(UserWarning, match="too long"):
        assert without.score(["a"], [text])[0][0] < -1e8


def test_what_is_said_of_it_is_true(model, without):
    assert text_conventions(without)["input"][-1].startswith("A text of more than 32 tokens")
    assert collect_settings(without)["source_eos"] is False
    assert collect_settings(translator_of(model))["source_eos"] is True
    with pytest.raises(ValueError, match="`source_eos` must be.*source_eos='no'"):
        translator_of(model, source_eos="no")


@pytest.mark.slow
def test_the_export_reads_the_tokens_alone(without, tmp_path, export_only):
    import tensorflow as tf

    export_only("n_best")
    without.export(tmp_path / "1", verbose=False)
    found = tf.saved_model.load(str(tmp_path / "1")).signatures["n_best"](text=tf.constant(TEXTS))
    for text, score, own in zip(
        found["translations"].numpy(), found["scores"].numpy(), without.n_best(TEXTS), strict=True
    ):
        assert text[0].decode() == own[0][0]
        np.testing.assert_allclose(score[0], own[0][1], atol=1e-6)
    card = json.loads((tmp_path / "1/assets.extra/model_card.json").read_text(encoding="utf-8"))
    assert card["source_eos"] is False
