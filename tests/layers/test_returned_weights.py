"""The attention weights that layers and stacks give when asked: the ones that they attend with."""

import keras
import numpy as np
import pytest

from keras_transformer import layers
from tests.backends import array, normal
from tests.layers.blocks import BATCH, D_FF, D_MODEL, HEADS, SOURCE, TARGET

DEPTH = 2
INPUTS, MEMORY = normal(1, BATCH, TARGET, D_MODEL), normal(2, BATCH, SOURCE, D_MODEL)
MASK = np.arange(TARGET)[None] < np.array([[TARGET], [3]])
MEMORY_MASK = np.arange(SOURCE)[None] < np.array([[4], [SOURCE]])
KINDS = {
    "EncoderLayer": layers.EncoderLayer,
    "Encoder": lambda *sizes, **options: layers.Encoder(DEPTH, *sizes, **options),
    "DecoderLayer": layers.DecoderLayer,
    "Decoder": lambda *sizes, **options: layers.Decoder(DEPTH, *sizes, **options),
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)
EACH_NORM = pytest.mark.parametrize("norm_first", [False, True])


def call(layer, inputs, memory, kind, **options):
    if kind.startswith("Encoder"):
        return layer(inputs, padding_mask=MASK, **options)
    masks = {"padding_mask": MASK, "memory_padding_mask": MEMORY_MASK}
    return layer(inputs, memory, **masks, **options)


def asked_for(kind, *, both=False):
    if kind.startswith("Encoder"):
        return {"return_attention_scores": True}
    own = {"return_self_attention_scores": True}
    return {**own, "return_attention_scores": True} if both else own


def own_weights(answer, kind):
    """The weights over the input, a list of each layer's."""
    weights = answer[-1]
    return weights if kind in ("Encoder", "Decoder") else [weights]


def made(kind, **options):
    keras.utils.set_random_seed(3)
    return KINDS[kind](HEADS, D_FF, **options)


@EACH_NORM
@EACH_KIND
def test_they_are_rows_over_what_may_be_attended_to(kind, norm_first):
    layer = made(kind, norm_first=norm_first)
    plain = call(layer, INPUTS, MEMORY, kind)
    output, weights = call(layer, INPUTS, MEMORY, kind, **asked_for(kind))
    np.testing.assert_allclose(array(output), array(plain), atol=1e-6)
    visible = np.broadcast_to(MASK[:, None, None, :], (BATCH, HEADS, TARGET, TARGET))
    if kind.startswith("Decoder"):
        visible = visible & np.tril(np.ones((TARGET, TARGET), bool))
    weights = own_weights((output, weights), kind)
    assert len(weights) == (1 if kind.endswith("Layer") else DEPTH)
    for found in map(array, weights):
        assert found.dtype == "float32"
        assert (found[~visible] == 0).all()
        assert (found[visible] > 0).all()
        np.testing.assert_allclose(found.sum(axis=-1), 1.0, atol=1e-5)


@EACH_NORM
@EACH_KIND
def test_they_are_those_of_the_attention_inside(kind, norm_first):
    # The second layer attends to what the first one put out.
    layer = made(kind, norm_first=norm_first)
    options, inputs = asked_for(kind), INPUTS
    inner = [layer]
    if not kind.endswith("Layer"):
        call(layer, INPUTS, MEMORY, kind)
        options, inner = {**options, "return_hidden_states": True}, layer.layers
        _, weights, states = call(layer, INPUTS, MEMORY, kind, **options)
        inputs = [INPUTS, *states]
    else:
        weights, inputs = [call(layer, INPUTS, MEMORY, kind, **options)[1]], [INPUTS]
    for one, entering, found in zip(inner, inputs, weights, strict=False):
        encoder = kind.startswith("Encoder")
        attention = one.attention if encoder else one.self_attention
        residual = one.attention_residual if encoder else one.self_attention_residual
        entering = residual.enter(keras.ops.where(MASK[..., None], entering, 0.0))
        _, expected = attention(
            entering,
            entering,
            value_mask=MASK,
            use_causal_mask=not encoder,
            return_attention_scores=True,
        )
        np.testing.assert_allclose(array(found), array(expected), atol=1e-6)


@EACH_KIND
def test_a_window_bounds_them_and_changes_nothing_else(kind):
    layer = made(kind, window=2)
    plain = call(layer, INPUTS, MEMORY, kind)
    output, weights = call(layer, INPUTS, MEMORY, kind, **asked_for(kind))
    np.testing.assert_allclose(array(output), array(plain), atol=1e-5)
    far = np.abs(np.subtract.outer(np.arange(TARGET), np.arange(TARGET))) > 2
    for found in map(array, own_weights((output, weights), kind)):
        assert (found[:, :, far] == 0).all()
        assert found[0].any()


@EACH_KIND
def test_symbols_have_their_shapes_and_dtypes(kind):
    layer = made(kind)
    options = asked_for(kind, both=True)
    found = call(layer, INPUTS, MEMORY, kind, **options)
    symbols = call(
        layer,
        keras.Input(INPUTS.shape[1:], BATCH),
        keras.Input(MEMORY.shape[1:], BATCH),
        kind,
        **options,
    )
    assert len(found) == len(symbols) == len(options) + 1
    for real, symbol in zip(keras.tree.flatten(found), keras.tree.flatten(symbols), strict=True):
        assert tuple(real.shape) == tuple(symbol.shape)
        assert keras.backend.standardize_dtype(real.dtype) == symbol.dtype


def test_a_decoder_without_a_memory_gives_its_own():
    decoder = layers.Decoder(DEPTH, HEADS, D_FF)
    _, weights = decoder(INPUTS, return_self_attention_scores=True)
    assert [tuple(w.shape) for w in weights] == [(BATCH, HEADS, TARGET, TARGET)] * DEPTH
