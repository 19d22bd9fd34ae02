"""The recurrent model in a Translator and in a SavedModel, as the Transformer is."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import MaskedCrossentropy, RecurrentSeq2Seq
from keras_transformer.serving import Translator, load
from keras_transformer.text import CharacterTokenizer, translation_dataset
from tests.serving.trained import OPTIONS, answer, words

pytestmark = pytest.mark.slow
SOURCES = words(1500, seed=1)
TEXTS = [*SOURCES[:40], ""]  # by heart: what is tested here is the way, not the model


@functools.cache
def translator(jit_compile=False):
    model, tokenizer = trained()
    return Translator(model, tokenizer, **OPTIONS, jit_compile=jit_compile)


@functools.cache
def trained():
    """A model and its tokenizer."""
    keras.utils.set_random_seed(5)
    targets = [answer(word) for word in SOURCES]
    tokenizer = CharacterTokenizer.train([*SOURCES, *targets])
    model = RecurrentSeq2Seq(tokenizer.vocab_size, d_model=64, dropout=0.0)
    model.compile(keras.optimizers.Adam(5e-3), MaskedCrossentropy(), jit_compile=False)
    data = translation_dataset(
        SOURCES, targets, tokenizer, tokens_per_batch=512, max_shapes=1, shuffle=True, seed=1,
        verbose=False,
    )  # fmt: skip
    model.fit(data, epochs=20, shuffle=False, verbose=0)
    return model, tokenizer


def test_it_translates_and_aligns():
    own = translator()
    translations = own(TEXTS)
    right = [ours == answer(text) for ours, text in zip(translations, TEXTS, strict=True)]
    assert np.mean(right) > 0.8
    assert [own([text])[0] for text in TEXTS[:5]] == translations[:5]
    ((_, pairs),) = own.align(["abcdef"])
    letters = [("abcdef"[source], answer("abcdef")[target]) for target, source in pairs]
    assert np.mean([small.upper() == capital for small, capital in letters]) > 0.6


def test_xla_compiles_it():
    assert translator(jit_compile=True)(TEXTS[:2]) == translator()(TEXTS[:2])


def test_it_is_served(tmp_path, export_only):
    export_only("serving_default", "encode")
    translator().export(tmp_path / "1", verbose=False)
    signatures = load(tmp_path / "1").signatures
    served = signatures["serving_default"](text=tf.constant(TEXTS))["translation"].numpy()
    assert [text.decode() for text in served] == translator()(TEXTS)
    vectors = signatures["encode"](text=tf.constant(TEXTS))["vector"]
    assert vectors.shape == (41, 64)
