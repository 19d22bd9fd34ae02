"""Sines and cosines of positions, as exact as float32 at any position."""

import numpy as np
from keras import ops

# Positions known only at run time are read in digits of this base, the smallest first.
DIGIT_BASE = 128
NUM_DIGITS = 3
LARGEST_POSITION = DIGIT_BASE**NUM_DIGITS - 1


def sin_cos(positions, frequencies):
    """float32 sines and cosines (..., n) of integer `positions` (...) times `frequencies` (n,).

    A NumPy array of positions is computed in float64. A float32 angle would be off by 5e-4 at
    position 8,192, so a tensor of positions is looked up digit by digit in tables made in
    float64, and the digits' angles are summed by the addition theorem. Its positions must be
    0 to `LARGEST_POSITION`.
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


def position_range(length):
    """Positions 0 to length - 1: a NumPy array for a plain integer, else a tensor."""
    return (
        np.arange(length, dtype="int32")
        if isinstance(length, int)
        else ops.arange(length, dtype="int32")
    )
