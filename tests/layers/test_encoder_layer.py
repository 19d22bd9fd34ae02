"""The encoder layer and stack: both norms by formula, masks through a functional model."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import Encoder, EncoderLayer, PositionalEncoding, TokenEmbedding
from tests.backends import WAYS, array, mask_of, normal, prepared, randomise
from tests.layers.blocks import BATCH, D_FF, D_MODEL, HEADS, TARGET
from tests.numpy_reference import multi_head_attention

INPUTS = normal(1, BATCH, TARGET, D_MODEL)
IDS = np.array([[3, 5, 0, 0, 0, 0, 0], [7, 8, 9, 2, 6, 0, 0]], "int32")


def built(layer):
    layer.build((None, None, D_MODEL))
    return randomise(layer)


def normalise(inputs, gamma, beta):
    centred = inputs - inputs.mean(axis=-1, keepdims=True)
    return gamma * centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6) + beta


@pytest.mark.parametrize("norm_first", [False, True])
def test_equals_the_formula_of_the_paper_and_its_pre_norm_form(norm_first):
    layer = built(EncoderLayer(HEADS, D_FF, norm_first=norm_first))
    projections = layer.attention.get_weights()
    projections = list(zip(projections[::2], projections[1::2], strict=True))
    first = layer.attention_residual.norm.get_weights()
    second = layer.feed_forward_residual.norm.get_weights()
    w1, b1, w2, b2 = layer.feed_forward.get_weights()
    everything = np.ones((TARGET, TARGET), bool)

    def attention(x):
        return multi_head_attention(projections, x, x, x, everything)

    def ffn(x):
        return np.maximum(0, x @ w1 + b1) @ w2 + b2

    expected = []
    for x in INPUTS.astype("float64"):
        if norm_first:
            y = x + attention(normalise(x, *first))
            expected.append(y + ffn(normalise(y, *second)))
        else:
            y = normalise(x + attention(x), *first)
            expected.append(normalise(y + ffn(y), *second))
    np.testing.assert_allclose(array(layer(INPUTS)), np.stack(expected), atol=1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_stack_is_its_layers_in_order_with_a_final_norm_when_they_normalise_first(norm_first):
    stack = built(Encoder(3, HEADS, D_FF, norm_first=norm_first))
    hidden = ops.convert_to_tensor(INPUTS)
    for layer in stack.layers:
        hidden = layer(hidden)
    if norm_first:
        hidden = stack.final_norm(hidden)
    np.testing.assert_allclose(array(stack(INPUTS)), array(hidden), atol=1e-6)
    assert len(stack.layers) == 3
    assert len(stack.weights) == 3 * 16 + 2 * norm_first


@pytest.mark.parametrize(
    "way",
    [
        "functional",
        *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS if way != "functional"),
    ],
)
def test_implicit_masks_through_plain_layers_equal_explicit_masks(way, tmp_path):
    embedding = TokenEmbedding(vocab_size=17, d_model=D_MODEL)
    positions = PositionalEncoding()
    layers = [EncoderLayer(HEADS, D_FF), EncoderLayer(HEADS, D_FF, norm_first=True)]
    embedding.build((None, None))
    for layer in [positions, *layers]:
        layer.build((None, None, D_MODEL))
    for seed, layer in enumerate([embedding, *layers]):
        randomise(layer, seed)

    def implicit(ids):
        hidden = positions(embedding(ids))
        for layer in layers:
            hidden = layer(hidden)
        return hidden, mask_of(hidden)

    def explicit(ids, mask):
        hidden = positions.apply_encoding(
            ops.take(embedding.weights[0], ids, axis=0) * D_MODEL**0.5,
            ops.expand_dims(positions.encoding(ids.shape[1]), 0),
        )
        for layer in layers:
            hidden = layer(hidden, padding_mask=mask)
        return hidden

    hidden, mask = prepared(way, implicit, [IDS], tmp_path)(IDS)
    expected = array(explicit(ops.convert_to_tensor(IDS), ops.convert_to_tensor(IDS != 0)))
    np.testing.assert_allclose(hidden, expected, atol=1e-5)
    assert (mask == (IDS != 0)).all()


def test_the_mask_of_a_keras_embedding_is_honoured():
    embedding = keras.layers.Embedding(17, D_MODEL, mask_zero=True)
    layer = built(EncoderLayer(HEADS, D_FF))
    hidden = embedding(IDS)
    plain = ops.convert_to_tensor(array(hidden))
    expected = array(layer(plain, padding_mask=IDS != 0))
    np.testing.assert_allclose(array(layer(hidden)), expected, atol=1e-6)
    assert np.abs(array(layer(plain)) - expected).max() > 1e-3


def test_an_attention_mask_limits_who_reads_whom():
    layer = built(EncoderLayer(HEADS, D_FF))
    local = np.abs(np.subtract.outer(np.arange(TARGET), np.arange(TARGET)))[None] <= 2
    changed = INPUTS.copy()
    changed[:, 0] += 1.0
    outputs = [array(layer(x, attention_mask=local)) for x in (INPUTS, changed)]
    differs = np.abs(outputs[0] - outputs[1]).max(axis=(0, 2)) > 1e-6
    assert differs.tolist() == [True] * 3 + [False] * (TARGET - 3)


def test_a_width_that_the_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="num_heads=4, d_model=15"):
        EncoderLayer(4, D_FF)(INPUTS)
