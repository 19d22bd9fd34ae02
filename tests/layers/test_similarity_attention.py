"""SimilarityAttention: each similarity by its formula, and what masks promise."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import SimilarityAttention
from keras_transformer.layers.similarity_attention import SIMILARITIES
from tests.backends import POLICIES, array, gradients, normal
from tests.numpy_reference import softmax
from tests.selection import spread

QUERY, MEMORY = normal(1, 2, 3, 4), normal(2, 2, 5, 4)
MASK = np.array([[True] * 5, [True, False, True, False, False]])


def made(similarity, **options):
    keras.utils.set_random_seed(3)
    layer = SimilarityAttention(similarity, **options)
    layer.build(QUERY.shape, MEMORY.shape)
    for weight in layer.weights:
        weight.assign(normal(4, *weight.shape) if len(weight.shape) else 1.7)
    return layer


def both(layer, query, memory, **options):
    """The context and the weights."""
    return layer(query, memory, return_attention_scores=True, **options)


def by_formula(layer, query, state):
    weights = {weight.name: array(weight) for weight in layer.weights}
    if layer.similarity == "dot":
        return query @ state
    if layer.similarity == "scaled_dot":
        return query @ state / 2.0  # sqrt(4)
    if layer.similarity == "cosine":
        return 1.7 * (query @ state) / np.linalg.norm(query) / np.linalg.norm(state)
    if layer.similarity == "general":
        return query @ weights["query_kernel"] @ state
    hidden = np.tanh(query @ weights["query_kernel"] + state @ weights["memory_kernel"])
    return hidden @ weights["vector"][:, 0]


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_weights_and_context_are_those_of_the_formula(similarity):
    layer = made(similarity)
    context, weights = map(array, both(layer, QUERY, MEMORY, memory_mask=MASK))
    for row in range(2):
        states = MEMORY[row][MASK[row]]
        for place in range(3):
            scores = [by_formula(layer, QUERY[row, place], state) for state in states]
            expected = softmax(np.array(scores))
            np.testing.assert_allclose(weights[row, place][MASK[row]], expected, atol=1e-5)
            np.testing.assert_allclose(context[row, place], expected @ states, atol=1e-5)
    assert (weights[1][:, ~MASK[1]] == 0).all()


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_what_is_masked_reaches_nothing(similarity):
    layer, spoilt = made(similarity), MEMORY.copy()
    spoilt[1, [1, 3, 4]] = np.nan
    context, weights = map(array, both(layer, QUERY, MEMORY, memory_mask=MASK))
    again, same = map(array, both(layer, QUERY, spoilt, memory_mask=MASK))
    np.testing.assert_array_equal(context, again)
    np.testing.assert_array_equal(weights, same)
    none = np.zeros_like(MASK)
    context, weights = map(array, both(layer, QUERY, MEMORY, memory_mask=none))
    assert (context == 0).all()
    assert (weights == 0).all()


@pytest.mark.parametrize(
    ("similarity", "policy", "hidden"), spread(SIMILARITIES, POLICIES, [0.0, np.nan])
)
def test_gradients_are_finite_whatever_is_masked(similarity, policy, hidden):
    layer, memory = made(similarity, dtype=policy), MEMORY.copy()
    mask = np.array([MASK[1], [False] * 5])
    memory[~mask] = hidden

    def summed(query, memory):
        context, weights = both(layer, query, memory, memory_mask=mask)
        squares = ops.sum(ops.square(ops.cast(context, "float32")))
        return squares + ops.sum(ops.square(weights))

    by_input, by_weight = gradients(summed, [QUERY, memory], layer)
    assert all(np.isfinite(gradient).all() for gradient in (*by_input, *by_weight))
    assert all(np.abs(gradient[0]).max() > 1e-3 for gradient in by_input)
    assert (by_input[1][~mask] == 0).all()


@pytest.mark.parametrize("similarity", ["dot", "additive"])
def test_a_memory_of_one_state_needs_no_warning(similarity):
    """Keras warns of a softmax over one number, which a source of one token is."""
    layer, memory = made(similarity), MEMORY[:, :1]
    for mask, expected in ((None, [1, 1]), (np.array([[True], [False]]), [1, 0])):
        context, weights = map(array, both(layer, QUERY, memory, memory_mask=mask))
        wanted = np.broadcast_to(np.reshape(expected, (2, 1, 1)), (2, 3, 1))
        np.testing.assert_array_equal(weights, wanted)
        np.testing.assert_array_equal(context, wanted * memory)


def test_a_state_of_zeros_is_like_nothing():
    memory = MEMORY.copy()
    memory[:, 2] = 0
    (by_query,), _ = gradients(
        lambda query: ops.sum(ops.square(made("cosine")(query, memory))), [QUERY]
    )
    assert np.isfinite(by_query).all()
    _, weights = map(array, both(made("cosine"), np.zeros_like(QUERY), memory))
    np.testing.assert_allclose(weights, 0.2, atol=1e-6)  # every similarity is 0


def test_widths_must_agree_where_the_formula_needs_it():
    with pytest.raises(ValueError, match="queries as wide as the memory. Received: widths 3 and 4"):
        SimilarityAttention("dot")(ops.ones((1, 2, 3)), ops.ones((1, 5, 4)))
    context = SimilarityAttention("additive")(ops.ones((1, 2, 3)), ops.ones((1, 5, 4)))
    assert tuple(context.shape) == (1, 2, 4)


def test_a_call_gives_one_tensor_and_the_weights_on_request():
    context = made("dot")(QUERY, MEMORY)
    again, weights = both(made("dot"), QUERY, MEMORY)
    np.testing.assert_array_equal(array(context), array(again))
    assert tuple(weights.shape) == (2, 3, 5)


def test_a_float_mask_and_an_unknown_name_are_refused():
    with pytest.raises(ValueError, match="`memory_mask` must be boolean"):
        made("dot")(QUERY, MEMORY, memory_mask=MASK.astype("float32"))
    with pytest.raises(ValueError, match="`similarity` must be one of"):
        SimilarityAttention("euclid")


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_an_integer_mask_counts_as_a_boolean_one(dtype):
    layer = made("additive")
    wanted = layer(QUERY, MEMORY, memory_mask=MASK)
    found = layer(QUERY, MEMORY, memory_mask=MASK.astype(dtype))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(array(one), array(other))
