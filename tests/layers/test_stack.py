"""Stacks give one mask from layer to layer, however many there are."""

import keras
import numpy as np
import pytest

from keras_transformer import Decoder, Encoder, LearnedPositionalEncoding, Transformer
from keras_transformer.masking import AttachMask
from tests.backends import array, normal

SIZES = {"num_heads": 2, "d_ff": 12, "dropout": 0.0}
SOURCE_MASK = np.array([[True] * 5, [True] * 3 + [False] * 2])
TARGET_MASK = np.array([[True] * 4, [True, True, False, False]])
SOURCE_IDS = np.array([[5, 6, 7, 3, 0], [8, 3, 0, 0, 0]], "int32")
TARGET_IDS = np.array([[2, 9, 5, 4], [2, 6, 0, 0]], "int32")


@pytest.fixture
def combinations(monkeypatch):
    """Gives a list that grows by one with each combination of two padding masks."""
    found, logical_and = [], keras.ops.logical_and

    def counted(first, second):
        if len(first.shape) == len(second.shape) == 2:
            found.append(first.shape)
        return logical_and(first, second)

    monkeypatch.setattr(keras.ops, "logical_and", counted)
    return found


def with_mask(tensor, mask):
    return AttachMask()(keras.ops.convert_to_tensor(tensor), mask=keras.ops.convert_to_tensor(mask))


def explicit(mask):
    """A mask of another object with the same values, as a caller makes it."""
    return keras.ops.convert_to_tensor(mask.copy())


@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("how", ["call", "inspect"])
def test_an_encoder_combines_its_masks_once(how, num_layers, combinations):
    encoder = Encoder(num_layers, **SIZES, position=LearnedPositionalEncoding(9))
    encoder.build((None, None, 8))
    run = encoder if how == "call" else encoder.inspect
    run(with_mask(normal(1, 2, 5, 8), SOURCE_MASK), padding_mask=explicit(SOURCE_MASK))
    assert len(combinations) == 1


@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("how", ["call", "inspect"])
def test_a_decoder_combines_the_masks_of_each_input_once(how, num_layers, combinations):
    decoder = Decoder(num_layers, **SIZES)
    decoder.build((None, None, 8), (None, None, 8))
    run = decoder if how == "call" else decoder.inspect
    run(
        with_mask(normal(1, 2, 4, 8), TARGET_MASK),
        with_mask(normal(2, 2, 5, 8), SOURCE_MASK),
        padding_mask=explicit(TARGET_MASK),
        memory_padding_mask=explicit(SOURCE_MASK),
    )
    assert len(combinations) == 2


@pytest.mark.parametrize("num_layers", [1, 4])
def test_a_model_combines_masks_once(num_layers, combinations):
    """That of the memory, which its encoder attached, and which the ids say again."""
    model = Transformer(11, num_layers=num_layers, d_model=8, **SIZES)
    model.build()
    model((SOURCE_IDS, TARGET_IDS))
    assert len(combinations) == 1


@pytest.mark.parametrize("remat", [False, True])
def test_the_mask_is_attached_once(remat, monkeypatch):
    encoder = Encoder(3, **SIZES, remat=remat)
    encoder.build((None, None, 8))
    attached, call = [], AttachMask.call

    def counted(self, inputs, mask=None):
        attached.append(mask)
        return call(self, inputs, mask)

    monkeypatch.setattr(AttachMask, "call", counted)
    outputs = encoder(normal(1, 2, 5, 8), padding_mask=SOURCE_MASK, training=True)
    marked = [mask for mask in attached if mask is not None]
    assert len(marked) == 1
    np.testing.assert_array_equal(array(outputs._keras_mask), SOURCE_MASK)
