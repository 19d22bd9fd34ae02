"""A translator in 8-bit integers: what it translates, its size, and its model's own weights."""

import functools
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.layers import (
    ALiBi,
    LearnedPositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from keras_transformer.serving import Translator, load
from keras_transformer.serving.stored_copy import quantized_copy
from keras_transformer.text import CharacterTokenizer
from tests.backends import array, normal, randomise
from tests.selection import spread
from tests.serving.trained import OPTIONS, translator, words


def size_of(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@functools.cache
def quantized():
    own = translator()
    options = {**OPTIONS, "quantize": "int8", "jit_compile": False}
    return Translator(own.model, own.source_tokenizer, **options)


@pytest.mark.slow
def test_it_translates_what_the_model_does_and_leaves_the_model_alone():
    weights = [weight.copy() for weight in translator().model.get_weights()]
    tokenizer, eos_id = translator().source_tokenizer, translator().model.eos_id
    tokens = tokenizer.tokenize(words(60, seed=5))
    ids = tf.concat([tokens, tf.fill([60, 1], eos_id)], axis=1).to_tensor()
    expected = translator().id_functions.search_ids.function(ids)[0][:, 0]
    found = quantized().id_functions.search_ids.function.python_function(ids)[0][:, 0]
    assert np.mean(np.all(found == expected, axis=1)) > 0.9
    for before, after in zip(weights, translator().model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.slow
def test_its_export_translates_what_it_does(tmp_path, export_only):
    export_only("serving_default")
    quantized().export(tmp_path / "1", verbose=False)
    texts = words(60, seed=5)
    answer = load(tmp_path / "1").signatures["serving_default"](text=texts)
    assert [text.decode() for text in answer["translation"].numpy()] == quantized()(texts)


def rounded(values):
    """Values as 8-bit integers, one scale for each row, in NumPy's float64."""
    scale = 127 / np.maximum(np.abs(values).max(axis=-1, keepdims=True), 1e-7)
    return np.round(values * scale), scale


def test_its_products_are_those_of_integers_in_one_compiled_loop():
    model = Transformer(50, num_layers=1, d_model=32, num_heads=2, d_ff=64)
    model.build()
    randomise(model)
    copy = quantized_copy(model, "int8")
    inputs = normal(1, 4, 3, 32)
    pairs = [
        (part.decoder.layers[0].feed_forward.inner, part.decoder.layers[0].cross_attention)
        for part in (model, copy)
    ]
    (dense, attention), (quantized_dense, quantized_attention) = pairs
    for layer, quantized in (
        (dense, quantized_dense),
        (attention.query_dense, quantized_attention.query_dense),
    ):
        layer.activation = quantized.activation = None
        integers, scale = rounded(inputs)
        kernel = np.array(layer.kernel).reshape(32, -1)
        columns, column_scale = rounded(kernel.T)
        bias = np.array(layer.bias).reshape(-1)
        expected = integers @ columns.T / scale / column_scale[:, 0] + bias
        found = array(tf.function(quantized, jit_compile=True, autograph=False)(inputs)).reshape(
            expected.shape
        )
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
        exact = inputs @ kernel + bias
        assert np.abs(found - exact).mean() < 0.02 * np.abs(exact).mean()
        assert np.abs(found - exact).max() > 1e-5, "nothing was rounded"


@pytest.fixture(scope="module")
def greedy():
    tokenizer = CharacterTokenizer.train(["abc"])
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=32, num_heads=2, d_ff=64)
    model.build()
    randomise(model)
    options = {"search": GreedySearch(), "max_length": 8, "quantize": "int8"}
    return Translator(model, tokenizer, **options).id_functions


IDS = np.array([[5, 6, 4, 3, *[0] * 12]], "int32")


def test_one_sentence_is_searched_in_two_rows(greedy):
    # XLA multiplies a single row of integers far more slowly than two.
    search = greedy.search_ids.function
    program = search.experimental_get_compiler_ir(IDS)(stage="hlo")
    rows = re.findall(r"s32\[(\d+),1,\d+\]\S* dot\(", program)
    assert rows
    assert "1" not in rows
    # All that is of floats are the two products of each attention, also of unknown length.
    kinds = re.findall(r" dot\((s8|f32)\[", program)
    layers = {"encoder": 6, "memory": 2, "decoder": 8, "logits": 1}
    assert (kinds.count("s8"), kinds.count("f32")) == (sum(layers.values()), 2 * 3)


@pytest.mark.slow
def test_one_sentence_in_two_rows_is_found_as_among_others(greedy):
    search = greedy.search_ids.function
    (found,) = search(IDS)[0].numpy()
    copies = search(np.repeat(IDS, 3, axis=0))[0].numpy()
    np.testing.assert_array_equal(copies, [found] * 3)
    options = [np.full((1, 2), 4, "int32"), np.array([3], "int32"), np.array([0.0], "float32")]
    forced = greedy.search_with_options.function(IDS, *options)[0].numpy()
    assert forced.shape[:2] == (1, 1)
    assert forced[0, 0, :2].tolist() == [4, 4]
    assert np.count_nonzero(forced) <= 3


KINDS = {
    "two vocabularies": {"source_vocab_size": 30, "target_vocab_size": 20},
    "learned": {"vocab_size": 20, "position": LearnedPositionalEncoding(40)},
    "rotary, grouped, gated": {
        "vocab_size": 20,
        "position": RotaryPositionalEncoding(),
        "num_key_value_heads": 1,
        "activation": "swiglu",
    },
    "ALiBi": {"vocab_size": 20, "position": ALiBi()},
    "relative": {"vocab_size": 20, "position": RelativePositionBias(8, 10)},
}
PLAIN = ("two vocabularies", "learned", "ALiBi", "relative")


SEARCHES = [GreedySearch(), BeamSearch(3, length_penalty=0.0)]
CASES = [
    # All but the one that has the most kinds of products are slow.
    pytest.param(*values, marks=pytest.mark.slow if values[0] in PLAIN else marks)
    for values, marks, _ in spread(KINDS, SEARCHES)
]


@pytest.mark.parametrize(("kind", "search"), CASES)
def test_what_a_search_in_8_bits_finds_has_the_score_that_it_says(kind, search):
    model = Transformer(num_layers=1, d_model=16, num_heads=2, d_ff=32, **KINDS[kind])
    model.build()
    copy = quantized_copy(randomise(model), "int8")
    source_ids = np.array([[5, 6, 7, 8, 3, 0], [9, 4, 3, 0, 0, 0]])
    found = copy.generate(source_ids, search, max_length=6)
    for rank in range(found.ids.shape[1]):
        scored = copy.score(source_ids, array(found.ids)[:, rank])
        np.testing.assert_allclose(array(found.scores)[:, rank], array(scored.log_prob), atol=1e-4)
    other = model.score(source_ids, array(found.ids)[:, 0])
    assert (array(other.log_prob) != array(found.scores)[:, 0]).all()


@pytest.mark.slow
def test_it_takes_a_third_of_the_room_or_less(tmp_path, export_only):
    tokenizer = CharacterTokenizer.train(["abc"])
    model = Transformer(8000, num_layers=1, d_model=512, num_heads=8, d_ff=2048)
    export_only("serving_default")
    options = dict(search=GreedySearch(), max_length=4, jit_compile=False)
    for quantize in (None, "int8"):
        own = Translator(model, tokenizer, **options, quantize=quantize)
        own.export(tmp_path / str(quantize), verbose=False)
    assert size_of(tmp_path / "int8") <= size_of(tmp_path / "None") / 3
    # Beside the variables there is the graph, which is larger in 8 bits.
    variables = [size_of(tmp_path / str(quantize) / "variables") for quantize in (None, "int8")]
    assert variables[1] <= 0.26 * variables[0]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_model_of_mixed_precision_is_quantized_too(policy):
    sizes = {"num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 64}
    model, whole = Transformer(20, **sizes, dtype=policy), Transformer(20, **sizes)
    for part in (model, whole):
        part.build()
    randomise(model)
    whole.set_weights(model.get_weights())
    source_ids = np.array([[5, 6, 4, 3], [6, 5, 3, 0]])
    found, expected = (
        quantized_copy(part, "int8").generate(source_ids, GreedySearch(), max_length=4)
        for part in (model, whole)
    )
    np.testing.assert_array_equal(array(found.ids), array(expected.ids))


@pytest.mark.slow
def test_a_user_may_quantize_a_model_of_mixed_precision_and_search():
    model = Transformer(20, num_layers=1, d_model=32, num_heads=2, d_ff=64, dtype="mixed_bfloat16")
    model.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.quantize("int8")
    found = model.generate(np.array([[5, 6, 3]]), GreedySearch(), max_length=3)
    assert np.isfinite(array(found.scores)).all()


def test_a_model_that_is_quantized_already_is_refused():
    tokenizer = CharacterTokenizer.train(["abc"])
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=32, num_heads=2, d_ff=64)
    model.build()
    model.encoder.layers[0].feed_forward.outer.quantize("int8")
    with pytest.raises(ValueError, match="`quantize` must be None for a model that is quantized"):
        Translator(model, tokenizer, quantize="int8")


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match="`quantize` must be one of None, 'int8'"):
        Translator(translator().model, translator().source_tokenizer, quantize="int4")
