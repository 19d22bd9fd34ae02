"""IdFunctions: few shapes, results in the order of the inputs, and halves as good as the whole."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer import (
    BeamSearch,
    GreedySearch,
    PositionalEncoding,
    Sampling,
    Transformer,
)
from keras_transformer.serving import Translator
from keras_transformer.serving.id_functions import (
    CompiledFunction,
    IdFunctions,
    Shapes,
    largest_batches,
    powers_of_two,
    size_index,
)
from keras_transformer.text import CharacterTokenizer
from tests.serving.trained import compiled_translator, translator, words

SHAPES = Shapes(lengths=[2, 3, 8], row_limits=[8, 4, 2], pad_id=0)
ALLOWED = {
    (rows, length)
    for length, most in zip(SHAPES.lengths, SHAPES.row_limits, strict=True)
    for rows in powers_of_two(1, most)
}


def sums(lengths, width, shapes):
    """The sums of rows of ones, computed in chunks; `shapes` gathers the chunks' shapes."""
    ids = (np.arange(width) < np.array(lengths)[:, None]).astype("int32")
    numbered = ids * np.arange(1, len(lengths) + 1, dtype="int32")[:, None]

    def function(first, second):
        shapes.append(tuple(first.shape))
        assert first.shape == second.shape
        return [tf.reduce_sum(first + second, axis=1)]

    (result,) = SHAPES.map_chunks(
        function,
        [tf.constant(ids, tf.int32, [len(lengths), width]), tf.constant(numbered)],
        [tf.TensorSpec([None], tf.int32)],
    )
    return result.numpy().tolist()


@settings(max_examples=30)
@given(st.lists(st.integers(1, 8), max_size=13), st.integers(0, 5))
def test_every_row_comes_back_in_its_place_and_shapes_stay_within_the_sizes(lengths, extra):
    shapes = []
    width = max(lengths, default=1) + extra
    expected = [length * (row + 2) for row, length in enumerate(lengths)]
    assert sums(lengths, width, shapes) == expected
    assert set(shapes) <= ALLOWED


def test_short_rows_do_not_pay_for_long_ones():
    shapes = []
    sums([8, 1, 8, 1, 1, 8, 1, 8, 2, 1, 1, 1], 8, shapes)
    assert shapes == [(2, 8), (2, 8), (8, 2)]


def test_no_rows_call_nothing():
    shapes = []
    assert sums([], 3, shapes) == []
    assert shapes == []


@pytest.mark.parametrize(("needed", "size"), [(0, 2), (2, 2), (3, 3), (4, 8), (8, 8)])
def test_the_next_size_is_the_smallest_that_fits(needed, size):
    assert SHAPES.lengths[int(size_index(SHAPES.lengths, tf.constant(needed)))] == size


def test_the_longer_the_rows_the_fewer_at_once():
    assert largest_batches([16, 32, 64, 100, 4096], 2048) == [128, 64, 32, 16, 1]
    assert largest_batches([16, 32], 1) == [1, 1]


def test_sizes_double_up_to_the_largest():
    assert powers_of_two(16, 100) == [16, 32, 64, 100]
    assert powers_of_two(1, 1) == [1]


def source_ids(rows):
    """Ids of words, each ending in `eos_id`, as wide as the smallest compiled length."""
    trained = translator()
    tokens = trained.source_tokenizer.tokenize(words(rows, seed=6))
    ids = tf.concat([tokens, tf.fill([rows, 1], trained.model.eos_id)], axis=1)
    return ids.to_tensor(trained.model.pad_id, shape=[rows, 16])


def assert_halves_are_as_the_whole(whole, *inputs):
    specs = [tf.TensorSpec([None] * part.shape.rank, part.dtype) for part in inputs]
    shapes = translator().id_functions.shapes
    halved = CompiledFunction(
        whole.function.python_function, specs, shapes, jit_compile=False, least_rows_to_halve=2
    )
    assert halved.rows_at_a_time(8) == 4
    for part, expected in zip(halved(*inputs), whole.function(*inputs), strict=True):
        assert part.shape == expected.shape
        np.testing.assert_allclose(part, expected, atol=1e-5)


@pytest.mark.slow
def test_the_halves_give_what_the_whole_gives():
    functions, ids = translator().id_functions, source_ids(8)
    assert_halves_are_as_the_whole(functions.search_ids, ids)
    assert_halves_are_as_the_whole(functions.align_ids, ids, tf.zeros([8], tf.int32))


@pytest.mark.usefixtures("eagerly")
def test_the_halves_keep_the_options_of_each_row():
    ids = source_ids(8)
    prefixes = tf.gather(ids, [[0], [1]] * 4, batch_dims=1)
    options = prefixes, 2 + tf.range(8) % 4, tf.linspace(0.0, 2.0, 8)
    assert_halves_are_as_the_whole(translator().id_functions.search_with_options, ids, *options)


def test_what_is_computed_in_one_pass_is_not_halved():
    encode_ids = compiled_translator().id_functions.encode_ids
    assert encode_ids.rows_at_a_time(4) == 4
    encode_ids(source_ids(4))
    met = encode_ids.shapes_met.numpy()
    assert met[2, 0], "four rows"
    assert met.sum() == 1


def least_rows_to_halve(model, search=None, jit_compile=True, quantize=None):
    functions = IdFunctions(
        model,
        search or GreedySearch(),
        max_length=None,
        max_source_length=16,
        max_batch_tokens=16,
        jit_compile=jit_compile,
        quantize=quantize,
    )
    return functions.search_ids.least_rows_to_halve


def test_a_tiny_model_is_searched_in_halves_of_few_rows():
    least = least_rows_to_halve
    tiny = Transformer(8000, num_layers=4, d_model=128, num_heads=4, d_ff=256)
    assert least(tiny) == 3
    assert least(tiny, quantize="int8") == 4, "each half has two rows"
    assert least(tiny, jit_compile=False) is None
    assert least(tiny, Sampling()) is None, "halves would draw alike"


@pytest.mark.slow
def test_the_larger_the_weights_the_more_rows_it_takes():
    base = Transformer(8000, num_layers=6, d_model=512, num_heads=8, d_ff=2048)
    assert least_rows_to_halve(base) == 46
    assert least_rows_to_halve(base, BeamSearch(4)) == 12


@pytest.mark.parametrize(
    ("max_length", "ratio", "longest", "limits"),
    [
        (None, None, 20, [20, 20]),
        (7, None, 7, [7, 7]),
        (None, 0.5, 20, [1, 3]),
        (2, 0.5, 2, [1, 2]),
    ],
)
def test_the_lengths_of_outputs_are_those_that_the_model_and_the_search_allow(
    max_length, ratio, longest, limits
):
    model = Transformer(11, num_layers=1, d_model=8, num_heads=2, position=PositionalEncoding(20))
    functions = IdFunctions(
        model,
        GreedySearch(max_length_ratio=ratio),
        max_length=max_length,
        max_source_length=16,
        max_batch_tokens=64,
        jit_compile=False,
        quantize=None,
    )
    assert functions.longest_output == longest
    given = functions.limit_lengths(tf.constant([1, 6]))
    assert np.broadcast_to(given, 2).tolist() == limits


@pytest.mark.parametrize("seed", [None, pytest.param(4, marks=pytest.mark.slow)])
def test_a_traced_search_draws_anew_unless_it_has_a_seed(seed):
    keras.utils.set_random_seed(1)
    model = Transformer(11, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    sizes = {"max_length": 12, "max_source_length": 16, "max_batch_tokens": 64}
    functions = IdFunctions(
        model, Sampling(temperature=3.0, seed=seed), **sizes, jit_compile=False, quantize=None
    )
    ids = np.array([[5, 6, 3, *[0] * 13]] * 4, "int32")
    first, second = (functions.search_ids(ids)[0].numpy() for _ in range(2))
    assert (first.tolist() == second.tolist()) == (seed is not None)


@pytest.mark.slow
def test_samples_of_one_text_differ_wherever_it_stands_in_the_batch():
    tokenizer = CharacterTokenizer.train(["abcdefg"])
    keras.utils.set_random_seed(1)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    own = Translator(model, tokenizer, search=Sampling(temperature=3.0, seed=4), max_length=12)
    assert own.id_functions.search_ids.rows_at_a_time(64) == 64
    assert len(set(own(["abc"] * 64))) > 40, "halves that draw alike have 32 at the most"
