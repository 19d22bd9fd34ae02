"""What lectures say of the Transformer: order blindness, rotations, and why scores are scaled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformer.layers import Encoder, PositionalEncoding
from keras_transformer.layers.attention import attention_with_weights
from tests.backends import array, normal, randomise

LENGTH, D_MODEL = 7, 15
ENCODER_ARGUMENTS = {"num_layers": 2, "num_heads": 3, "d_ff": 13}
# No word stays where it is, and no two merely change places.
ORDER = np.array([3, 0, 6, 1, 5, 2, 4])


@pytest.mark.parametrize("norm_first", [False, True])
def test_without_positions_the_encoder_does_not_know_the_order_of_words(norm_first):
    encoder = Encoder(**ENCODER_ARGUMENTS, norm_first=norm_first)
    encoder.build((None, LENGTH, D_MODEL))
    randomise(encoder, scale=0.5)
    words = normal(1, 2, LENGTH, D_MODEL)
    # Permuting the input permutes the output alike, and does nothing else.
    permuted = array(encoder(words[:, ORDER]))
    np.testing.assert_allclose(permuted, array(encoder(words))[:, ORDER], atol=1e-5)
    # With positions the same words in another order are another sentence.
    positions = PositionalEncoding()
    in_order, shuffled = (array(encoder(positions(x))) for x in (words, words[:, ORDER]))
    assert np.abs(shuffled - in_order[:, ORDER]).max() > 0.1


def encoding_rows(length, d_model):
    layer = PositionalEncoding()
    layer.build((None, None, d_model))
    return array(layer.encoding(length)).astype("float64")


def shift(k, d_model):
    """The matrix M with PE[pos + k] = M PE[pos]: a rotation of each pair by k times its frequency.

    sin(a + b) = cos(b) sin(a) + sin(b) cos(a), cos(a + b) = -sin(b) sin(a) + cos(b) cos(a)
    """
    matrix = np.zeros((d_model, d_model))
    for pair in range(0, d_model, 2):
        angle = k / 10000.0 ** (pair / d_model)
        block = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        matrix[pair : pair + 2, pair : pair + 2] = block
    return matrix


@given(k=st.integers(1, 500), d_model=st.sampled_from([2, 6, 64]))
def test_a_shift_by_k_positions_is_one_linear_map_wherever_it_starts(k, d_model):
    rows = encoding_rows(1009, d_model)
    np.testing.assert_allclose(rows[k:], rows[:-k] @ shift(k, d_model).T, atol=1e-6)


def test_the_product_of_two_positions_depends_on_their_distance_alone():
    rows = encoding_rows(211, 64)
    products = rows @ rows.T
    for distance in (0, 1, 17, 100):
        along = np.diagonal(products, distance)
        np.testing.assert_allclose(along, along[0], atol=1e-5)
    # Each of the 32 pairs has sin^2 + cos^2 = 1.
    assert products[0, 0] == pytest.approx(32.0)
    assert products[0, 1] < products[0, 0]


@pytest.mark.parametrize("d_k", [4, 16, 64, 256])
def test_the_variance_of_a_score_grows_with_the_width_and_scaling_undoes_it(d_k):
    queries, keys = normal(2, 4001, 1, 1, d_k), normal(3, 4001, 2, 1, d_k)
    products = np.einsum("bqhd,bkhd->bqk", queries, keys)
    # q . k is a sum of d_k products of variance 1. The relative standard error of a variance of
    # 8002 samples is about `sqrt(2 / 8002) = 0.016`, and more for the heavy tails at d_k = 4.
    assert np.var(products) == pytest.approx(d_k, rel=0.15)
    _, weights = attention_with_weights(
        *(ops.convert_to_tensor(x.astype("float64")) for x in (queries, keys, keys))
    )
    # log(w1 / w2) is the difference of two scaled scores: variance 1 + 1, whatever d_k.
    weights = array(weights)[:, 0, 0].astype("float64")
    difference = np.log(weights[:, 0]) - np.log(weights[:, 1])
    assert np.var(difference) == pytest.approx(2.0, rel=0.15)


def test_unscaled_scores_of_wide_heads_leave_the_softmax_almost_one_hot():
    queries, keys = normal(4, 101, 1, 1, 256), normal(5, 101, 11, 1, 256)
    _, scaled = attention_with_weights(*map(ops.convert_to_tensor, (queries, keys, keys)))
    # A query sqrt(256) = 16 times as long undoes the scaling.
    _, unscaled = attention_with_weights(*map(ops.convert_to_tensor, (16 * queries, keys, keys)))
    assert array(unscaled).max(axis=-1).mean() > 0.85
    assert array(scaled).max(axis=-1).mean() < 0.5
