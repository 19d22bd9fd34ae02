"""Positions up to 8,192 against float64, in every dtype policy, pure half precision included."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    ALiBi,
    PositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from keras_transformer.layers.sinusoids import sin_cos
from tests.backends import POLICIES, array
from tests.numpy_reference import positional_encoding
from tests.selection import spread

LENGTH = 8192
EVERY_POLICY = (*POLICIES, "float16", "bfloat16")
# After the cast a number of at most 1 is off by half a unit in its last place.
ROUNDING = {"float32": 1e-6, "float16": 2**-12, "bfloat16": 2**-9}


def rounding(layer):
    return 1.01 * ROUNDING[layer.compute_dtype]


def linear_frequencies(width):
    return 10000.0 ** (-np.arange(0, width, 2) / width) / 4


def yarn_frequencies(width, factor=4.0, trained=2048):
    """Peng et al. 2023, section 3.2, with the ramp over pairs of the authors' program."""
    frequencies = []
    first, last = (
        width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(10000))
        for turns in (32, 1)
    )
    first, last = max(math.floor(first), 0), min(math.ceil(last), width - 1)
    for pair in range(width // 2):
        plain = 10000.0 ** (-2 * pair / width)
        slow = min(max((pair - first) / (last - first), 0), 1)
        frequencies.append((1 - slow) * plain + slow * plain / factor)
    return np.array(frequencies)


# The arguments, the frequencies in float64, and how far the heads are stretched.
SCALINGS = {
    "plain": ({}, lambda width: 10000.0 ** (-np.arange(0, width, 2) / width), 1.0),
    "linear": ({"scaling": "linear", "factor": 4.0}, linear_frequencies, 1.0),
    "yarn": (
        {"scaling": "yarn", "factor": 4.0, "original_max_length": 2048},
        yarn_frequencies,
        0.1 * math.log(4.0) + 1,
    ),
}


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("width", [2, 16, 64])
def test_sines_are_exact_wherever_the_position_comes_from(as_tensor, width):
    positions = np.array([0, 1, 127, 128, 129, LENGTH - 1, 16384, 500_000, 2_000_000], "int32")
    frequencies = 10000.0 ** (-np.arange(0, width, 2) / width)
    given = ops.convert_to_tensor(positions) if as_tensor else positions
    sine, cosine = sin_cos(given, frequencies)
    angles = positions[:, None].astype("float64") * frequencies
    np.testing.assert_allclose(array(ops.convert_to_tensor(sine)), np.sin(angles), atol=1e-6)
    np.testing.assert_allclose(array(ops.convert_to_tensor(cosine)), np.cos(angles), atol=1e-6)


@pytest.mark.parametrize(("policy", "given"), spread(EVERY_POLICY, [False, True]))
def test_sinusoidal_rows_are_exact_and_all_neighbours_differ_in_every_policy(policy, given):
    layer = PositionalEncoding(dtype=policy)
    inputs = np.zeros((1, LENGTH, 64), "float32")
    positions = ops.arange(LENGTH)[None] if given else None
    encoded = array(layer(inputs, positions=positions))[0]
    exact = positional_encoding(LENGTH, 64)
    rows = array(ops.convert_to_tensor(layer.rows(np.arange(LENGTH))))
    assert np.abs(rows - exact).max() < 1e-6
    assert np.abs(encoded - exact).max() <= rounding(layer)
    assert (np.abs(np.diff(encoded, axis=0)).max(axis=1) > 0).all()


@pytest.mark.parametrize(
    ("policy", "scaling", "given"), spread(EVERY_POLICY, SCALINGS, [False, True])
)
def test_rotary_is_exact_and_all_neighbours_differ_in_every_policy(policy, given, scaling):
    arguments, frequencies, stretch = SCALINGS[scaling]
    layer = RotaryPositionalEncoding(**arguments, dtype=policy)
    width = 64
    layer.build((None, None, 1, width))
    positions = np.arange(LENGTH)
    # Each pair is (1, 0), which turns to (cos, sin) of its angle.
    heads = np.zeros((1, LENGTH, 1, width), "float32")
    heads[..., : width // 2] = 1
    angles = positions[:, None] * frequencies(width)
    exact = stretch * np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)
    places = ops.convert_to_tensor(positions.astype("int32")) if given else positions
    before_cast = array(layer.rotate(ops.convert_to_tensor(heads), places))[0, :, 0]
    assert np.abs(before_cast - exact).max() < 1e-6 * stretch
    cast = layer.rotate(ops.cast(heads, layer.compute_dtype), places)
    assert keras.backend.standardize_dtype(cast.dtype) == layer.compute_dtype
    turned = array(cast)[0, :, 0]
    above_1 = 1 if stretch == 1 else 2  # units in the last place double there
    assert np.abs(turned - exact).max() <= rounding(layer) * above_1
    assert (np.abs(np.diff(turned, axis=0)).max(axis=1) > 0).all()


@pytest.mark.parametrize("policy", EVERY_POLICY)
@pytest.mark.parametrize("scheme", [ALiBi, RelativePositionBias])
def test_a_bias_is_float32_in_every_policy(policy, scheme):
    layer = scheme(dtype=policy)
    layer.build_for_heads(4, 8)
    bias = layer.bias(np.arange(5), np.arange(LENGTH))
    assert keras.backend.standardize_dtype(bias.dtype) == "float32"


@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_alibi_is_exact_and_all_neighbours_differ_in_every_policy(policy):
    layer = ALiBi(dtype=policy)
    layer.build_for_heads(12, 8)
    bias = array(layer.bias(np.array([LENGTH - 1]), np.arange(LENGTH)))[0, :, 0]
    eight = [2.0**-i for i in range(1, 9)]
    slopes = np.array(eight + [2.0 ** -(i + 0.5) for i in range(4)])
    exact = -slopes[:, None] * np.arange(LENGTH - 1, -1, -1)
    # Numbers up to 8,192: what float32 holds of them, two roundings of half a unit.
    np.testing.assert_allclose(bias, exact, rtol=2**-23)
    assert (np.diff(bias, axis=1) > 0).all()
