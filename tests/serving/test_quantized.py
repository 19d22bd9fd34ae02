"""A translator in 8-bit integers: what it translates, its size, and its model's own weights."""

import numpy as np
import pytest
from trained import translator, words

from keras_transformer import Transformer
from keras_transformer.serving import Translator, load
from keras_transformer.text import CharacterTokenizer


def size_of(path):
    return sum(file.stat().st_size for file in (path / "variables").iterdir())


def test_it_translates_what_the_model_does_and_leaves_the_model_alone(tmp_path):
    graph = translator().graph
    weights = [weight.copy() for weight in graph.model.get_weights()]
    quantized = Translator(
        graph.model, graph.source_tokenizer, search=graph.search, max_length=12, quantize="int8"
    )
    texts = words(60, seed=5)
    expected = translator()(texts)
    found = quantized(texts)
    assert np.mean([one == other for one, other in zip(found, expected, strict=True)]) > 0.9
    for before, after in zip(weights, graph.model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    quantized.export(tmp_path / "1")
    answer = load(tmp_path / "1").signatures["serving_default"](text=texts)
    assert [text.decode() for text in answer["translation"].numpy()] == found


def test_it_takes_a_third_of_the_room_or_less(tmp_path):
    tokenizer = CharacterTokenizer.train(["abc"])
    model = Transformer(500, num_layers=2, d_model=128, num_heads=2, d_ff=512)
    for quantize in (None, "int8"):
        Translator(model, tokenizer, max_length=4, quantize=quantize).export(
            tmp_path / str(quantize)
        )
    assert size_of(tmp_path / "int8") <= size_of(tmp_path / "None") / 3


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match="`quantize` must be one of None, 'int8'"):
        Translator(translator().graph.model, translator().graph.source_tokenizer, quantize="int4")
