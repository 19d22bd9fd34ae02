"""RecurrentSeq2Seq on batches and lengths of 0, as the Transformer takes them, and wrong ones."""

import functools

import keras
import numpy as np
import pytest

from keras_transformer import BeamSearch, Transformer
from tests.backends import BACKEND, array, arrays
from tests.models.small_recurrent import SOURCE, TARGET, logits, made, shared
from tests.selection import spread

KINDS = [
    {"cell": "lstm", "attention": "additive", "scheduled_sampling": 0.5},
    {"cell": "gru", "attention": None},
]
SHAPES = [(0, 3, 2), (2, 0, 3), (2, 3, 0), (2, 0, 0), (0, 0, 0)]
if BACKEND == "jax":  # which compiles every operation anew for each shape
    KINDS, SHAPES = KINDS[:1], SHAPES[:2]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["cell"])


def shapes_of(model, batch, source, target):
    """What every way to use a model gives: shapes, all values finite."""
    source_ids = np.full((batch, source), 5)
    target_ids = np.full((batch, target), 6)
    search = BeamSearch(2, return_alignments=True)
    found = {
        "call": model((source_ids, target_ids)),
        "training": model((source_ids, target_ids), training=True),
        "score": model.score(source_ids, target_ids),
        "weights": model.attention_weights(source_ids, target_ids),
        "search": model.generate(source_ids, search, max_length=2),
    }
    found = arrays(found)
    assert all(np.isfinite(part).all() for part in keras.tree.flatten(found) if part is not None)
    return keras.tree.map_structure(lambda x: None if x is None else x.shape, found)


@functools.cache
def models():
    """A Transformer, and a model of each kind."""
    transformer = Transformer(12, num_layers=1, d_model=16, num_heads=1, d_ff=8)
    return transformer, {kind["cell"]: made(num_layers=1, **kind) for kind in KINDS}


CELLS = [kind["cell"] for kind in KINDS]
# Shapes with several sizes of 0 are slow.
CASES = spread(SHAPES[:3], CELLS) + [
    pytest.param(shape, cell, marks=pytest.mark.slow) for shape in SHAPES[3:] for cell in CELLS
]


@pytest.mark.parametrize(("shape", "cell"), CASES)
def test_nothing_in_gives_nothing_out_as_with_the_transformer(shape, cell):
    transformer, of_cell = models()
    assert shapes_of(of_cell[cell], *shape) == shapes_of(transformer, *shape)


@kinds
def test_a_source_of_nothing_is_one_of_padding(kind):
    model, target = shared(num_layers=1, **kind), np.array([[2, 5, 6, 9]])
    nothing, padding = np.zeros((1, 0), int), np.zeros((1, 3), int)
    expected = logits(model, padding, target)
    np.testing.assert_allclose(logits(model, nothing, target), expected, atol=1e-6)
    found, expected = (
        arrays(model.generate(ids, BeamSearch(2), max_length=3)) for ids in (nothing, padding)
    )
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


@kinds
def test_shapes_of_other_sentences_are_refused(kind):
    model = shared(num_layers=1, **kind)
    memory = model.encode(SOURCE)
    with pytest.raises(ValueError, match="must be of the same sentences") as raised:
        model((SOURCE[:1], TARGET[:2]))
    assert "(2, 4), (1, 5) and (1, 5, 16)" in str(raised.value)
    with pytest.raises(ValueError, match="must be of the same sentences"):
        model.decode(TARGET, memory, SOURCE[:, :3])
    with pytest.raises(ValueError, match="must be of the same sentences"):
        model.attention_weights(SOURCE[:2], TARGET[:1])


def test_shapes_that_are_not_known_beforehand_are_taken():
    model = shared(num_layers=1)
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    found = keras.Model(inputs, model(tuple(inputs)))(
        [SOURCE.astype("int32"), TARGET.astype("int32")]
    )
    np.testing.assert_allclose(array(found), logits(model, SOURCE, TARGET), atol=1e-6)
