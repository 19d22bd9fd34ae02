"""Inputs of another rank, and masks of another length, are refused with what was received."""

import numpy as np
import pytest

from keras_transformer.layers import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
)
from tests.backends import normal
from tests.layers.blocks import D_FF, D_MODEL, HEADS

IDS = np.array([[5, 6, 7]], "int32")
VECTORS = normal(1, 1, 3, D_MODEL)
LONGER = np.ones((1, 5), bool)
LAYERS = {
    "EncoderLayer": lambda: EncoderLayer(HEADS, D_FF),
    "DecoderLayer": lambda: DecoderLayer(HEADS, D_FF),
    "Encoder": lambda: Encoder(1, HEADS, D_FF),
    "Decoder": lambda: Decoder(1, HEADS, D_FF),
}
LENGTHS = "a mask of length 5 for a length of 3"


@pytest.mark.parametrize("name", LAYERS)
def test_ids_in_place_of_vectors_are_refused(name):
    with pytest.raises(ValueError, match=r"TokenEmbedding. Received: inputs of shape \(1, 3\)"):
        LAYERS[name]()(IDS)
    if name.startswith("Decoder"):
        with pytest.raises(ValueError, match=r"Received: memory of shape \(1, 3\)"):
            LAYERS[name]()(VECTORS, IDS)


@pytest.mark.parametrize("name", LAYERS)
def test_a_mask_of_another_length_is_refused(name):
    with pytest.raises(ValueError, match=LENGTHS):
        LAYERS[name]()(VECTORS, padding_mask=LONGER)
    if name.startswith("Decoder"):
        with pytest.raises(ValueError, match=LENGTHS):
            LAYERS[name]()(VECTORS, VECTORS, memory_padding_mask=LONGER)


def test_attention_refuses_a_mask_of_another_length():
    for given in ("query_mask", "value_mask"):
        with pytest.raises(ValueError, match=LENGTHS):
            MultiHeadAttention(HEADS, 4)(VECTORS, VECTORS, **{given: LONGER})
