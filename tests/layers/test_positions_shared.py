"""One position given to several layers: each has its own copy, a stack shares one."""

import itertools
import os

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    ALiBi,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from tests.backends import array, normal, randomise

HIDDEN = normal(0, 2, 5, 8)


def two_layers(position):
    inputs = keras.Input((None, 8))
    hidden = EncoderLayer(2, 16, position=position)(inputs)
    return keras.Model(inputs, EncoderLayer(2, 16, position=position)(hidden))


@pytest.mark.parametrize(
    "position",
    [
        RelativePositionBias,
        pytest.param(RotaryPositionalEncoding, marks=pytest.mark.slow),
        pytest.param(ALiBi, marks=pytest.mark.slow),
    ],
)
def test_layers_given_one_position_are_saved_and_cloned_whole(position, tmp_path):
    model = randomise(two_layers(position()))
    path = os.path.join(tmp_path, "model.keras")
    model.save(path)
    expected = array(model(HIDDEN))
    np.testing.assert_array_equal(array(keras.models.load_model(path)(HIDDEN)), expected)
    clone = keras.models.clone_model(model)
    assert len(clone.weights) == len(model.weights)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(array(clone(HIDDEN)), expected)


def test_a_stack_shares_its_position_and_a_layer_does_not():
    position = RelativePositionBias()
    stack = Encoder(3, 2, 16, position=position)
    stack(HIDDEN)
    assert sum("bucket_bias" in weight.path for weight in stack.weights) == 1
    model = two_layers(position)
    assert sum("bucket_bias" in weight.path for weight in model.weights) == 2
    assert not position.built


@pytest.mark.parametrize("position", [RelativePositionBias, RotaryPositionalEncoding, ALiBi])
def test_layers_of_other_sizes_may_be_given_the_same_position(position):
    one = position()
    small = MultiHeadAttention(1, 2, position=one)
    small(HIDDEN, HIDDEN)
    keras.utils.set_random_seed(1)
    found = array(MultiHeadAttention(4, 8, position=one)(HIDDEN, HIDDEN))
    keras.utils.set_random_seed(1)
    expected = array(MultiHeadAttention(4, 8, position=position())(HIDDEN, HIDDEN))
    np.testing.assert_array_equal(found, expected)


ADDED = {
    "sinusoidal": lambda: PositionalEncoding(),
    "learned": lambda: LearnedPositionalEncoding(max_length=9),
}
BLOCKS = {
    "encoder layer": lambda **options: EncoderLayer(2, 16, **options),
    "encoder": lambda **options: Encoder(2, 2, 16, **options),
    "decoder layer": lambda **options: DecoderLayer(2, 16, **options),
    "decoder": lambda **options: Decoder(2, 2, 16, **options),
}
DEFAULT = [("encoder layer", "sinusoidal"), ("decoder", "learned")]


@pytest.mark.parametrize(
    ("block_name", "position_name"),
    [
        pytest.param(*both, marks=() if both in DEFAULT else pytest.mark.slow)
        for both in itertools.product(BLOCKS, ADDED)
    ],
)
def test_a_position_that_is_added_is_so_once_before_the_first_layer(
    block_name, position_name, tmp_path
):
    make, position = BLOCKS[block_name], ADDED[position_name]
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, make(position=position())(inputs))
    block, plain, alone = model.layers[-1], make(), position()
    randomise(model)
    plain(HIDDEN)
    alone(HIDDEN)
    added = {id(weight) for weight in block.position.weights}
    assert len(added) == len(alone.weights)
    alone.set_weights(block.position.get_weights())
    rest = [weight for weight in block.weights if id(weight) not in added]
    plain.set_weights([array(weight.value) for weight in rest])
    expected = array(plain(alone(HIDDEN)))
    np.testing.assert_allclose(array(model(HIDDEN)), expected, atol=1e-6)
    assert not np.allclose(array(plain(HIDDEN)), expected, atol=1e-3)
    path = os.path.join(tmp_path, "model.keras")
    model.save(path)
    np.testing.assert_allclose(array(keras.models.load_model(path)(HIDDEN)), expected, atol=1e-6)


@pytest.mark.parametrize("position", ADDED.values(), ids=ADDED)
def test_steps_add_the_position_that_they_are_at(position):
    decoder = Decoder(2, 2, 16, position=position())
    decoder(HIDDEN)
    randomise(decoder)
    whole, caches = array(decoder(HIDDEN)), decoder.start_cache(2, 5)
    for index in range(3):
        step, caches, _ = decoder.step(
            ops.convert_to_tensor(HIDDEN[:, index : index + 1]),
            ops.convert_to_tensor(index, "int32"),
            caches,
        )
        np.testing.assert_allclose(array(step)[:, 0], whole[:, index], atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_an_added_position_works_in_the_dtype_of_its_block(policy):
    output = Encoder(1, 2, 16, position=PositionalEncoding(), dtype=policy)(HIDDEN)
    assert keras.backend.standardize_dtype(output.dtype) == policy.removeprefix("mixed_")


def test_positions_that_change_the_width_are_refused():
    with pytest.raises(ValueError, match="must be added to the embeddings"):
        EncoderLayer(2, 16, position=PositionalEncoding(combine="concat"))
    with pytest.raises(ValueError, match="not for attention"):
        MultiHeadAttention(2, 4, position=PositionalEncoding())
