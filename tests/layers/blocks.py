"""Every layer that takes a sequence, with the way to call it: the cases of the contract tests."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import pytest
from keras import ops

from keras_transformer import layers
from tests.backends import mask_of, normal, randomise, with_mask

# Every size is a prime of its own, so that no two axes can be taken for one another.
BATCH, SOURCE, TARGET, HEADS, KEY_DIM, D_FF = 2, 7, 11, 3, 5, 13
D_MODEL = HEADS * KEY_DIM
REAL_SOURCE, REAL_TARGET = 5, 3  # the longest sentences; what follows is padding


class Block(NamedTuple):
    """A layer: how to make it, to call it with explicit masks, and with those tensors carry.

    `mixes` says whether positions read one another, `reads_memory` whether it takes a memory,
    `reads_padding` whether a real position would read padding that no mask hides. The parts of a
    `composed` one are all in other cases: the default run leaves it out.
    """

    make: Callable
    explicit: Callable
    implicit: Callable
    mixes: bool = True
    reads_memory: bool = False
    reads_padding: bool = True
    composed: bool = False


def of_each_position(make):
    """The block of a layer that treats each position alone."""
    return Block(make, only_implicit, of_hidden, mixes=False, reads_padding=False)


def of_memory(make, explicit, implicit, **fields):
    """The block of a layer that reads a memory too."""
    return Block(make, explicit, implicit, reads_memory=True, **fields)


def self_attention(layer, hidden, mask, memory, memory_mask):
    return layer(hidden, hidden, query_mask=mask, value_mask=mask)


def cross_attention(layer, hidden, mask, memory, memory_mask):
    return layer(hidden, memory, query_mask=mask, value_mask=memory_mask)


def encode(layer, hidden, mask, memory, memory_mask):
    return layer(hidden, padding_mask=mask)


def decode(layer, hidden, mask, memory, memory_mask):
    return layer(hidden, memory, padding_mask=mask, memory_padding_mask=memory_mask)


def only_implicit(layer, hidden, mask, memory, memory_mask):
    return layer(with_mask(hidden, mask))


def of_hidden(layer, hidden, memory):
    return layer(hidden)


def of_hidden_twice(layer, hidden, memory):
    return layer(hidden, hidden)


def of_both(layer, hidden, memory):
    return layer(hidden, memory)


def of_named_memory(layer, hidden, memory):
    return layer(hidden, memory=memory)


def maker(layer_class, *positional, **named):
    return lambda **more: layer_class(*positional, **{**named, **more})


HEADS_AND_WIDTH = (HEADS, D_FF)
BLOCKS = {
    "PositionalEncoding": of_each_position(maker(layers.PositionalEncoding)),
    "PositionalEncoding concat": of_each_position(
        maker(layers.PositionalEncoding, combine="concat", max_length=23)
    ),
    "FeedForward": of_each_position(maker(layers.FeedForward, D_FF)),
    "MultiHeadAttention": Block(
        maker(layers.MultiHeadAttention, HEADS, KEY_DIM), self_attention, of_hidden_twice
    ),
    "MultiHeadAttention to memory": of_memory(
        maker(layers.MultiHeadAttention, HEADS, KEY_DIM), cross_attention, of_both
    ),
    "EncoderLayer": Block(
        maker(layers.EncoderLayer, *HEADS_AND_WIDTH), encode, of_hidden, composed=True
    ),
    "EncoderLayer pre-norm": Block(
        maker(layers.EncoderLayer, *HEADS_AND_WIDTH, norm_first=True),
        encode,
        of_hidden,
        composed=True,
    ),
    "DecoderLayer": of_memory(
        maker(layers.DecoderLayer, *HEADS_AND_WIDTH), decode, of_both, composed=True
    ),
    "DecoderLayer pre-norm": of_memory(
        maker(layers.DecoderLayer, *HEADS_AND_WIDTH, norm_first=True),
        decode,
        of_named_memory,
        composed=True,
    ),
    # Causal: it never reads what follows, padding included.
    "DecoderLayer alone": Block(
        maker(layers.DecoderLayer, *HEADS_AND_WIDTH), encode, of_hidden, reads_padding=False
    ),
    "Encoder": Block(maker(layers.Encoder, 2, *HEADS_AND_WIDTH), encode, of_hidden, composed=True),
    "Decoder": of_memory(
        maker(layers.Decoder, 1, *HEADS_AND_WIDTH, norm_first=True), decode, of_named_memory
    ),
}


def with_position(position_class, layer_class, *positional, **named):
    """Like `maker`; each layer gets a position layer of its own."""
    return lambda **more: layer_class(
        *positional, **{**named, "position": position_class(), **more}
    )


# The options, each in a layer whose contracts it could break.
BLOCKS |= {
    "LearnedPositionalEncoding": of_each_position(maker(layers.LearnedPositionalEncoding, 29)),
    "FeedForward gated": of_each_position(maker(layers.FeedForward, D_FF, "swiglu")),
    "MultiHeadAttention grouped, gated": Block(
        maker(layers.MultiHeadAttention, 4, KEY_DIM, num_key_value_heads=2, use_gate=True),
        self_attention,
        of_hidden_twice,
    ),
    "MultiHeadAttention window": Block(
        maker(layers.MultiHeadAttention, HEADS, KEY_DIM, window=2), self_attention, of_hidden_twice
    ),
    "MultiHeadAttention rotary": Block(
        with_position(layers.RotaryPositionalEncoding, layers.MultiHeadAttention, HEADS, 4),
        self_attention,
        of_hidden_twice,
    ),
    "MultiHeadAttention ALiBi, window": Block(
        with_position(layers.ALiBi, layers.MultiHeadAttention, HEADS, KEY_DIM, window=1),
        self_attention,
        of_hidden_twice,
        composed=True,
    ),
    "EncoderLayer window, RMS norm": Block(
        maker(layers.EncoderLayer, *HEADS_AND_WIDTH, window=2, rms_norm=True, activation="geglu"),
        encode,
        of_hidden,
    ),
    "Encoder relative": Block(
        with_position(layers.RelativePositionBias, layers.Encoder, 2, *HEADS_AND_WIDTH),
        encode,
        of_hidden,
    ),
    "EncoderLayer sinusoidal": Block(
        with_position(layers.PositionalEncoding, layers.EncoderLayer, *HEADS_AND_WIDTH),
        encode,
        of_hidden,
        composed=True,
    ),
    "Encoder ALiBi, window": Block(
        with_position(layers.ALiBi, layers.Encoder, 1, *HEADS_AND_WIDTH, window=1),
        encode,
        of_hidden,
        composed=True,
    ),
    "Decoder learned": of_memory(
        with_position(
            lambda: layers.LearnedPositionalEncoding(29), layers.Decoder, 1, *HEADS_AND_WIDTH
        ),
        decode,
        of_named_memory,
        composed=True,
    ),
    "Decoder grouped, window, relative": of_memory(
        with_position(
            layers.RelativePositionBias,
            layers.Decoder,
            1,
            *HEADS_AND_WIDTH,
            num_key_value_heads=1,
            window=2,
        ),
        decode,
        of_named_memory,
    ),
}


def with_marks(name):
    """The parameter of a test of the block of this name: slow for a composed one."""
    return pytest.param(name, marks=pytest.mark.slow if BLOCKS[name].composed else ())


EACH = [with_marks(name) for name in BLOCKS]
MIXING = [with_marks(name) for name, block in BLOCKS.items() if block.mixes]


def inputs_of(seed=0):
    """Gives hidden (batch, target, d_model), its mask, memory and its mask.

    The first sentence has the longest real part, the second is shorter; noise is at padding.
    """
    hidden, memory = normal(seed, BATCH, TARGET, D_MODEL), normal(seed + 1, BATCH, SOURCE, D_MODEL)
    mask = ops.convert_to_numpy(ops.arange(TARGET))[None] < [[REAL_TARGET], [REAL_TARGET - 1]]
    memory_mask = ops.convert_to_numpy(ops.arange(SOURCE))[None] < [[REAL_SOURCE], [2]]
    return hidden, mask, memory, memory_mask


def built(name, **arguments):
    """Makes and builds the layer of a block."""
    block = BLOCKS[name]
    layer = block.make(**arguments)
    block.explicit(layer, *map(ops.convert_to_tensor, inputs_of()))
    return layer


@functools.cache
def shared(name):
    """The layer of a block with weights as if trained: tests may call it, and change nothing."""
    return randomise(built(name))


@functools.cache
def shared_output(name):
    """The output of the shared layer for `inputs_of()`, and its mask."""
    output = BLOCKS[name].explicit(shared(name), *map(ops.convert_to_tensor, inputs_of()))
    return output, mask_of(output)
