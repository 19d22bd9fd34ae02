"""R-drop: the loss of two draws of the dropout and of how far their predictions are apart."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import MaskedCrossentropy, Transformer
from keras_transformer.losses import symmetric_divergence
from tests.backends import BACKEND, array, gradients, normal
from tests.numpy_reference import log_softmax

SIZE = dict(vocab_size=13, num_layers=1, d_model=8, num_heads=2, d_ff=16)
SOURCE = np.array([[5, 6, 3], [7, 3, 0]], "int32")
TARGET = np.array([[2, 8, 9, 10], [2, 11, 0, 0]], "int32")
LABELS = np.array([[8, 9, 10, 3], [11, 3, 0, 0]], "int32")
BATCH = ((SOURCE, TARGET), LABELS)


def divergence_by_definition(first, second):
    log_p, log_q = log_softmax(first.astype("float64")), log_softmax(second.astype("float64"))
    forward = np.sum(np.exp(log_p) * (log_p - log_q), axis=-1)
    return forward + np.sum(np.exp(log_q) * (log_q - log_p), axis=-1)


def compiled_model(loss=None, **options):
    keras.utils.set_random_seed(3)
    model = Transformer(**SIZE, **options)
    loss = loss or MaskedCrossentropy(label_smoothing=0.1)
    model.compile("sgd", loss, run_eagerly=BACKEND != "jax")
    model.build()
    return model


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.0, 20.0))
def test_divergence_is_both_kullback_leibler_divergences(seed, scale):
    first, second = normal(seed, 2, 3, 5, scale=scale), normal(seed + 1, 2, 3, 5, scale=scale)
    found = array(symmetric_divergence(first, second))
    expected = divergence_by_definition(first, second)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found, array(symmetric_divergence(second, first)), rtol=1e-5)


def test_divergence_by_hand():
    # p = (1/2, 1/2), q = (1/5, 4/5): (0.3) log(5/2) + (-0.3) log(5/8) = 0.3 log 4.
    first, second = np.log([[[1.0, 1.0]]]), np.log([[[1.0, 4.0]]])
    found = array(symmetric_divergence(first.astype("float32"), second.astype("float32")))
    np.testing.assert_allclose(found, [[0.3 * np.log(4)]], rtol=1e-5)


def test_gradient_of_the_divergence_is_that_of_its_definition():
    first, second = normal(1, 2, 4, 6, scale=2.0), normal(2, 2, 4, 6, scale=2.0)
    weights, step = normal(3, 2, 4), 1e-4

    def total(first, second):
        return ops.sum(ops.multiply(symmetric_divergence(first, second), weights))

    found, _ = gradients(total, [first, second])
    for which, gradient in enumerate(found):
        for place in [(0, 0, 0), (0, 3, 5), (1, 2, 4)]:
            changed = [first.astype("float64"), second.astype("float64")]
            values = []
            for change in (step, -2 * step):
                changed[which][place] += change
                values.append(np.sum(divergence_by_definition(*changed) * weights))
            by_differences = (values[0] - values[1]) / (2 * step)
            assert gradient[place] == pytest.approx(by_differences, rel=1e-3, abs=1e-4)


def test_padding_has_no_divergence_and_no_gradient_whatever_its_logits():
    first, second = normal(1, 1, 3, 4), normal(2, 1, 3, 4)
    first[:, 2], second[:, 1:] = np.nan, np.inf
    mask = np.array([[True, False, False]])

    def total(first, second):
        return ops.sum(symmetric_divergence(first, second, mask))

    expected = divergence_by_definition(first[:, :1], second[:, :1])
    assert float(array(total(first, second))) == pytest.approx(expected.item(), rel=1e-4)
    for gradient in gradients(total, [first, second])[0]:
        assert np.any(gradient[:, 0])
        assert not np.any(gradient[:, 1:])


@pytest.mark.parametrize("reduction", ["mean", pytest.param("sum", marks=pytest.mark.slow)])
def test_loss_is_that_of_two_draws_and_of_their_divergence(reduction):
    weights = np.array([[1.0, 0.5, 2.0, 1.0], [3.0, 1.0, 1.0, 1.0]], "float32")
    loss = MaskedCrossentropy(label_smoothing=0.1, reduction=reduction)
    model = compiled_model(loss, r_drop=3.0, dropout=0.4)
    first, second = (array(model(BATCH[0], training=True)) for _ in range(2))
    again = compiled_model(loss, r_drop=3.0, dropout=0.4)  # the same seeds: the same two draws
    drawn = again(BATCH[0], training=True)
    np.testing.assert_array_equal(array(drawn), first)
    found = again.compute_loss(*BATCH, drawn, weights)
    real = weights * (LABELS != 0)
    divisor = real.sum() if reduction == "mean" else 1.0
    expected = sum(float(array(loss(LABELS, logits, weights))) for logits in (first, second)) / 2
    apart = np.where(LABELS != 0, divergence_by_definition(first, second), 0)
    assert np.sum(apart) > 0.01
    expected += 3.0 / 4 * np.sum(real * apart) / divisor
    assert float(array(found)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_without_dropout_or_in_evaluation_it_changes_nothing():
    plain, r_drop = compiled_model(dropout=0.0), compiled_model(dropout=0.0, r_drop=5.0)
    losses = [model.fit(*BATCH, verbose=0).history["loss"][0] for model in (plain, r_drop)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for first, second in zip(plain.get_weights(), r_drop.get_weights(), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)
    plain, r_drop = compiled_model(dropout=0.5), compiled_model(dropout=0.5, r_drop=5.0)
    losses = [model.test_on_batch(*BATCH) for model in (plain, r_drop)]
    assert float(losses[0]) == float(losses[1])


@pytest.mark.slow
def test_fit_brings_the_two_draws_together():
    ids = np.random.default_rng(0).integers(4, 13, size=(64, 6)).astype("int32")
    batch = ((ids, np.pad(ids, [(0, 0), (1, 0)], constant_values=2)[:, :-1]), ids)
    apart = {}
    for weight in (0.0, 20.0):
        keras.utils.set_random_seed(1)
        model = Transformer(**SIZE, dropout=0.3, r_drop=weight)
        model.compile(keras.optimizers.Adam(0.01), MaskedCrossentropy())
        model.fit(*batch, epochs=30, batch_size=32, verbose=0)
        draws = [array(model(batch[0], training=True)) for _ in range(2)]
        apart[weight] = np.mean(divergence_by_definition(*draws))
    assert apart[20.0] < apart[0.0] / 3, apart


def test_another_loss_and_a_bad_weight_raise():
    model = compiled_model(keras.losses.SparseCategoricalCrossentropy(), r_drop=1.0)
    with pytest.raises(ValueError, match=r"must be compiled with `MaskedCrossentropy`.*Received"):
        model.fit(*BATCH, verbose=0)
    with pytest.raises(ValueError, match=r"`r_drop` must be a finite number of at least 0"):
        Transformer(**SIZE, r_drop=-1.0)
