"""Searches of models in onnxruntime find what they find in TensorFlow."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import BeamSearch, GreedySearch, RecurrentSeq2Seq, Transformer, layers
from tests.serving.onnx_runs import convert, loop_body, run_model, search_of, sources

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

VOCAB_SIZE = 47
OPTIONS = {
    "as it is": {},
    "no n-gram twice": {"no_repeat_ngram_size": 2},
    "repetition penalty": {"repetition_penalty": 1.5},
    "smallest length": {"min_length": 3},
    "lengths by the source's": {"min_length_ratio": 0.5, "max_length_ratio": 1.5},
    "forbidden tokens": {"suppressed_ids": [5, 17]},
    "allowed tokens": {"allowed_ids": list(range(30))},
    "shared probability": {"renormalize": True, "suppressed_ids": [5]},
}
OPTIONS_OF_BEAMS = {
    "groups": {"num_groups": 2, "diversity_penalty": 0.5},
    "coverage": {"coverage_penalty": 0.2},
    "early stopping": {"early_stopping": True},
    "stop by the current length": {"early_stopping": "current_length"},
    "power of the length": {"length_formula": "power"},
    "sums": {"length_penalty": 0},
    "two hypotheses": {"num_hypotheses": 2},
}
MODELS = {
    "gated, normalised first": {"activation": "swiglu", "norm_first": True},
    "gelu, root mean square": {"activation": "gelu", "rms_norm": True},
    "rotary": {"position": layers.RotaryPositionalEncoding},
    "linear biases": {"position": layers.ALiBi},
    "shared heads, window": {"num_key_value_heads": 2, "window": 4},
    "learned positions": {"position": lambda: layers.LearnedPositionalEncoding(100)},
    "untied output": {"logits_bias": True, "tie_output": False, "embedding_norm": True},
}
RECURRENT = {
    "lstm": {},
    "gru without attention": {"cell": "gru", "attention": None, "num_layers": 2},
    "gru, general": {"cell": "gru", "attention": "general"},
}


@pytest.fixture(scope="module")
def tiny():
    """A random model; what it finds is long, because nothing has taught it to end."""
    return tiny_model()


def tiny_model(**options):
    keras.utils.set_random_seed(3)
    options = {"num_layers": 2, **options}
    if isinstance(options.get("position"), type) or callable(options.get("position")):
        options["position"] = options["position"]()
    model = Transformer(VOCAB_SIZE, d_model=32, num_heads=4, d_ff=64, **options)
    model.build(None)
    return model


def check(model, search, max_length, rows=7, length=5, vocab_size=VOCAB_SIZE):
    """Compares all outputs for one model file on two batches of other shapes; returns the file.

    Two tokens of a random model may be equally likely but for the rounding of a processor. So one
    sentence of all may have another output.
    """
    batch = sources(rows, length, vocab_size)
    function, file = convert(search_of(model, search, max_length), [batch])
    alike = []
    for ids in (batch, sources(1, 3, vocab_size, seed=1)):
        expected = [tensor.numpy() for tensor in function(tf.constant(ids))]
        found = run_model(file, input_0=ids)
        assert [part.shape for part in found] == [part.shape for part in expected]
        same = [np.array_equal(*pair) for pair in zip(found[0], expected[0], strict=True)]
        alike += same
        np.testing.assert_allclose(found[1][same], expected[1][same], rtol=1e-6, atol=5e-5)
        np.testing.assert_array_equal(found[2][same], expected[2][same])
    assert alike.count(False) <= 1
    return file


# The room for 40 tokens is read in two parts, and without a limit its length is not known.
@pytest.mark.slow
def test_a_beam_finds_the_same_with_long_room(tiny):
    file = check(tiny, BeamSearch(3, num_hypotheses=2), 40)
    kinds = [node.op_type for node in loop_body(file).node]
    assert kinds.count("If") == 2  # one for each layer
    # What a step computes alike each time stands before the loop.
    assert len(kinds) < 360


def test_a_greedy_search_finds_the_same_without_a_limit(tiny):
    file = check(tiny, GreedySearch(), None)
    assert len(loop_body(file).node) < 240


def test_a_table_that_is_tied_is_in_the_file_once(tiny):
    _, file = convert(search_of(tiny, GreedySearch(), 4), [sources(2, 4, VOCAB_SIZE)])
    tables = [part for part in file.graph.initializer if sorted(part.dims) == [32, VOCAB_SIZE]]
    assert len(tables) == 1


@pytest.mark.parametrize(
    ("grow", "shapes"),
    [
        (lambda value: tf.concat([value, value[:1]], 0), r"\(2,\) and then \(3,\)"),
        (lambda value: value[None], r"\(2,\) and then \(1, 2\)"),
    ],
)
def test_a_loop_whose_variable_changes_its_shape_is_refused(grow, shapes):
    def function(value):
        def step(index, value):
            return index + 1, grow(tf.ensure_shape(value, [None]))

        shapes = tf.TensorShape([]), tf.TensorShape(None)
        found = tf.while_loop(lambda index, _: index < 1, step, (0, value), shapes)
        return tf.reshape(found[1], [-1])

    message = rf"must keep its shape from round to round. Received: shapes {shapes} in "
    with pytest.raises(ValueError, match=message):
        convert(function, [np.zeros(2, "float32")], open_axes=False)


@pytest.mark.slow
@pytest.mark.parametrize("max_length", [1, 33, 200])
def test_a_beam_finds_the_same_with_any_room(tiny, max_length):
    check(tiny, BeamSearch(4), max_length)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("search", [GreedySearch, BeamSearch])
def test_options_of_a_search_hold(tiny, search, name):
    check(tiny, search(**OPTIONS[name]), 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS_OF_BEAMS)
def test_options_of_a_beam_hold(tiny, name):
    check(tiny, BeamSearch(4, **OPTIONS_OF_BEAMS[name]), None)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_other_models_find_the_same(name):
    check(tiny_model(**MODELS[name]), BeamSearch(3), 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_models_find_the_same(name):
    keras.utils.set_random_seed(4)
    model = RecurrentSeq2Seq(VOCAB_SIZE, d_model=24, **RECURRENT[name])
    model.build(None)
    check(model, BeamSearch(3), 12)
    check(model, GreedySearch(), None)


@pytest.mark.slow
def test_a_large_vocabulary_is_searched_by_chunks_alike():
    keras.utils.set_random_seed(4)
    sizes = {"source_vocab_size": 1000, "target_vocab_size": 900}
    model = Transformer(**sizes, num_layers=1, d_model=32, num_heads=4, d_ff=64)
    model.build(None)
    check(model, BeamSearch(4), 12, vocab_size=1000)
