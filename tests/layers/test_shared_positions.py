"""One position given to several layers: each has its own copy, a stack shares one."""

import os

import keras
import numpy as np
import pytest

from keras_transformer import (
    ALiBi,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from tests.backends import array, normal, randomise

HIDDEN = normal(0, 2, 5, 8)


def two_layers(position):
    inputs = keras.Input((None, 8))
    hidden = EncoderLayer(2, 16, position=position)(inputs)
    return keras.Model(inputs, EncoderLayer(2, 16, position=position)(hidden))


@pytest.mark.parametrize("position", [RelativePositionBias, RotaryPositionalEncoding, ALiBi])
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
