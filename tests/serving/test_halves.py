"""The halves of a large batch are searched side by side, and give what the whole gives."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from trained import translator, words

from keras_transformer import BeamSearch, GreedySearch, Sampling, Transformer
from keras_transformer.serving import Translator
from keras_transformer.serving.compiled_model import least_rows_to_halve
from keras_transformer.text import CharacterTokenizer


def source_ids(rows):
    """Ids of words, each ending in `eos_id`, as wide as the smallest compiled length."""
    graph = translator().graph
    tokens = graph.source_tokenizer.tokenize(words(rows, seed=6))
    ids = tf.concat([tokens, tf.fill([rows, 1], graph.model.eos_id)], axis=1)
    return ids.to_tensor(graph.model.pad_id, shape=[rows, graph.compiled.length_sizes[0]])


@pytest.mark.parametrize("name", ["search_ids", "search_with", "align_ids"])
def test_the_halves_give_what_the_whole_gives(name):
    compiled, ids = translator().compiled, source_ids(8)
    inputs = [ids]
    if name == "search_with":  # options of each row
        prefixes = tf.gather(ids, [[0], [1]] * 4, batch_dims=1)
        limits = tf.range(2, 10)
        inputs += [prefixes, limits, tf.linspace(0.0, 2.0, 8)]
    assert compiled.rows_at_a_time(8) == 4
    for part, expected in zip(
        compiled.apply(name, *inputs), compiled.functions[name](*inputs), strict=True
    ):
        assert part.shape == expected.shape
        np.testing.assert_allclose(part, expected, atol=1e-5)


def test_what_is_computed_in_one_pass_is_not_halved():
    compiled, ids = translator().compiled, source_ids(4)
    before = compiled.shapes_met["encode_ids"].numpy().sum()
    compiled.apply("encode_ids", ids)
    met = compiled.shapes_met["encode_ids"].numpy()
    assert met[2, 0], "four rows"
    assert met.sum() <= before + 1


def test_the_larger_the_weights_the_more_rows_it_takes():
    def least(search=None, jit_compile=True, quantized=False, **sizes):
        model = Transformer(8000, **sizes)
        model.build()
        return least_rows_to_halve(model, search or GreedySearch(), jit_compile, quantized)

    tiny = {"num_layers": 4, "d_model": 128, "num_heads": 4, "d_ff": 256}
    base = {"num_layers": 6, "d_model": 512, "num_heads": 8, "d_ff": 2048}
    assert least(**tiny) == 3
    assert least(**tiny, quantized=True) == 4, "each half has two rows"
    assert least(**base) == 46
    assert least(BeamSearch(4), **base) == 12
    assert least(**tiny, jit_compile=False) is None


def test_samples_of_one_text_differ_wherever_it_stands_in_the_batch():
    tokenizer = CharacterTokenizer.train(["abcdefg"])
    keras.utils.set_random_seed(1)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    own = Translator(model, tokenizer, search=Sampling(temperature=3.0, seed=4), max_length=12)
    assert own.compiled.rows_at_a_time(64) == 64
    assert len(set(own(["abc"] * 64))) > 40, "halves that draw alike have 32 at the most"
