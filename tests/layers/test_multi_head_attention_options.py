"""MultiHeadAttention as a drop-in for Keras's, and what it has beside it."""

import gc
import itertools
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    ALiBi,
    MultiHeadAttention,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from keras_transformer.layers.attention import SMALLEST_BLOCK
from tests.backends import BACKEND, array, arrays, normal, randomise
from tests.selection import spread

QUERY, MEMORY = normal(1, 2, 5, 8), normal(2, 2, 7, 8)
TWO_BOOLEANS = [*itertools.product([False, True], repeat=2)]
OPTIONS = {
    "plain": {},
    "no bias": {"use_bias": False},
    "value_dim": {"value_dim": 3},
    "output_shape": {"output_shape": 6},
    "output_shape with axes": {"output_shape": (3, 2)},
    "gate": {"use_gate": True},
    "window": {"sliding_window": 2},
    "dropout": {"dropout": 0.3, "seed": 7},
    "initializers": {"kernel_initializer": "he_normal", "bias_initializer": "ones"},
    "regularizers": {"kernel_regularizer": "l2", "bias_regularizer": "l1"},
    "constraints": {"kernel_constraint": "non_neg", "bias_constraint": "max_norm"},
    "all at once": {"use_gate": True, "value_dim": 3, "output_shape": 6, "sliding_window": 3},
}


def keras_layer(**options):
    layer = keras.layers.MultiHeadAttention(2, 4, **options)
    layer.build(QUERY.shape, MEMORY.shape)
    return randomise(layer, scale=0.5)


# --- Weights to and from Keras.


@pytest.mark.parametrize(("name", "call"), spread(OPTIONS, TWO_BOOLEANS))
def test_equals_the_keras_layer_it_was_made_from_and_goes_back(name, call):
    causal, scores = call
    if BACKEND == "jax" and not scores and "value_dim" in OPTIONS[name]:
        pytest.skip("Keras's layer fails on JAX's fused path when value_dim is not key_dim")
    theirs = keras_layer(**OPTIONS[name])
    ours = MultiHeadAttention.from_keras(theirs)
    back = ours.to_keras()
    mask = np.random.default_rng(3).random((2, 5, 7)) < 0.7
    mask[:, :, 0] = True  # no row without any key: Keras averages there
    options = {"use_causal_mask": causal, "return_attention_scores": scores}
    outputs = [
        keras.tree.flatten(layer(QUERY, MEMORY, attention_mask=mask, **options))
        for layer in (theirs, ours, back)
    ]
    for expected, found, returned in zip(*outputs, strict=True):
        np.testing.assert_allclose(array(found), array(expected), atol=1e-6, rtol=1e-6)
        np.testing.assert_allclose(array(returned), array(expected), atol=1e-6, rtol=1e-6)
    assert [w.shape for w in ours.weights] == [w.shape for w in theirs.weights]
    assert len(ours.losses) == len(theirs.losses)


@pytest.mark.parametrize(("key_value_heads", "use_gate"), spread([1, 2, 4], [False, True]))
def test_equals_keras_grouped_attention_and_goes_back(key_value_heads, use_gate):
    theirs = keras.layers.GroupQueryAttention(3, 4, key_value_heads, use_gate=use_gate)
    theirs.build(QUERY.shape, MEMORY.shape)
    randomise(theirs, scale=0.5)
    ours = MultiHeadAttention.from_keras(theirs)
    expected, weights = theirs(QUERY, MEMORY, return_attention_scores=True)
    found, own_weights = ours(QUERY, MEMORY, return_attention_scores=True)
    np.testing.assert_allclose(array(found), array(expected), atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(array(own_weights), array(weights), atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(array(ours(QUERY, MEMORY)), array(expected), atol=1e-6, rtol=1e-6)
    back = ours.to_keras()
    np.testing.assert_allclose(array(back(QUERY, MEMORY)), array(expected), atol=1e-6, rtol=1e-6)


def test_an_unbuilt_layer_converts_to_an_unbuilt_one():
    ours = MultiHeadAttention.from_keras(keras.layers.MultiHeadAttention(2, 4, name="mine"))
    assert not ours.built
    assert ours.name == "mine"
    assert not ours.to_keras().built


def test_what_keras_does_not_have_is_refused():
    with pytest.raises(ValueError, match="no positions of its own"):
        MultiHeadAttention(2, 4, position=ALiBi()).to_keras()
    with pytest.raises(ValueError, match=r"must be a keras\.layers\.MultiHeadAttention"):
        MultiHeadAttention.from_keras(keras.layers.Dense(3))


def test_dropout_draws_from_its_own_seed():
    ours = [MultiHeadAttention(2, 4, dropout=0.5, seed=3) for _ in range(2)]
    for layer in ours:
        layer.build(QUERY.shape, MEMORY.shape)
    ours[1].set_weights(ours[0].get_weights())
    first, second = (array(layer(QUERY, MEMORY, training=True)) for layer in ours)
    assert (first == second).all()


# --- Key and value heads.


def test_shared_heads_equal_full_ones_with_repeated_weights():
    shared, full = MultiHeadAttention(4, 3, num_key_value_heads=2), MultiHeadAttention(4, 3)
    for layer in (shared, full):
        layer.build(QUERY.shape, MEMORY.shape)
    randomise(shared, scale=0.5)
    weights = shared.get_weights()
    for index in range(2, 6):  # key and value: kernels (width, heads, dim), biases (heads, dim)
        weights[index] = np.repeat(weights[index], 2, axis=-2)
    full.set_weights(weights)
    np.testing.assert_allclose(array(shared(QUERY, MEMORY)), array(full(QUERY, MEMORY)), atol=1e-6)


@pytest.mark.parametrize("heads", [0, 3, 8])
def test_key_value_heads_divide_the_heads(heads):
    with pytest.raises(ValueError, match="`num_key_value_heads` must"):
        MultiHeadAttention(4, 3, num_key_value_heads=heads)


# --- Local windows.

POSITIONS = {
    "no position": lambda: None,
    "rotary": RotaryPositionalEncoding,
    "ALiBi": ALiBi,
    "relative": RelativePositionBias,
}


SIZES = [(5, 2), (SMALLEST_BLOCK, 3), (150, 0), (150, 5), (200, 70), (9, 40)]


@pytest.mark.parametrize(
    ("kind", "size"), spread(itertools.product(POSITIONS, [False, True]), SIZES)
)
def test_blocks_give_what_the_full_matrix_gives(kind, size):
    (position, causal), (length, window) = kind, size
    layer = MultiHeadAttention(2, 4, window=window, position=POSITIONS[position]())
    hidden, real = normal(length, 2, length, 8), np.arange(length)[None] < [[length], [length // 3]]
    layer(hidden, hidden)
    randomise(layer, scale=0.5)
    options = {"query_mask": real, "value_mask": real, "use_causal_mask": causal}
    in_blocks = array(layer(hidden, hidden, **options))
    whole, weights = layer(hidden, hidden, return_attention_scores=True, **options)
    np.testing.assert_allclose(in_blocks, array(whole), atol=1e-5)
    far = np.abs(np.subtract.outer(np.arange(length), np.arange(length))) > window
    assert (array(weights)[:, :, far] == 0).all()
    assert np.abs(in_blocks[0]).min() > 0
    assert (in_blocks[1, length // 3 :] == 0).all()


def test_long_rows_never_make_a_full_matrix(monkeypatch):
    largest = 0
    softmax = ops.softmax

    def seen(scores, *args, **kwargs):
        nonlocal largest
        largest = max(largest, int(np.prod(scores.shape)))
        return softmax(scores, *args, **kwargs)

    monkeypatch.setattr("keras.ops.softmax", seen)
    layer = MultiHeadAttention(1, 4, window=10, position=ALiBi())  # a bias: not the fused path
    hidden = normal(1, 1, 1024, 8)
    layer(hidden, hidden)
    assert 0 < largest <= 1024 * 3 * SMALLEST_BLOCK < 1024 * 1024
    largest = 0
    layer(hidden, hidden, return_attention_scores=True)
    assert largest == 1024 * 1024


@pytest.mark.parametrize("causal", [False, True])
def test_nan_reaches_only_those_who_see_it(causal):
    layer = MultiHeadAttention(2, 4, window=3)
    hidden = normal(1, 1, 150, 8)
    layer(hidden, hidden)
    spoilt = hidden.copy()
    spoilt[0, 80] = np.nan
    output = array(layer(hidden, spoilt, use_causal_mask=causal))
    touched = np.isnan(output).any(axis=(0, 2))
    expected = np.zeros(150, bool)
    expected[80 if causal else 77 : 84] = True
    assert (touched == expected).all()
    clean = array(layer(hidden, hidden, use_causal_mask=causal))
    np.testing.assert_allclose(output[:, ~expected], clean[:, ~expected], atol=1e-6)


@pytest.mark.parametrize("window", [-1, 1.5])
def test_a_window_is_a_whole_number(window):
    with pytest.raises(ValueError, match="`window` must be an integer of at least 0"):
        MultiHeadAttention(2, 4, window=window)


# --- The fused path.


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(("training", "scores"), [*itertools.product([False, True], repeat=2)])
def test_the_fused_path_is_used_at_inference_whatever_the_dropout(
    monkeypatch, dropout, training, scores
):
    calls = []
    fused = ops.dot_product_attention
    monkeypatch.setattr(
        "keras.ops.dot_product_attention", lambda *a, **k: calls.append(1) or fused(*a, **k)
    )
    layer = MultiHeadAttention(2, 4, dropout=dropout)
    layer(QUERY, MEMORY, training=training, return_attention_scores=scores)
    assert bool(calls) == (not scores and not (dropout and training))


def test_flash_attention_has_neither_dropout_nor_scores():
    with pytest.raises(ValueError, match="`dropout` must be 0 with `flash_attention=True`"):
        MultiHeadAttention(2, 4, flash_attention=True, dropout=0.1)
    with pytest.raises(ValueError, match="`return_attention_scores` must be False"):
        MultiHeadAttention(2, 4, flash_attention=True)(QUERY, MEMORY, return_attention_scores=True)


# --- Several attention axes.


@pytest.mark.parametrize("axes", [None, (1,), (2,), (-2,), (1, 2)])
def test_attention_over_chosen_axes_equals_the_keras_layer(axes):
    query, memory = normal(1, 2, 3, 4, 8), normal(2, 2, 3, 4, 8)
    theirs = keras.layers.MultiHeadAttention(2, 4, attention_axes=axes)
    theirs.build(query.shape, memory.shape)
    randomise(theirs, scale=0.5)
    ours = MultiHeadAttention.from_keras(theirs)
    expected, weights = theirs(query, memory, return_attention_scores=True)
    found, own_weights = ours(query, memory, return_attention_scores=True)
    # Processors without AVX-512 add in another order.
    rounding = 1e-6 * np.abs(array(expected)).max()
    np.testing.assert_allclose(array(found), array(expected), atol=rounding)
    assert own_weights.shape == weights.shape
    np.testing.assert_allclose(array(own_weights), array(weights), atol=1e-6)
    symbolic = ours(*map(keras.Input, (query.shape[1:], memory.shape[1:])))
    assert symbolic.shape[1:] == found.shape[1:]


def test_the_order_of_the_axes_orders_the_scores_and_changes_no_output():
    # Keras's equation mixes the axes up here.
    query, memory = normal(1, 2, 3, 4, 8), normal(2, 2, 3, 4, 8)
    layers = [MultiHeadAttention(2, 4, attention_axes=axes) for axes in [(1, 2), (2, 1)]]
    for layer in layers:
        layer.build(query.shape, memory.shape)
        randomise(layer, scale=0.5)
    (output, weights), (turned, turned_weights) = (
        arrays(layer(query, memory, return_attention_scores=True)) for layer in layers
    )
    np.testing.assert_allclose(turned, output, atol=1e-6, rtol=1e-6)
    assert weights.shape == (2, 2, 3, 4, 3, 4)
    assert turned_weights.shape == (2, 2, 4, 3, 4, 3)
    back = turned_weights.transpose(0, 1, 3, 2, 5, 4)
    np.testing.assert_allclose(back, weights, atol=1e-6)


def test_a_mask_over_two_axes_reaches_its_pairs():
    hidden = normal(1, 2, 3, 4, 8)
    layer = MultiHeadAttention(2, 4)
    mask = np.random.default_rng(1).random((2, 3, 4, 3, 4)) < 0.6
    _, weights = layer(hidden, hidden, attention_mask=mask, return_attention_scores=True)
    weights = array(weights)
    assert weights.shape == (2, 2, 3, 4, 3, 4)
    assert (weights[np.broadcast_to(~mask[:, None], weights.shape)] == 0).all()
    assert (weights[np.broadcast_to(mask[:, None], weights.shape)] > 0).all()
    with pytest.raises(ValueError, match="rank must be 5 or 6. Received: .* of shape"):
        layer(hidden, hidden, attention_mask=mask[0, 0])


def test_a_padding_mask_over_two_axes_hides_its_positions():
    hidden = normal(1, 2, 3, 4, 8)
    real = np.random.default_rng(1).random((2, 3, 4)) < 0.6
    layer = MultiHeadAttention(2, 4)
    expected = array(layer(hidden, hidden, query_mask=real, value_mask=real))
    spoilt = np.where(real[..., None], hidden, np.float32(np.nan))
    output = array(layer(spoilt, spoilt, query_mask=real, value_mask=real))
    np.testing.assert_allclose(output, expected, atol=1e-6)
    assert (output[~real] == 0).all()


@pytest.mark.parametrize("axes", [(0,), (3,), (1, 1), ()])
def test_axes_lie_between_batch_and_width(axes):
    hidden = normal(1, 2, 3, 4, 8)
    with pytest.raises(ValueError, match="`attention_axes` must be different axes between"):
        MultiHeadAttention(2, 4, attention_axes=axes)(hidden, hidden)


# --- Arguments.


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"output_shape": 8.0}, "`output_shape` must be a positive integer or a tuple of them"),
        ({"output_shape": 4, "output_dim": 4}, "give `output_shape` or `output_dim`, not both"),
        ({"window": 3, "sliding_window": 2}, "give `window` or `sliding_window`, not both"),
        ({"sliding_window": 0}, "`sliding_window` must be a positive integer"),
    ],
)
def test_contradictions_are_refused(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        MultiHeadAttention(2, 4, **arguments)


def test_both_names_of_the_output_width_and_of_the_window_mean_the_same():
    by_ours = MultiHeadAttention(2, 4, output_dim=6, window=2).get_config()
    by_theirs = MultiHeadAttention(2, 4, output_shape=6, sliding_window=3, name=by_ours["name"])
    assert by_theirs.get_config() == by_ours


# --- LoRA and quantization, as far as Keras offers them for its projections.


def test_projections_can_be_tuned_with_lora(tmp_path):
    layer = MultiHeadAttention(2, 4)
    layer.build(QUERY.shape, MEMORY.shape)
    before = array(layer(QUERY, MEMORY))
    layer.query_dense.enable_lora(2)
    layer.value_dense.enable_lora(2)
    np.testing.assert_allclose(array(layer(QUERY, MEMORY)), before, atol=1e-6)
    assert len(layer.trainable_variables) == 8 + 2
    query, memory = (keras.Input((None, 8)) for _ in range(2))
    model = keras.Model([query, memory], layer(query, memory))
    model.compile("sgd", "mse", run_eagerly=True)
    model.train_on_batch([QUERY, MEMORY], QUERY)
    expected = array(model([QUERY, MEMORY]))
    assert np.abs(expected - before).max() > 1e-6
    model.save(tmp_path / "lora.keras")
    loaded = keras.saving.load_model(tmp_path / "lora.keras")
    np.testing.assert_allclose(array(loaded([QUERY, MEMORY])), expected, atol=1e-6)


def test_projections_can_be_quantized():
    layer = MultiHeadAttention(2, 4)
    layer.build(QUERY.shape, MEMORY.shape)
    exact = array(layer(QUERY, MEMORY))
    query, memory = (keras.Input((None, 8)) for _ in range(2))
    model = keras.Model([query, memory], layer(query, memory))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer that it leaves as it is
        gc.freeze()  # Keras collects garbage for each weight, and the tests before have left much
        model.quantize("int8")
        gc.unfreeze()
    rounded = array(model([QUERY, MEMORY]))
    assert layer.query_dense.quantization_mode == "int8"
    assert 0 < np.abs(rounded - exact).max() < 0.1


def test_projections_whose_bias_keras_would_add_wrongly_are_left_as_they_are():
    layer = MultiHeadAttention(3, 1)
    layer.build((2, 3, 8), (2, 3, 8))
    with pytest.raises(NotImplementedError):
        layer.query_dense.quantize("int8")


# --- What Keras's tests ask of attributes that are private there.


def test_projections_start_from_draws_of_their_own():
    initializer = keras.initializers.TruncatedNormal(stddev=0.02, seed=None)
    layer = MultiHeadAttention(2, 8, use_gate=True, kernel_initializer=initializer)
    layer.build((2, 4, 8), (2, 4, 8))
    kernels = [array(weight) for weight in layer.weights if weight.name == "kernel"]
    assert len(kernels) == 5
    for first, second in itertools.combinations(kernels, 2):
        assert np.abs(first.ravel() - second.ravel()).max() > 1e-3
    # 64 draws each: the bounds are five deviations of their spread away.
    assert all(0.01 < kernel.std() < 0.03 for kernel in kernels)


def test_constraints_reach_every_projection():
    layer = MultiHeadAttention(
        2, 4, use_gate=True, kernel_constraint="non_neg", bias_constraint="max_norm"
    )
    layer.build((2, 4, 8), (2, 4, 8))
    kinds = {"kernel": keras.constraints.NonNeg, "bias": keras.constraints.MaxNorm}
    assert len(layer.weights) == 10
    for weight in layer.weights:
        assert isinstance(weight.constraint, kinds[weight.name])


def test_a_map_of_policies_reaches_the_projections_by_name():
    policies = keras.dtype_policies.DTypePolicyMap()
    for name in ("query", "key", "value"):
        policies[f"mine/{name}"] = keras.dtype_policies.QuantizedDTypePolicy("int8", "float32")
    layer = MultiHeadAttention(3, 8, use_bias=False, dtype=policies, name="mine")
    layer.build((1, 2, 8), (1, 2, 8))
    projections = (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense)
    assert [p.quantization_mode for p in projections] == ["int8", "int8", "int8", None]


@pytest.mark.parametrize("use_gate", [False, True])
def test_heads_of_width_1_add_their_bias_to_the_heads(use_gate):
    # With as many positions as heads, Keras's `ops.add` adds it along the length on TensorFlow.
    hidden = normal(1, 1, 2, 6)
    layer = MultiHeadAttention(2, 1, use_gate=use_gate)
    layer(hidden, hidden)
    randomise(layer, scale=0.7)
    whole = array(layer(hidden, hidden, value_mask=np.array([[True, False]])))
    alone = array(layer(hidden[:, :1], hidden[:, :1]))
    np.testing.assert_allclose(whole[:, :1], alone, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"return_attention_scores": True}, {"use_causal_mask": True}]
)
@pytest.mark.parametrize("attention_axes", [None, (1,)])
def test_integer_masks_count_as_boolean_ones(options, attention_axes):
    layer = MultiHeadAttention(2, 4, attention_axes=attention_axes)
    masks = {
        "query_mask": np.arange(5) < [[5], [3]],
        "value_mask": np.arange(7) < [[7], [2]],
        "key_mask": np.arange(7) > [[0], [-1]],
        "attention_mask": normal(3, 2, 5, 7) > 0,
    }
    integers = {name: mask.astype("int32") for name, mask in masks.items()}
    wanted = arrays(layer(QUERY, MEMORY, **masks, **options))
    found = arrays(layer(QUERY, MEMORY, **integers, **options))
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(wanted), strict=True):
        np.testing.assert_array_equal(one, other)
