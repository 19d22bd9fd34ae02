"""`inspect` of layers and stacks: the weights that they attend with, and the hidden states."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import pytest

from keras_transformer import layers
from keras_transformer.masking import AttachMask, ReadMask
from tests.backends import array, normal
from tests.layers.blocks import BATCH, D_FF, D_MODEL, HEADS, SOURCE, TARGET
from tests.selection import spread

DEPTH = 2
INPUTS, MEMORY = normal(1, BATCH, TARGET, D_MODEL), normal(2, BATCH, SOURCE, D_MODEL)
MASK = np.arange(TARGET)[None] < np.array([[TARGET], [3]])
MEMORY_MASK = np.arange(SOURCE)[None] < np.array([[4], [SOURCE]])


class Kind(NamedTuple):
    """A layer or a stack of them: how to make it, and whether it takes a memory."""

    name: str
    make: Callable
    is_stack: bool
    reads_memory: bool  # and so sees no position after its own

    def __repr__(self):
        return self.name


ENCODER = Kind("Encoder", functools.partial(layers.Encoder, DEPTH), True, False)
KINDS = (
    Kind("EncoderLayer", layers.EncoderLayer, False, False),
    ENCODER,
    Kind("DecoderLayer", layers.DecoderLayer, False, True),
    Kind("Decoder", functools.partial(layers.Decoder, DEPTH), True, True),
)
EACH_LAYER = pytest.mark.parametrize(  # stacks in the slow run
    "kind",
    [pytest.param(kind, marks=pytest.mark.slow if kind.is_stack else ()) for kind in KINDS],
    ids=repr,
)
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=repr)
EACH_KIND_AND_NORM = pytest.mark.parametrize(
    ("kind", "norm_first"), spread(KINDS, [False, True]), ids=repr
)


def arguments(kind, inputs=INPUTS, memory=MEMORY):
    """The tensors and the masks of a call."""
    if not kind.reads_memory:
        return (inputs,), {"padding_mask": MASK}
    return (inputs, memory), {"padding_mask": MASK, "memory_padding_mask": MEMORY_MASK}


def call(layer, kind):
    tensors, masks = arguments(kind)
    return layer(*tensors, **masks)


def inspect(layer, kind, *tensors):
    tensors, masks = arguments(kind, *tensors)
    return layer.inspect(*tensors, **masks)


def own_weights(states, kind):
    """The weights over the input, a list of each layer's."""
    weights = states.self_attention_weights if kind.reads_memory else states.attention_weights
    return weights if kind.is_stack else [weights]


def made(kind, **options):
    keras.utils.set_random_seed(3)
    return kind.make(HEADS, D_FF, **options)


@functools.cache
def shared(kind, norm_first=False):
    """A layer that tests may call, and its states for the usual inputs."""
    layer = made(kind, norm_first=norm_first)
    return layer, inspect(layer, kind)


@EACH_KIND_AND_NORM
def test_they_are_rows_over_what_may_be_attended_to(kind, norm_first):
    layer, states = shared(kind, norm_first)
    plain = call(layer, kind)
    np.testing.assert_allclose(array(states.outputs), array(plain), atol=1e-6)
    visible = np.broadcast_to(MASK[:, None, None, :], (BATCH, HEADS, TARGET, TARGET))
    if kind.reads_memory:
        visible = visible & np.tril(np.ones((TARGET, TARGET), bool))
    weights = own_weights(states, kind)
    assert len(weights) == (DEPTH if kind.is_stack else 1)
    for found in map(array, weights):
        assert found.dtype == "float32"
        assert (found[~visible] == 0).all()
        assert (found[visible] > 0).all()
        np.testing.assert_allclose(found.sum(axis=-1), 1.0, atol=1e-5)


@EACH_KIND_AND_NORM
def test_they_are_those_of_the_attention_inside(kind, norm_first):
    # The second layer attends to what the first one put out; a stack clears padding once.
    layer, states = shared(kind, norm_first)
    inner = layer.layers if kind.is_stack else [layer]
    cleared = keras.ops.where(MASK[..., None], INPUTS, 0.0)
    entered = [cleared, *states.hidden_states[:-1]] if kind.is_stack else [cleared]
    for one, entering, found in zip(inner, entered, own_weights(states, kind), strict=True):
        attention = one.self_attention if kind.reads_memory else one.attention
        residual = one.self_attention_residual if kind.reads_memory else one.attention_residual
        entering = residual.enter(entering)
        _, expected = attention(
            entering,
            entering,
            value_mask=MASK,
            use_causal_mask=kind.reads_memory,
            return_attention_scores=True,
        )
        np.testing.assert_allclose(array(found), array(expected), atol=1e-6)


@EACH_LAYER
def test_a_window_bounds_them_and_changes_nothing_else(kind):
    layer = made(kind, window=2)
    plain = call(layer, kind)
    states = inspect(layer, kind)
    np.testing.assert_allclose(array(states.outputs), array(plain), atol=1e-5)
    far = np.abs(np.subtract.outer(np.arange(TARGET), np.arange(TARGET))) > 2
    for found in map(array, own_weights(states, kind)):
        assert (found[:, :, far] == 0).all()
        assert found[0].any()


@EACH_KIND
def test_symbols_have_their_shapes_and_dtypes(kind):
    layer, found = shared(kind)
    symbols = (keras.Input(x.shape[1:], BATCH) for x in (INPUTS, MEMORY))
    symbols = inspect(layer, kind, *symbols)
    assert type(found) is type(symbols)
    assert len(keras.tree.flatten(found)) > 1
    for real, symbol in zip(keras.tree.flatten(found), keras.tree.flatten(symbols), strict=True):
        assert tuple(real.shape) == tuple(symbol.shape)
        assert keras.backend.standardize_dtype(real.dtype) == symbol.dtype


@EACH_LAYER
def test_implicit_masks_are_read_and_the_output_carries_its_mask(kind):
    layer = made(kind)
    masked = [AttachMask()(x, mask=m) for x, m in ((INPUTS, MASK), (MEMORY, MEMORY_MASK))]
    masked = masked if kind.reads_memory else masked[:1]
    states = layer.inspect(*masked)  # which builds it
    expected = inspect(layer, kind)
    for found, wanted in zip(*map(keras.tree.flatten, (states, expected)), strict=True):
        np.testing.assert_allclose(array(found), array(wanted), atol=1e-6)
    (mask,) = ReadMask()(states.outputs)
    assert (array(mask) == MASK).all()


class Weights(keras.layers.Layer):
    """The attention weights of a stack, as a layer: how a functional model gets them."""

    def __init__(self, stack):
        super().__init__()
        self.stack = stack

    def call(self, inputs):
        return self.stack.inspect(inputs).attention_weights


def test_a_layer_of_a_functional_model_may_inspect():
    layer, _ = shared(ENCODER)
    symbols = keras.Input(INPUTS.shape[1:])
    model = keras.Model(symbols, Weights(layer)(symbols))
    expected = layer.inspect(INPUTS).attention_weights
    for one, other in zip(model(INPUTS), expected, strict=True):
        np.testing.assert_allclose(array(one), array(other), atol=1e-6)


def test_a_decoder_without_a_memory_gives_its_own():
    states = layers.Decoder(DEPTH, HEADS, D_FF).inspect(INPUTS)
    weights = states.self_attention_weights
    assert [tuple(w.shape) for w in weights] == [(BATCH, HEADS, TARGET, TARGET)] * DEPTH
    assert states.attention_weights == [None] * DEPTH
