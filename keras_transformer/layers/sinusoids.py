"""Sines and cosines of positions, as exact as float32 at any position."""

from typing import Any

import numpy as np
from keras import ops

from keras_transformer.arguments import Tensor

# Positions in a tensor are split into digits of this base, the lowest digit first.
DIGIT_BASE = 128
NUM_DIGITS = 3
LARGEST_POSITION = DIGIT_BASE**NUM_DIGITS - 1


def sin_cos(positions: Tensor, frequencies: Any) -> tuple[Tensor, Tensor]:
    """float32 sines and cosines (..., n) of integer `positions` (...) times `frequencies` (n,).

    A NumPy array of positions is computed in float64. A float32 angle is off by 5e-4 at position
    8,192. So each digit of a tensor's positions selects from tables computed in float64, and the
    addition theorem sums the angles of the digits. Tensors hold positions from 0 to
    `LARGEST_POSITION`.
    """
    frequencies = np.asarray(frequencies, "float64")
    if isinstance(positions, np.ndarray):
        angles = positions[..., None] * frequencies
        return np.sin(angles).astype("float32"), np.cos(angles).astype("float32")
    sine, cosine = None, None
    for place in range(NUM_DIGITS):
        digit = positions // DIGIT_BASE**place % DIGIT_BASE
        angles = np.arange(DIGIT_BASE)[:, None] * (float(DIGIT_BASE**place) * frequencies)
        digit_sine = ops.take(np.sin(angles).astype("float32"), digit, axis=0)
        digit_cosine = ops.take(np.cos(angles).astype("float32"), digit, axis=0)
        if place == 0:
            sine, cosine = digit_sine, digit_cosine
        else:
            sine, cosine = (
                sine * digit_cosine + cosine * digit_sine,
                cosine * digit_cosine - sine * digit_sine,
            )
    return sine, cosine
