"""Multi-head attention: two words by hand, references, masks of every kind, NaN, precision."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import MultiHeadAttention
from keras_transformer.layers.attention import (
    attention_with_weights,
    visible_slots,
)
from keras_transformer.masking import causal_mask, local_mask, mark_visible
from tests.backends import (
    BACKEND,
    POLICIES,
    array,
    compiled,
    gradients,
    has_mask,
    mask_of,
    normal,
    randomise,
    with_mask,
)
from tests.layers.blocks import BATCH, D_MODEL, HEADS, KEY_DIM, SOURCE, TARGET
from tests.numpy_reference import multi_head_attention, softmax
from tests.selection import spread

QUERY, MEMORY = normal(1, BATCH, TARGET, D_MODEL), normal(2, BATCH, SOURCE, D_MODEL)
RANDOM = np.random.default_rng(3)
ATTENTION_MASK = RANDOM.random((BATCH, TARGET, SOURCE)) < 0.6
ATTENTION_MASK[:, :, 0] = True
MEMORY_MASK = np.arange(SOURCE)[None] < [[5], [2]]
QUERY_MASK = np.arange(TARGET)[None] < [[3], [7]]


def built(query_width=D_MODEL, memory_width=D_MODEL, **arguments):
    layer = MultiHeadAttention(HEADS, KEY_DIM, **arguments)
    layer.build((None, None, query_width), (None, None, memory_width))
    return randomise(layer)


def reference(layer, query, memory, allowed):
    """The paper's formula, sentence by sentence; `allowed` is (batch, query, key)."""
    flat = layer.get_weights()
    weights = list(zip(flat[::2], flat[1::2], strict=True))
    return np.stack(
        [
            multi_head_attention(weights, query[row], memory[row], memory[row], allowed[row])
            for row in range(len(query))
        ]
    )


@pytest.mark.parametrize(("window", "causal"), [(None, True), (0, True), (2, True), (2, False)])
def test_a_block_and_a_step_see_what_the_masks_of_whole_rows_allow(window, causal):
    expected = np.ones((1, SOURCE, SOURCE), bool)
    if causal:
        expected = expected & array(causal_mask(SOURCE))
    if window is not None:
        expected = expected & array(local_mask(SOURCE, window))
    positions = np.arange(SOURCE)
    visible = mark_visible(positions[:, None] - positions, window, causal=causal)
    assert (visible == expected[0]).all()
    if not causal:
        return
    for index in range(SOURCE):
        slots = array(visible_slots(ops.convert_to_tensor(index), SOURCE, window))
        assert slots.shape == (1, 1, 1, SOURCE)
        assert (slots[0, 0, 0] == expected[0, index]).all()


# --- Two words by hand: "are" = [1, 1], "you" = [2, 1], and the identity as every projection.

ARE, YOU = np.array([1.0, 1.0]), np.array([2.0, 1.0])
# `are . are = 1 + 1 = 2`, `are . you = 2 + 1 = 3`, `you . you = 4 + 1 = 5`
SCORES = np.array([[2.0, 3.0], [3.0, 5.0]])


def self_attention_by_hand(root):
    """For the root 1.4: scores [[1.4286, 2.1429], [2.1429, 3.5714]].

    "are" weighs itself `1 / (1 + e ** (1 / 1.4)) = 1 / (1 + e ** 0.7143) = 0.3287`, "you" 0.6713.
    "you" weighs "are" `1 / (1 + e ** (2 / 1.4)) = 1 / (1 + e ** 1.4286) = 0.1933`, itself 0.8067.
    Outputs: are = 0.3287 * [1, 1] + 0.6713 * [2, 1] = [1.6713, 1], you = [1.8067, 1].
    """
    weights = softmax(SCORES / root)
    return weights, weights @ np.stack([ARE, YOU])


def test_the_two_word_exercise_with_the_root_taken_as_1_4():
    weights, outputs = self_attention_by_hand(1.4)
    np.testing.assert_allclose(weights, [[0.3287, 0.6713], [0.1933, 0.8067]], atol=5e-5)
    np.testing.assert_allclose(outputs, [[1.6713, 1.0], [1.8067, 1.0]], atol=5e-5)
    # The function divides by the exact root: a query of sqrt(2) / 1.4 its size undoes that.
    words = np.stack([ARE, YOU])[None, :, None].astype("float32")  # -> (1, 2 words, 1 head, 2)
    queries = words * np.float32(np.sqrt(2) / 1.4)
    context, found = attention_with_weights(*map(ops.convert_to_tensor, (queries, words, words)))
    np.testing.assert_allclose(array(found)[0, 0], weights, atol=1e-6)
    np.testing.assert_allclose(array(context)[0, :, 0], outputs, atol=1e-6)


def test_the_two_word_exercise_with_the_exact_root():
    # "are" weighs itself `1 / (1 + e ** (1 / 1.41421)) = 1 / (1 + e ** 0.70711) = 0.3302`,
    # "you" weighs "are" `1 / (1 + e ** 1.41421) = 0.1956`.
    weights, outputs = self_attention_by_hand(np.sqrt(2))
    np.testing.assert_allclose(weights, [[0.3302, 0.6698], [0.1956, 0.8044]], atol=5e-5)
    words = ops.convert_to_tensor(np.stack([ARE, YOU])[None, :, None].astype("float32"))
    context, found = attention_with_weights(words, words, words)
    np.testing.assert_allclose(array(found)[0, 0], weights, atol=1e-6)
    np.testing.assert_allclose(array(context)[0, :, 0], outputs, atol=1e-6)


def test_the_two_word_exercise_through_the_layer_with_identity_projections():
    layer = MultiHeadAttention(num_heads=1, key_dim=2, use_bias=False)
    words = np.stack([ARE, YOU])[None].astype("float32")
    layer.build(words.shape, words.shape)
    identity = np.eye(2)
    layer.set_weights([identity.reshape(weight.shape) for weight in layer.get_weights()])
    weights, outputs = self_attention_by_hand(np.sqrt(2))
    output, found = layer(words, words, return_attention_scores=True)
    np.testing.assert_allclose(array(found)[0, 0], weights, atol=1e-6)
    np.testing.assert_allclose(array(output)[0], outputs, atol=1e-6)
    # Causal: "are" sees itself alone and stays [1, 1]; "you" is as before.
    causal = array(layer(words, words, use_causal_mask=True))[0]
    np.testing.assert_allclose(causal, [[1.0, 1.0], outputs[1]], atol=1e-6)


# --- References.


@pytest.mark.parametrize("value_dim", [None, 2])
def test_equals_the_formula_of_the_paper(value_dim):
    layer = built(memory_width=13, value_dim=value_dim, output_dim=17)
    memory = normal(4, BATCH, SOURCE, 13)
    output = array(layer(QUERY, memory, attention_mask=ATTENTION_MASK))
    assert output.shape == (BATCH, TARGET, 17)
    expected = reference(layer, QUERY, memory, ATTENTION_MASK)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_all_masks_together_equal_one_mask_of_what_all_allow():
    layer = built()
    key_mask = np.arange(SOURCE)[None] > [[0], [-1]]
    masks = {"attention_mask": ATTENTION_MASK, "value_mask": MEMORY_MASK, "key_mask": key_mask}
    query, memory = map(ops.convert_to_tensor, (QUERY, MEMORY))
    output, weights = layer(query, memory, memory, **masks, return_attention_scores=True)
    allowed = ATTENTION_MASK & MEMORY_MASK[:, None] & key_mask[:, None]
    one, one_weights = layer(query, memory, attention_mask=allowed, return_attention_scores=True)
    np.testing.assert_allclose(array(output), array(one), atol=1e-6)
    np.testing.assert_allclose(array(weights), array(one_weights), atol=1e-6)
    assert (array(weights)[~np.broadcast_to(allowed[:, None], weights.shape)] == 0).all()


LAYERS, CALLS = (list(itertools.product([False, True], repeat=n)) for n in (2, 3))


@pytest.mark.parametrize(("call", "layer"), spread(CALLS, LAYERS))
def test_equals_keras_multi_head_attention(call, layer):
    (masked, causal, with_scores), (narrow, use_bias) = call, layer
    arguments = {"value_dim": 2 if narrow else None, "use_bias": use_bias}
    ours = built(**arguments)
    # On JAX Keras's fused path fails when values are narrower than keys; any dropout, also at
    # inference, turns that path off.
    dropout = 0.1 if narrow and BACKEND == "jax" else 0.0
    theirs = keras.layers.MultiHeadAttention(HEADS, KEY_DIM, dropout=dropout, **arguments)
    memory = normal(5, BATCH, TARGET, D_MODEL)
    theirs.build((None, None, D_MODEL), (None, None, D_MODEL))
    theirs.set_weights(ours.get_weights())
    mask = np.random.default_rng(6).random((BATCH, TARGET, TARGET)) < 0.5
    mask |= np.eye(TARGET, dtype=bool)  # no query without a key: there the two differ
    call = {
        "attention_mask": mask if masked else None,
        "use_causal_mask": causal,
        "return_attention_scores": with_scores,
    }
    found, expected = ours(QUERY, memory, **call), theirs(QUERY, memory, **call)
    if not with_scores:
        found, expected = (found,), (expected,)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(array(mine), array(other), atol=1e-5)


def test_symbolic_scores_have_the_shape_of_real_ones():
    query, memory = keras.Input((TARGET, D_MODEL)), keras.Input((SOURCE, D_MODEL))
    output, weights = MultiHeadAttention(HEADS, KEY_DIM)(
        query, memory, return_attention_scores=True
    )
    assert weights.shape == (None, HEADS, TARGET, SOURCE)
    assert output.shape == (None, TARGET, D_MODEL)
    found = keras.Model([query, memory], [output, weights])([QUERY, MEMORY])
    assert found[1].shape == (BATCH, HEADS, TARGET, SOURCE)


# --- Masks.


def test_asking_for_scores_does_not_change_the_output():
    layer = built()
    mask = ATTENTION_MASK.copy()
    mask[0, 4] = False
    plain = layer(QUERY, MEMORY, attention_mask=mask)
    output, _ = layer(QUERY, MEMORY, attention_mask=mask, return_attention_scores=True)
    np.testing.assert_allclose(array(plain), array(output), atol=1e-6)
    assert (array(plain)[0, 4] == 0).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("use_bias", [True, False])
def test_a_query_with_nothing_to_attend_to_gives_exactly_0(policy, use_bias):
    layer = built(use_bias=use_bias, dtype=policy)
    mask = ATTENTION_MASK.copy()
    mask[0, 4], mask[1] = False, False
    output, weights = layer(QUERY, MEMORY, attention_mask=mask, return_attention_scores=True)
    assert (array(output)[~mask.any(axis=-1)] == 0).all()
    assert (array(output)[mask.any(axis=-1)] != 0).all()
    assert (array(weights)[0, :, 4] == 0).all()
    assert np.isfinite(array(output)).all()


def test_a_query_masked_itself_gives_exactly_0_and_its_mask_is_the_outputs():
    layer = built()
    output = layer(QUERY, MEMORY, query_mask=QUERY_MASK)
    assert (array(output)[~QUERY_MASK] == 0).all()
    assert (array(output)[QUERY_MASK] != 0).all()
    assert (array(mask_of(output)) == QUERY_MASK).all()
    assert not has_mask(layer(ops.convert_to_tensor(QUERY), ops.convert_to_tensor(MEMORY)))


def test_gradients_are_finite_where_a_query_has_nothing_to_attend_to():
    layer = built()
    mask = ATTENTION_MASK.copy()
    mask[0, 4], mask[1] = False, False

    def loss(query, memory):
        return ops.sum(ops.square(layer(query, memory, attention_mask=mask)))

    by_input, by_weight = gradients(loss, [QUERY, MEMORY], layer)
    assert all(np.isfinite(gradient).all() for gradient in by_input + by_weight)
    assert (by_input[0][~mask.any(axis=-1)] == 0).all()
    assert (by_input[1][1] == 0).all()
    assert all((gradient != 0).any() for name, gradient in zip_names(layer, by_weight))


def zip_names(layer, found):
    """Leaves out the keys' bias: it adds the same to all scores of a query, which changes none."""
    pairs = zip(layer.trainable_variables, found, strict=True)
    return [(v.path, g) for v, g in pairs if not v.path.endswith("key/bias")]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_at_a_key_that_a_query_may_not_attend_to_does_not_reach_it(bad):
    layer = built()
    spoilt = MEMORY.copy()
    spoilt[0, 3], spoilt[1, 1] = bad, bad
    masked = ATTENTION_MASK.copy()
    masked[0, :6, 3], masked[0, 6:, 3], masked[1, :, 1] = False, True, False
    expected = array(layer(QUERY, MEMORY, attention_mask=masked))
    output = array(layer(QUERY, spoilt, attention_mask=masked))
    np.testing.assert_allclose(output[0, :6], expected[0, :6], atol=1e-6)
    np.testing.assert_allclose(output[1], expected[1], atol=1e-6)
    assert not np.isfinite(output[0, 6:]).any()  # who may attend to it is told


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_in_the_future_does_not_reach_the_past(bad):
    layer = built()
    spoilt = QUERY.copy()
    spoilt[:, 5:] = bad
    call = {"use_causal_mask": True}
    expected = array(layer(QUERY, QUERY, **call))
    output = array(layer(QUERY, spoilt, **call))
    np.testing.assert_allclose(output[:, :5], expected[:, :5], atol=1e-6)


def test_nan_at_a_key_that_no_query_may_attend_to_reaches_no_gradient():
    layer = built()
    spoilt, masked = MEMORY.copy(), ATTENTION_MASK.copy()
    spoilt[:, 3], masked[:, :, 3] = np.nan, False

    def loss(memory):
        output = layer(ops.convert_to_tensor(QUERY), memory, attention_mask=masked)
        return ops.sum(ops.square(output))

    (gradient,), by_weight = gradients(loss, [spoilt], layer)
    assert (gradient[:, 3] == 0).all()
    assert all(np.isfinite(g).all() for g in [gradient, *by_weight])
    (clean,), clean_by_weight = gradients(loss, [MEMORY], layer)
    for found, expected in zip([gradient, *by_weight], [clean, *clean_by_weight], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_mask_for_each_head():
    layer = built()
    per_head = np.random.default_rng(7).random((BATCH, HEADS, TARGET, SOURCE)) < 0.6
    _, weights = layer(QUERY, MEMORY, attention_mask=per_head, return_attention_scores=True)
    assert (array(weights)[~per_head] == 0).all()
    assert (array(weights)[per_head] > 0).all()


@pytest.mark.parametrize("shape", [(BATCH, SOURCE), (SOURCE,), (1, 1, 1, TARGET, SOURCE)])
def test_an_attention_mask_of_the_wrong_rank_is_refused_with_its_shape_and_the_fix(shape):
    with pytest.raises(ValueError, match=r"mask\[:, None, :\]") as caught:
        built()(QUERY, MEMORY, attention_mask=np.ones(shape, bool))
    assert f"attention_mask of shape {shape}" in str(caught.value)


@pytest.mark.parametrize("name", ["attention_mask", "query_mask", "value_mask", "key_mask"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_mask_of_floats_is_refused_with_the_fix(name, dtype):
    lengths = {"attention_mask": (TARGET, SOURCE), "query_mask": (TARGET,)}
    mask = ops.ones((BATCH, *lengths.get(name, (SOURCE,))), dtype)
    query, memory = map(ops.convert_to_tensor, (QUERY, MEMORY))
    with pytest.raises(ValueError, match=f"mask == 0(.|\n)*mask != 0(.|\n)*dtype {dtype}"):
        built()(query, memory, **{name: mask})


def test_carried_masks_and_a_given_attention_mask_are_combined():
    layer = built()
    query = with_mask(ops.convert_to_tensor(QUERY), ops.convert_to_tensor(QUERY_MASK))
    memory = with_mask(ops.convert_to_tensor(MEMORY), ops.convert_to_tensor(MEMORY_MASK))
    output = array(layer(query, memory, attention_mask=ATTENTION_MASK))
    allowed = ATTENTION_MASK & MEMORY_MASK[:, None] & QUERY_MASK[:, :, None]
    expected = array(layer(QUERY, MEMORY, attention_mask=allowed))
    np.testing.assert_allclose(output, expected, atol=1e-6)


def test_a_causal_query_reads_another_sequence_up_to_its_own_position():
    layer = built()
    _, weights = layer(QUERY, MEMORY, use_causal_mask=True, return_attention_scores=True)
    allowed = np.broadcast_to(np.tri(TARGET, SOURCE, dtype=bool), weights.shape)
    assert ((array(weights) > 0) == allowed).all()


def test_a_causal_layer_compiled_once_for_any_length():
    layer = built()
    run = compiled(lambda query: layer(query, query, use_causal_mask=True), [QUERY])
    longer = array(run(QUERY))
    np.testing.assert_allclose(array(run(QUERY[:, :5])), longer[:, :5], atol=1e-6)
    assert np.abs(array(run(QUERY[:, 1:])) - longer[:, 1:]).max() > 1e-3


@pytest.mark.parametrize("masked", [False, True])
def test_a_single_key_needs_no_warning(masked):
    layer, mask = built(), np.full((BATCH, 1, 1), not masked)
    output, weights = layer(
        QUERY[:, :1], MEMORY[:, :1], attention_mask=mask, return_attention_scores=True
    )
    assert (array(weights) == (0.0 if masked else 1.0)).all()
    assert (array(output) != 0).all() != masked


# --- Precision.


@pytest.mark.parametrize("policy", POLICIES)
def test_weights_are_float32_and_sum_to_1_under_every_policy(policy):
    layer = built(dtype=policy)
    _, weights = layer(QUERY, MEMORY, return_attention_scores=True)
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    np.testing.assert_allclose(array(weights).sum(-1), 1.0, atol=1e-6)


@pytest.mark.parametrize("policy", POLICIES[1:])
def test_large_activations_and_masks_give_no_nan_in_half_precision(policy):
    # q . k of two vectors of 64 numbers of the size of 30 is up to `64 * 900 = 57600`. The range of
    # float16 ends at 65504, and an added mask of -1e9 would be -inf in it.
    words = ops.convert_to_tensor(np.full((1, 5, 1, 64), 30.0, "float32"))
    words = ops.cast(words, policy.removeprefix("mixed_"))
    mask = np.tri(5, dtype=bool)[None, None]
    mask[..., 0, :] = False
    context, weights = attention_with_weights(words, words, words, mask)
    np.testing.assert_allclose(array(context)[0, 1:], 30.0, atol=0.25)
    assert (array(context)[0, 0] == 0).all()
    np.testing.assert_allclose(array(weights)[0, 0, 4], 0.2, atol=1e-6)


def test_dropout_drops_weights_and_scales_the_rest():
    layer = MultiHeadAttention(num_heads=1, key_dim=1, use_bias=False, dropout=0.5)
    ones = np.ones((1, 1, 1), "float32")
    memory = np.ones((1, 20_011, 1), "float32")
    layer.build(ones.shape, memory.shape)
    layer.set_weights([np.ones(weight.shape) for weight in layer.get_weights()])
    # Each weight is 1 / 20011, kept and doubled with chance 1/2: the sum is 1 up to 0.0071.
    output, weights = layer(ones, memory, training=True, return_attention_scores=True)
    assert array(output).item() == pytest.approx(1.0, abs=0.05)
    assert array(output).item() != 1.0
    np.testing.assert_allclose(array(weights), 1 / 20_011, rtol=1e-4)  # before dropout
    assert array(layer(ones, memory)).item() == pytest.approx(1.0, abs=1e-4)


def test_projections_start_with_the_variance_of_the_whole_matrix():
    # Glorot: 2 / (fan_in + fan_out) of the matrices (width, heads * dim) and (heads * dim, width).
    keras.utils.set_random_seed(1)
    layer = MultiHeadAttention(num_heads=8, key_dim=16, value_dim=32)
    layer.build((None, None, 96), (None, None, 160))
    expected = {"query": (96, 128), "key": (160, 128), "value": (160, 256)}
    expected["attention_output"] = (256, 96)
    kernels = {
        weight.path.split("/")[-2]: weight for weight in layer.weights if "kernel" in weight.path
    }
    assert kernels.keys() == expected.keys()
    for name, fans in expected.items():
        np.testing.assert_allclose(array(kernels[name]).std(), np.sqrt(2 / sum(fans)), rtol=0.03)
