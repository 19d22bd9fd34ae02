"""Inputs of another rank, and masks of another length, are refused with what was received."""

from collections.abc import Callable
from typing import NamedTuple

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
LENGTHS = "a mask of length 5 for a length of 3"


class Kind(NamedTuple):
    """How to make a layer, and whether it takes a memory."""

    make: Callable
    reads_memory: bool


KINDS = {
    "EncoderLayer": Kind(lambda: EncoderLayer(HEADS, D_FF), reads_memory=False),
    "DecoderLayer": Kind(lambda: DecoderLayer(HEADS, D_FF), reads_memory=True),
    "Encoder": Kind(lambda: Encoder(1, HEADS, D_FF), reads_memory=False),
    "Decoder": Kind(lambda: Decoder(1, HEADS, D_FF), reads_memory=True),
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@EACH_KIND
def test_ids_in_place_of_vectors_are_refused(kind):
    with pytest.raises(ValueError, match=r"TokenEmbedding. Received: inputs of shape \(1, 3\)"):
        kind.make()(IDS)
    if kind.reads_memory:
        with pytest.raises(ValueError, match=r"Received: memory of shape \(1, 3\)"):
            kind.make()(VECTORS, IDS)


@EACH_KIND
def test_a_mask_of_another_length_is_refused(kind):
    with pytest.raises(ValueError, match=LENGTHS):
        kind.make()(VECTORS, padding_mask=LONGER)
    if kind.reads_memory:
        with pytest.raises(ValueError, match=LENGTHS):
            kind.make()(VECTORS, VECTORS, memory_padding_mask=LONGER)


def test_attention_refuses_a_mask_of_another_length():
    for given in ("query_mask", "value_mask"):
        with pytest.raises(ValueError, match=LENGTHS):
            MultiHeadAttention(HEADS, 4)(VECTORS, VECTORS, **{given: LONGER})
