"""The table of docs/attention.md: what Keras's layer does, and what ours does instead.

A test that fails because Keras has mended a fault says that its line of the table can go.
"""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import MultiHeadAttention
from tests.backends import (
    BACKEND,
    array,
    compiled,
    has_mask,
    normal,
    on_tensorflow,
    randomise,
    with_mask,
)
from tests.layers.keras_own_tests import MEANT_TO_FAIL, names

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


def test_the_masks_that_values_carry_are_combined_with_explicit_ones():
    theirs, ours = pair()
    carried, explicit = np.arange(7)[None] < [[4], [7]], np.arange(7)[None] > [[1], [2]]
    for layer, combines in ((theirs, False), (ours, True)):
        memory = [with_mask(ops.convert_to_tensor(MEMORY), ops.convert_to_tensor(carried))]
        memory += [with_mask(memory[0], ops.convert_to_tensor(carried))]
        plain = array(layer(HIDDEN, memory[0]))
        np.testing.assert_allclose(
            plain, array(layer(HIDDEN, MEMORY, value_mask=carried)), atol=1e-6
        )
        both = array(layer(HIDDEN, memory[1], value_mask=explicit))
        used = carried & explicit if combines else explicit
        expected = array(layer(HIDDEN, MEMORY, value_mask=used))
        np.testing.assert_allclose(both, expected, atol=1e-6)


def test_a_mask_of_0_and_1_is_read_as_keras_reads_it():
    theirs, ours = pair()
    allowed = np.random.default_rng(1).random((2, 5, 7)) < 0.6
    numbers = allowed.astype("int32")
    expected = array(theirs(HIDDEN, MEMORY, attention_mask=allowed))
    assert (array(theirs(HIDDEN, MEMORY, attention_mask=numbers)) == expected).all()
    found = array(ours(HIDDEN, MEMORY, attention_mask=numbers))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_mask_without_a_batch_is_refused():
    theirs, ours = pair()
    allowed = np.random.default_rng(1).random((5, 7)) < 0.6
    expected = array(theirs(HIDDEN, MEMORY, attention_mask=np.stack([allowed] * 2)))
    found = array(theirs(HIDDEN, MEMORY, attention_mask=allowed))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(ValueError, match="`attention_mask` must have"):
        ours(HIDDEN, MEMORY, attention_mask=allowed)


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


@pytest.mark.parametrize("scores", [False, True])
def test_nan_at_a_key_that_some_may_see_reaches_them_alone(scores):
    theirs, ours = pair()
    sees = np.ones((2, 5, 7), bool)
    sees[:, 2:, 3] = False  # queries 0 and 1 may see key 3
    spoilt = MEMORY.copy()
    spoilt[:, 3] = np.nan
    reached = []
    for layer in (theirs, ours):
        output = layer(HIDDEN, spoilt, attention_mask=sees, return_attention_scores=scores)
        output = array(output[0] if scores else output)
        reached.append(np.isnan(output).any(axis=(0, 2)).tolist())
    assert reached == [[True] * 5, [True, True, False, False, False]]


@pytest.mark.parametrize("policy", ["float16", "bfloat16"])
def test_scores_are_float32_in_half_precision(policy):
    theirs, ours = pair(dtype=f"mixed_{policy}")
    dtypes = [
        keras.backend.standardize_dtype(
            layer(HIDDEN, MEMORY, return_attention_scores=True)[1].dtype
        )
        for layer in (theirs, ours)
    ]
    assert dtypes == [policy, "float32"]


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


def test_a_window_is_computed_in_blocks(monkeypatch):
    hidden = normal(1, 1, 512, 8)
    theirs = keras.layers.MultiHeadAttention(1, 4, sliding_window=9)
    theirs.build(hidden.shape, hidden.shape)
    ours = MultiHeadAttention.from_keras(theirs)
    scores = []
    fused = ops.dot_product_attention

    def seen(query, key, value, *args, **kwargs):
        scores.append(query.shape[0] * query.shape[1] * key.shape[1])
        return fused(query, key, value, *args, **kwargs)

    for place in ("keras.src.ops.dot_product_attention", "keras.ops.dot_product_attention"):
        monkeypatch.setattr(place, seen)
    expected, found = (array(layer(hidden, hidden)) for layer in (theirs, ours))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # Blocks of 64 meet three of their size.
    assert scores == [512 * 512, 512 * 3 * 64]


def test_a_window_from_keras_stays_in_blocks_when_the_length_is_open(monkeypatch):
    hidden = normal(1, 1, 512, 8)
    theirs = keras.layers.MultiHeadAttention(1, 4, sliding_window=9)
    theirs.build(hidden.shape, hidden.shape)
    ours = MultiHeadAttention.from_keras(theirs)
    keys = []
    fused = ops.dot_product_attention
    monkeypatch.setattr(
        "keras.ops.dot_product_attention",
        lambda q, k, *a, **options: keys.append(k.shape[1]) or fused(q, k, *a, **options),
    )
    compiled(lambda inputs: ours(inputs, inputs), [hidden])(hidden)
    assert keys == [3 * 64]


@pytest.mark.parametrize("window", [None, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_the_method_to_override_is_attend(causal, window):
    class Theirs(keras.layers.MultiHeadAttention):
        def _compute_attention(self, query, key, value, *args, **kwargs):
            return ops.zeros_like(query), None

    class Ours(MultiHeadAttention):
        def attend(self, query, *args, **kwargs):
            return ops.zeros_like(query), None

        def attend_in_blocks(self, query, *args, **kwargs):
            return ops.zeros_like(query)

        def _compute_attention(self, *args, **kwargs):
            raise AssertionError("ours has no such method to override")

    layers = Theirs(2, 4, sliding_window=window and window + 1), Ours(2, 4, window=window)
    for layer in layers:
        output = layer(HIDDEN, HIDDEN, use_causal_mask=causal)
        assert (array(output) == 0).all(), f"{type(layer).__name__} passes the override by"


@pytest.mark.parametrize("option", [{"num_key_value_heads": 1}, {"position": None}])
def test_keras_has_no_shared_heads_and_no_positions(option):
    with pytest.raises((TypeError, ValueError), match=next(iter(option))):
        keras.layers.MultiHeadAttention(2, 4, **option)
    MultiHeadAttention(2, 4, **option)


def test_the_document_counts_the_tests_of_keras():
    # Each one's result is asserted in test_multi_head_attention_keras_own_tests.py; one of those
    # meant to fail is skipped by Keras on TensorFlow.
    document = (Path(__file__).parents[2] / "docs" / "attention.md").read_text(encoding="utf-8")
    passed, skipped, failed = map(
        int, re.search(r"(\d+) tests pass, (\d+) is skipped.*?(\d+) fail", document, re.S).groups()
    )
    assert passed == len(set(names()) - set(MEANT_TO_FAIL))
    assert failed + skipped == len(MEANT_TO_FAIL)
    assert (passed, skipped, failed) == (38, 1, 11)


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
@pytest.mark.parametrize("when", ["constructor", "before the first call"])
def test_a_frozen_layer_is_frozen_in_a_model_around_it(when):
    hidden = keras.Input((5, 8))
    for kind, count in ((keras.layers.MultiHeadAttention, 8), (MultiHeadAttention, 0)):
        layer = kind(2, 4, trainable=when != "constructor")
        layer.trainable = False
        model = keras.Model(hidden, layer(hidden, hidden))
        assert len(model.trainable_weights) == count


def test_keras_add_takes_a_column_for_a_bias():
    ones, column = np.zeros((1, 3, 3), "float32"), np.array([[1.0], [2.0], [3.0]], "float32")
    assert (array(ops.add(ones, column))[0] != ones[0] + column).any()
    assert (array(ops.convert_to_tensor(ones) + column)[0] == ones[0] + column).all()
