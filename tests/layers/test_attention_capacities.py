"""Searches of the Transformer with long room: nothing changes, and nothing unwritten is read."""

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.layers import (
    LearnedPositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
    attention,
)
from tests.backends import arrays, randomise
from tests.decoding.ways_to_compile import WAYS, in_way
from tests.selection import spread

SOURCES = np.array([[5, 6, 7, 8, 3, 0, 0], [9, 4, 3, 0, 0, 0, 0]], "int32")
LENGTH = 11
POSITIONS = {
    "sinusoids": lambda: None,
    "learned": lambda: LearnedPositionalEncoding(20),
    "rotary": RotaryPositionalEncoding,
    "bias": RelativePositionBias,
}


def generated(search, model, way):
    def run(sources):
        return model.generate(sources, search, max_length=LENGTH)

    run = run if way == "eager" else in_way(way, run, [SOURCES])
    return arrays(run(SOURCES))


SEARCHES = [GreedySearch(min_length=9), BeamSearch(3, min_length=9)]


@pytest.mark.parametrize(
    ("position", "search", "way"), spread(POSITIONS, SEARCHES, ["eager", *WAYS])
)
def test_capacities_change_no_result(position, search, way, monkeypatch):
    sizes = dict(num_layers=1, d_model=12, num_heads=2, d_ff=16, window=6)
    model = Transformer(17, **sizes, position=POSITIONS[position]())
    model.build()
    randomise(model, 3, 0.5)
    expected = generated(search, model, "eager")
    monkeypatch.setattr(attention, "SMALLEST_CAPACITY", 2)
    found = generated(search, model, way)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)


@pytest.mark.parametrize(
    ("positions", "capacities"),
    [(1, [1]), (32, [32]), (33, [32, 33]), (129, [32, 128, 129]), (600, [32, 128, 512, 600])],
)
def test_capacities_grow_fourfold_up_to_the_longest(positions, capacities):
    assert attention.list_capacities(positions) == capacities
