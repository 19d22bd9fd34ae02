"""Which cases of a cross product the default run tries; `.ci/run` tries the others too."""

import itertools

import pytest


def spread(*axes):
    """All combinations of the axes' values, of which the default run tries each value once.

    Combination n of the default run takes value n of each axis, beginning anew where an axis
    ends. So it has as many combinations as the longest axis has values; the others are slow.
    """
    axes = [list(axis) for axis in axes]
    sizes = [len(axis) for axis in axes]
    chosen = {tuple(n % size for size in sizes) for n in range(max(sizes))}
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(axes, places, strict=True)),
            marks=() if places in chosen else pytest.mark.slow,
        )
        for places in itertools.product(*map(range, sizes))
    ]
