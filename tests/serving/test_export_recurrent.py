"""The recurrent model in a Translator and in a SavedModel, as the Transformer is."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import BeamSearch, MaskedCrossentropy, RecurrentSeq2Seq
from keras_transformer.serving import Translator, load
from keras_transformer.text import CharacterTokenizer, translation_dataset
from tests.serving.trained import answer, words


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [True, False])
def test_it_is_trained_translates_and_serves(tmp_path, jit_compile):
    keras.utils.set_random_seed(5)
    sources = words(1500, seed=1)
    targets = [answer(word) for word in sources]
    tokenizer = CharacterTokenizer.train([*sources, *targets])
    model = RecurrentSeq2Seq(tokenizer.vocab_size, d_model=64, dropout=0.0)
    model.compile(keras.optimizers.Adam(5e-3), MaskedCrossentropy())
    data = translation_dataset(
        sources, targets, tokenizer, tokens_per_batch=512, shuffle=True, seed=1, verbose=False
    )
    model.fit(data, epochs=20, shuffle=False, verbose=0)
    own = Translator(
        model,
        tokenizer,
        search=BeamSearch(3),
        max_length=12,
        max_source_length=32,
        max_batch_tokens=64,
        jit_compile=jit_compile,
    )
    texts = [*sources[:40], ""]  # by heart: what is tested here is the way, not the model
    translations = own(texts)
    right = [ours == answer(text) for ours, text in zip(translations, texts, strict=True)]
    assert np.mean(right) > 0.8
    assert [own([text])[0] for text in texts[:5]] == translations[:5]
    own.export(tmp_path / "1", verbose=False)
    signatures = load(tmp_path / "1").signatures
    served = signatures["serving_default"](text=tf.constant(texts))["translation"].numpy()
    assert [text.decode() for text in served] == translations
    vectors = signatures["encode"](text=tf.constant(texts))["vector"]
    assert vectors.shape == (41, 64)
    ((_, pairs),) = own.align(["abcdef"])
    letters = [("abcdef"[source], answer("abcdef")[target]) for target, source in pairs]
    assert np.mean([small.upper() == capital for small, capital in letters]) > 0.6
