"""The table of docs/attention.md: what Keras's layer does, and what ours does instead.

A test that fails because Keras has mended a fault says that its line of the table can go.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import MultiHeadAttention
from tests.backends import BACKEND, array, has_mask, normal, on_tensorflow, randomise, with_mask

pytestmark = [pytest.mark.parity, on_tensorflow]

HIDDEN, MEMORY = normal(1, 2, 5, 8), normal(2, 2, 7, 8)
REAL = np.arange(5)[None] < [[3], [5]]


def pair(**options):
    """Keras's layer and ours with the same weights."""
    theirs = keras.layers.MultiHeadAttention(2, 4, **options)
    theirs.build(HIDDEN.shape, MEMORY.shape)
    randomise(theirs, scale=0.7)
    return theirs, MultiHeadAttention.from_keras(theirs)


def test_the_callers_tensors_keep_their_masks():
    theirs, ours = pair()
    for layer, kept in ((theirs, False), (ours, True)):
        tensor = with_mask(ops.convert_to_tensor(HIDDEN), ops.convert_to_tensor(REAL))
        layer(tensor, tensor)
        assert has_mask(tensor) == kept


def test_an_explicit_query_mask_has_an_effect():
    theirs, ours = pair()
    changed = [
        np.abs(array(layer(HIDDEN, MEMORY, query_mask=REAL)) - array(layer(HIDDEN, MEMORY))).max()
        for layer in (theirs, ours)
    ]
    assert changed[0] == 0
    assert changed[1] > 0.1


def test_a_float_mask_is_not_read_inverted():
    theirs, ours = pair()
    allowed = np.random.default_rng(1).random((2, 5, 7)) < 0.6
    allowed[..., 0] = True
    additive = np.where(allowed, 0.0, -1e9).astype("float32")
    right = array(theirs(HIDDEN, MEMORY, attention_mask=allowed))
    inverted = array(theirs(HIDDEN, MEMORY, attention_mask=~allowed))
    found = array(theirs(HIDDEN, MEMORY, attention_mask=additive))
    np.testing.assert_allclose(found, inverted, atol=1e-6)
    assert np.abs(found - right).max() > 0.01
    with pytest.raises(ValueError, match="mask == 0"):
        ours(HIDDEN, MEMORY, attention_mask=additive)


def test_a_query_with_no_key_gives_zero_on_every_path():
    theirs, ours = pair()
    nothing = np.zeros((2, 5, 7), bool)
    options = {"attention_mask": nothing}
    fused, (plain, _) = (
        theirs(HIDDEN, MEMORY, **options),
        theirs(HIDDEN, MEMORY, return_attention_scores=True, **options),
    )
    assert np.abs(array(fused) - array(plain)).max() > 0.01
    assert (array(ours(HIDDEN, MEMORY, **options)) == 0).all()
    assert (array(ours(HIDDEN, MEMORY, return_attention_scores=True, **options)[0]) == 0).all()


def test_nan_at_a_masked_key_reaches_nothing():
    theirs, ours = pair()
    real = np.arange(7)[None] < [[4], [7]]
    spoilt = np.where(real[..., None], MEMORY, np.float32(np.nan))
    found = [array(layer(HIDDEN, spoilt, value_mask=real)) for layer in (theirs, ours)]
    assert np.isnan(found[0][0]).all()
    np.testing.assert_allclose(found[1], array(ours(HIDDEN, MEMORY, value_mask=real)), atol=1e-6)


def test_the_symbolic_scores_have_the_shape_of_the_real_ones():
    theirs, ours = pair()
    symbols = keras.Input((5, 8), 2), keras.Input((7, 8), 2)
    shapes = [layer(*symbols, return_attention_scores=True)[1].shape for layer in (theirs, ours)]
    assert shapes == [(2, 2, 5, 5), (2, 2, 5, 7)]


def test_the_fused_kernel_is_used_at_inference_with_dropout(monkeypatch):
    theirs, ours = pair(dropout=0.2)
    calls = []
    for place in ("keras.src.ops.nn.dot_product_attention", "keras.ops.dot_product_attention"):
        monkeypatch.setattr(place, _counting(place, calls))
    monkeypatch.setattr(
        "keras.src.ops.dot_product_attention", _counting("keras.ops.dot_product_attention", calls)
    )
    theirs(HIDDEN, MEMORY)
    assert calls == []
    ours(HIDDEN, MEMORY)
    assert len(calls) == 1


def _counting(place, calls):
    function = ops.dot_product_attention

    def counted(*args, **kwargs):
        calls.append(place)
        return function(*args, **kwargs)

    return counted


def test_heads_of_width_1_add_their_bias_to_the_heads():
    hidden = normal(1, 1, 2, 6)
    theirs = keras.layers.MultiHeadAttention(2, 1)
    theirs.build(hidden.shape, hidden.shape)
    randomise(theirs, scale=0.7)
    ours = MultiHeadAttention.from_keras(theirs)
    only_first = np.array([[True, False]])
    for layer, right in ((theirs, False), (ours, True)):
        whole = array(layer(hidden, hidden, value_mask=only_first))[:, :1]
        alone = array(layer(hidden[:, :1], hidden[:, :1]))
        assert np.allclose(whole, alone, atol=1e-5) == right


def test_a_causal_mask_counts_along_the_attended_axis():
    # Attention over axis 2, three positions; axis 1 has two.
    hidden = normal(1, 1, 2, 3, 8)
    theirs = keras.layers.MultiHeadAttention(2, 4, attention_axes=(2,))
    theirs.build(hidden.shape, hidden.shape)
    ours = MultiHeadAttention.from_keras(theirs)
    _, weights = ours(hidden, hidden, use_causal_mask=True, return_attention_scores=True)
    future = ~np.tri(3, dtype=bool)
    assert weights.shape == (1, 2, 2, 3, 3)
    assert (array(weights)[..., future] == 0).all()
    with pytest.raises(Exception, match=r"[Ii]ncompatible|shape|broadcast"):
        theirs(hidden, hidden, use_causal_mask=True, return_attention_scores=True)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a fault of Keras on TensorFlow")
def test_keras_add_takes_a_column_for_a_bias():
    ones, column = np.zeros((1, 3, 3), "float32"), np.array([[1.0], [2.0], [3.0]], "float32")
    assert (array(ops.add(ones, column))[0] != ones[0] + column).any()
    assert (array(ops.convert_to_tensor(ones) + column)[0] == ones[0] + column).all()
