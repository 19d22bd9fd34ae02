"""Position schemes: formulas by hand, and what each promises."""

import math

import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    ALiBi,
    EncoderLayer,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from keras_transformer.layers.alibi import alibi_slopes
from keras_transformer.layers.relative_position_bias import distance_buckets
from keras_transformer.masking import segment_positions
from tests.backends import array, compiled, normal, randomise
from tests.numpy_reference import positional_encoding


def rotated(heads, positions=None, **arguments):
    layer = RotaryPositionalEncoding(**arguments)
    layer.build(heads.shape)
    positions = np.arange(heads.shape[1]) if positions is None else positions
    return array(layer.rotate(ops.convert_to_tensor(heads), positions))


def turned_by_hand(heads, positions, base=10000.0):
    """Each pair (x_i, x_{i + d/2}) as a complex number times exp(i pos base^(-2i/d))."""
    width = heads.shape[-1]
    frequencies = base ** (-np.arange(0, width, 2) / width)
    turn = np.exp(1j * np.asarray(positions)[:, None, None] * frequencies)
    pairs = (heads[..., : width // 2] + 1j * heads[..., width // 2 :].astype("complex128")) * turn
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


# --- Rotary.


def test_rotary_by_hand():
    # Width 4: frequencies 1 and 1 / 100, pairs (0, 2) and (1, 3). At position 2:
    # (1, 0) turns to (cos 2, sin 2) and (0, 1) to (-sin 0.02, cos 0.02).
    heads = np.zeros((1, 3, 1, 4), "float32")
    heads[..., 0], heads[..., 3] = 1.0, 1.0
    by_hand = [math.cos(2), -math.sin(0.02), math.sin(2), math.cos(0.02)]
    np.testing.assert_allclose(rotated(heads)[0, 2, 0], by_hand, atol=1e-7)
    np.testing.assert_allclose(rotated(heads)[0, 0, 0], heads[0, 0, 0], atol=0)


def test_rotary_equals_complex_multiplication():
    heads = normal(1, 2, 13, 3, 8)
    np.testing.assert_allclose(rotated(heads), turned_by_hand(heads, np.arange(13)), atol=1e-6)
    np.testing.assert_allclose(
        rotated(heads, base=500.0), turned_by_hand(heads, np.arange(13), 500.0), atol=1e-6
    )


def test_a_product_of_turned_heads_depends_on_the_distance_alone():
    query, key = normal(1, 1, 1, 1, 16), normal(2, 1, 1, 1, 16)

    def product(query_position, key_position):
        q = rotated(query, np.array([query_position]))
        k = rotated(key, np.array([key_position]))
        return (q * k).sum()

    assert product(7, 3) == pytest.approx(product(4, 0), abs=1e-5)
    assert product(8004, 8000) == pytest.approx(product(4, 0), abs=1e-5)
    assert abs(product(7, 3) - product(3, 7)) > 1e-3


def test_linear_scaling_squeezes_positions():
    heads = normal(1, 1, 12, 1, 8)
    squeezed = rotated(heads, scaling="linear", factor=4.0)
    np.testing.assert_allclose(squeezed, turned_by_hand(heads, np.arange(12) / 4.0), atol=1e-6)


def test_yarn_leaves_fast_pairs_alone_and_divides_slow_ones():
    layer = RotaryPositionalEncoding(scaling="yarn", factor=8.0, original_max_length=256)
    layer.build((None, None, 1, 64))
    plain = 10000.0 ** (-np.arange(0, 64, 2) / 64)
    share = np.array(layer.frequencies) / plain
    turns = 256 * plain / (2 * np.pi)
    np.testing.assert_allclose(share[turns > 33], 1.0)
    np.testing.assert_allclose(share[turns < 0.7], 1 / 8)
    assert (np.diff(share) <= 1e-12).all()
    assert layer.stretch == pytest.approx(0.1 * math.log(8) + 1)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"scaling": "ntk"}, "`scaling` must be one of None, 'linear', 'yarn'"),
        ({"factor": 0.5}, "`factor` must be at least 1"),
        ({"scaling": "yarn"}, "`original_max_length` must be given"),
        ({"base": 0}, "`base` must be a finite number above 0"),
        ({"beta_fast": 1.0, "beta_slow": 2.0}, "`beta_fast` must be above `beta_slow`"),
    ],
)
def test_bad_rotary_arguments_are_refused(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        RotaryPositionalEncoding(**arguments)


def test_an_odd_head_is_refused():
    with pytest.raises(ValueError, match="`key_dim` must be even. Received: key_dim=5"):
        MultiHeadAttention(2, 5, position=RotaryPositionalEncoding())(*[normal(1, 1, 3, 8)] * 2)


# --- ALiBi.


def test_slopes_of_the_paper():
    # Eight heads: 1/2, 1/4, ..., 1/256. Twelve: those, and every second of sixteen heads'.
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(12)[8:] == pytest.approx([2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    assert len(alibi_slopes(1)) == 1


def test_alibi_is_minus_slope_times_distance():
    layer = ALiBi()
    layer.build_for_heads(2, 8)
    bias = array(layer.bias(np.array([3]), np.arange(6)))
    np.testing.assert_allclose(bias[0, 0, 0], -np.array([3, 2, 1, 0, 1, 2]) / 16)
    np.testing.assert_allclose(bias[0, 1, 0], -np.array([3, 2, 1, 0, 1, 2]) / 256)


# --- Relative bias.


def test_buckets_by_hand():
    # Eight buckets: 0 to 3 hold one distance each. From 4 on 4 * (20 / 4) ** (s / 4) begins
    # bucket 4 + s: 4, 5.98, 8.94, 13.4, so buckets 4, 5, 6, 7 begin at 4, 6, 9 and 14.
    expected = [0, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7]
    assert distance_buckets(8, 20).tolist() == expected


def test_borders_that_are_whole_numbers_begin_a_bucket():
    # 16 buckets up to 128: bucket 8 + s begins at 8 * 16 ** (s / 8), which is 16 for s = 2.
    buckets = distance_buckets(16, 128)
    assert (buckets[15], buckets[16], buckets[32], buckets[64], buckets[128]) == (9, 10, 12, 14, 15)


def test_relative_bias_looks_up_its_bucket():
    layer = RelativePositionBias(num_buckets=8, max_distance=5)
    layer.build_for_heads(2, 4)
    randomise(layer)
    (table,) = layer.get_weights()
    bias = array(layer.bias(np.array([4]), np.arange(10)))[0, :, 0]
    # Both sides have 4 buckets: distances 0, 1 exactly, 2 to 3 and from there on.
    before = distance_buckets(4, 5)
    for key in range(10):
        bucket = before[4 - key] if key <= 4 else 4 + before[min(key - 4, 5)]
        np.testing.assert_allclose(bias[:, key], table[bucket], atol=1e-7)
    causal = array(layer.bias(np.array([4]), np.arange(5), causal=True))[0, :, 0]
    for key in range(5):
        np.testing.assert_allclose(causal[:, key], table[distance_buckets(8, 5)[4 - key]])


def test_the_relative_bias_is_trained():
    layer = MultiHeadAttention(2, 4, position=RelativePositionBias())
    hidden = normal(1, 2, 5, 8)
    layer(hidden, hidden)
    assert [weight.name for weight in layer.trainable_weights].count("bucket_bias") == 1


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"num_buckets": 30}, "`num_buckets` must be a multiple of 4"),
        ({"max_distance": 16}, "`max_distance` must be above half of `num_buckets`"),
    ],
)
def test_bad_bucket_arguments_are_refused(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        RelativePositionBias(**arguments)


# --- Learned.


def test_learned_positions_are_rows_of_the_table():
    layer = LearnedPositionalEncoding(max_length=7)
    inputs = normal(1, 2, 5, 4)
    layer(inputs)
    randomise(layer)
    (table,) = layer.get_weights()
    np.testing.assert_allclose(array(layer(inputs)), inputs + table[:5], atol=1e-6)
    restarted = array(layer(inputs, positions=np.array([[0, 1, 0, 1, 2]] * 2)))
    np.testing.assert_allclose(restarted, inputs + table[[0, 1, 0, 1, 2]], atol=1e-6)


@pytest.mark.parametrize("layer_class", [PositionalEncoding, LearnedPositionalEncoding])
def test_longer_inputs_are_refused_in_a_compiled_function_too(layer_class):
    max_length = 6
    layer = layer_class(max_length)
    layer.build((None, None, 4))
    with pytest.raises(ValueError, match=f"max_length={max_length}"):
        layer(np.zeros((1, max_length + 1, 4), "float32"))
    run = compiled(lambda inputs: layer(inputs), [np.zeros((2, 1, 4), "float32")])
    assert array(run(np.zeros((2, max_length, 4), "float32"))).shape == (2, max_length, 4)
    with pytest.raises(Exception, match=r"max_length|[Ii]ncompatible shapes"):
        run(np.zeros((2, max_length + 1, 4), "float32"))


# --- In attention and in layers.


@pytest.mark.parametrize("position", [RotaryPositionalEncoding, ALiBi, RelativePositionBias])
def test_a_position_breaks_the_symmetry_of_attention(position):
    hidden = normal(1, 1, 6, 8)
    shuffled = [2, 0, 5, 1, 3, 4]
    plain, placed = MultiHeadAttention(2, 4), MultiHeadAttention(2, 4, position=position())
    for layer, symmetric in ((plain, True), (placed, False)):
        layer(hidden, hidden)
        randomise(layer, scale=1.0)
        output = array(layer(hidden, hidden))
        other = array(layer(hidden[:, shuffled], hidden[:, shuffled]))
        assert np.allclose(output[:, shuffled], other, atol=1e-5) == symmetric


@pytest.mark.parametrize("position", [ALiBi, RelativePositionBias, RotaryPositionalEncoding])
def test_attention_with_a_position_equals_the_formula(position):
    layer = MultiHeadAttention(2, 4, position=position())
    hidden = normal(1, 1, 6, 8)
    layer(hidden, hidden)
    randomise(layer, scale=1.0)
    scheme = layer.position
    queries, (keys, _) = layer.query_dense(hidden), layer.project_key_value(hidden)
    queries = array(scheme.rotate(queries, np.arange(6)))
    scores = np.einsum("bqhd,bkhd->bhqk", queries, array(keys)) / math.sqrt(4)
    bias = scheme.bias(np.arange(6), np.arange(6))
    scores = scores if bias is None else scores + array(bias)
    expected = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    _, weights = layer(hidden, hidden, return_attention_scores=True)
    np.testing.assert_allclose(array(weights), expected, atol=1e-5)


def test_attention_takes_positions_inside_it_only_and_nobody_takes_a_name():
    with pytest.raises(ValueError, match="positions that are added are for layers and stacks"):
        MultiHeadAttention(2, 4, position=PositionalEncoding())
    for make in (MultiHeadAttention, EncoderLayer):
        with pytest.raises(ValueError, match="`position` must be None, a RotaryPositionalEncoding"):
            make(2, 4, position="rotary")


def test_positions_restart_in_each_packed_sentence():
    segments = np.array([[1, 1, 1, 2, 2, 3], [4, 4, 5, 5, 5, 5]])
    positions = segment_positions(segments)
    assert array(positions).tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 0, 1, 2, 3]]
    encoded = array(PositionalEncoding()(np.zeros((2, 6, 8), "float32"), positions=positions))
    np.testing.assert_allclose(encoded, positional_encoding(6, 8)[array(positions)], atol=1e-6)
