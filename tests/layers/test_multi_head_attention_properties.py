"""What attention promises for any shape, mask, number of heads and options, drawn by hypothesis."""

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer.layers import (
    ALiBi,
    MultiHeadAttention,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from tests.backends import BACKEND, array, gradients, has_mask, mask_of, randomise, with_mask

CASES = settings(
    # On JAX every new shape is compiled, operation by operation.
    max_examples=4 if BACKEND == "jax" else 6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
HALF = settings(CASES, max_examples=CASES.max_examples // 2)
WIDTH = 6
LENGTHS = st.sampled_from([1, 5, 14]) if BACKEND == "jax" else st.integers(1, 14)
POSITIONS = [lambda: None, RotaryPositionalEncoding, ALiBi, RelativePositionBias]


@pytest.fixture(autouse=True, scope="module")
def short_blocks():
    """Local windows are cut into blocks of 4, so that short rows have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_transformer.layers.attention.SMALLEST_BLOCK", 4)
        yield


@st.composite
def layer_arguments(draw):
    num_key_value_heads = draw(st.integers(1, 3))
    return dict(
        num_heads=num_key_value_heads * draw(st.integers(1, 2)),
        key_dim=2 * draw(st.integers(1, 3)),
        value_dim=draw(st.sampled_from([None, 1, 5])),
        use_bias=draw(st.booleans()),
        output_shape=draw(st.sampled_from([None, 3, (2, 3)])),
        use_gate=draw(st.booleans()),
        num_key_value_heads=num_key_value_heads,
        window=draw(st.sampled_from([None, 0, 1, 4])),
        position=draw(st.sampled_from(POSITIONS)),
        dropout=draw(st.sampled_from([0.0, 0.5])),
    )


@st.composite
def cases(draw):
    """What `made` makes a case of; layers are made outside, since Keras draws random seeds."""
    batch, length = draw(st.integers(1, 3)), draw(LENGTHS)
    return dict(
        arguments=draw(layer_arguments()),
        seed=draw(st.integers(0, 2**16)),
        shape=(batch, length),
        lengths=draw(st.lists(st.integers(0, length), min_size=batch, max_size=batch)),
        causal=draw(st.booleans()),
        mask_axes=draw(st.sampled_from([None, "pairs", "heads"])),
    )


def made(case):
    """A layer with weights, self-attended hidden vectors, their mask, and the call's options."""
    arguments, (batch, length) = case["arguments"], case["shape"]
    layer = MultiHeadAttention(**{**arguments, "position": arguments["position"]()})
    random = np.random.default_rng(case["seed"])
    hidden = random.normal(size=(batch, length, WIDTH)).astype("float32")
    real = np.arange(length)[None] < np.array(case["lengths"])[:, None]
    options = {"use_causal_mask": case["causal"]}
    if case["mask_axes"] is not None:
        heads = (arguments["num_heads"],) if case["mask_axes"] == "heads" else ()
        options["attention_mask"] = random.random((batch, *heads, length, length)) < 0.7
    layer(hidden, hidden)
    return randomise(layer, case["seed"], scale=0.7), hidden, real, options


def attended(layer, hidden, real, **options):
    return array(layer(hidden, hidden, query_mask=real, value_mask=real, **options))


def cut(options, rows, length):
    """The options with the attention mask of some rows and a shorter length."""
    if "attention_mask" not in options:
        return options
    return {**options, "attention_mask": options["attention_mask"][rows, ..., :length, :length]}


def visible(case, real, options):
    """Which query may attend to which key in any head: (batch, query, key)."""
    length = real.shape[1]
    distance = np.subtract.outer(np.arange(length), np.arange(length))
    sees = real[:, None, :] & real[:, :, None]
    if options["use_causal_mask"]:
        sees = sees & (distance >= 0)
    if case["arguments"]["window"] is not None:
        sees = sees & (np.abs(distance) <= case["arguments"]["window"])
    mask = options.get("attention_mask")
    if mask is not None:
        sees = sees & (mask if mask.ndim == 3 else mask.any(axis=1))
    return sees


@CASES
@given(cases())
def test_padding_and_neighbours_change_nothing(case):
    layer, hidden, real, options = made(case)
    whole = attended(layer, hidden, real, **options)
    for row, length in enumerate(real.sum(axis=1)):
        if length == 0:
            assert (whole[row] == 0).all()
            continue
        mine = slice(row, row + 1)
        alone = attended(layer, hidden[mine, :length], None, **cut(options, mine, length))
        np.testing.assert_allclose(whole[mine, :length], alone, atol=1e-5)
        assert (whole[mine, length:] == 0).all()


@pytest.mark.slow
@CASES
@given(cases(), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_nan_and_inf_at_masked_positions_reach_nothing(case, bad):
    layer, hidden, real, options = made(case)
    spoilt = np.where(real[..., None], hidden, np.float32(bad))
    expected = attended(layer, hidden, real, **options)
    np.testing.assert_allclose(attended(layer, spoilt, real, **options), expected, atol=1e-6)


@CASES
@given(cases(), st.booleans())
def test_nan_hidden_by_any_mask_reaches_exactly_those_who_see_it(case, scores):
    layer, hidden, real, options = made(case)
    spoilt = np.random.default_rng(case["seed"]).random(real.shape) < 0.2
    # A query that is NaN itself has NaN scores, wherever it looks.
    reached = (visible(case, real, options) & (spoilt[:, None] | spoilt[..., None])).any(axis=-1)
    options = {**options, "query_mask": real, "value_mask": real}
    expected = array(layer(hidden, hidden, **options))
    hidden = np.where(spoilt[..., None], np.float32(np.nan), hidden)
    if scores:
        output = array(layer(hidden, hidden, return_attention_scores=True, **options)[0])
    else:
        output = array(layer(hidden, hidden, **options))
    assert np.isnan(output[reached]).all()
    np.testing.assert_allclose(output[~reached], expected[~reached], atol=1e-5)


@CASES
@given(cases())
def test_a_causal_output_has_no_gradient_from_what_follows(case):
    layer, hidden, _, options = made(case)
    options = {**options, "use_causal_mask": True}
    query = hidden.shape[1] // 2

    def loss(memory):
        return ops.sum(ops.square(layer(hidden, memory, **options)[:, query]))

    (by_memory,), _ = gradients(loss, [hidden])
    assert np.isfinite(by_memory).all()
    assert (by_memory[:, query + 1 :] == 0).all()


@pytest.mark.parametrize("path", ["scores", "no scores", "blocks"])
@HALF
@given(case=cases(), window=st.sampled_from([0, 1, 4]))
def test_a_query_that_may_attend_nowhere_gives_zero_and_finite_gradients(path, case, window):
    if path == "blocks":
        case = {**case, "arguments": {**case["arguments"], "window": window}, "mask_axes": None}
    layer, hidden, real, options = made(case)
    if path == "blocks":  # query 0 sees nothing when no key within the window is real
        real[:, : window + 1] = False
    else:
        mask = options.get("attention_mask", np.ones((*real.shape, real.shape[1]), bool)).copy()
        mask[..., 0, :] = False
        options = {**options, "attention_mask": mask}
    options = {**options, "value_mask": real, "return_attention_scores": path == "scores"}

    def run(inputs):
        return keras.tree.flatten(layer(inputs, inputs, **options))

    output = array(run(hidden)[0])
    assert np.isfinite(output).all()
    assert (output[:, 0] == 0).all()
    if path == "scores":
        weights = array(run(hidden)[1])
        assert (weights[:, :, 0] == 0).all()
        sums = weights.sum(axis=-1)
        assert (np.isclose(sums, 1, atol=1e-5) | (sums == 0)).all()
    by_input, by_weight = gradients(lambda x: ops.sum(ops.square(run(x)[0])), [hidden], layer)
    assert all(np.isfinite(gradient).all() for gradient in by_input + by_weight)


@CASES
@given(cases())
def test_asking_for_scores_and_the_callers_masks_change_nothing(case):
    layer, hidden, real, options = made(case)
    tensor = with_mask(ops.convert_to_tensor(hidden), ops.convert_to_tensor(real))
    output = layer(tensor, tensor, **options)
    with_scores, weights = layer(tensor, tensor, return_attention_scores=True, **options)
    np.testing.assert_allclose(array(output), array(with_scores), atol=1e-5)
    np.testing.assert_allclose(array(output), attended(layer, hidden, real, **options), atol=1e-6)
    assert has_mask(tensor)
    assert (array(mask_of(tensor)) == real).all()
    assert (array(mask_of(output)) == real).all()
    symbol = keras.Input(hidden.shape[1:], len(hidden))
    symbolic, symbolic_weights = layer(symbol, symbol, return_attention_scores=True)
    assert tuple(symbolic.shape) == tuple(output.shape)
    assert tuple(symbolic_weights.shape) == tuple(weights.shape)
    assert layer.compute_output_shape(hidden.shape, hidden.shape) == tuple(output.shape)


@pytest.mark.slow
@CASES
@given(cases())
def test_the_configuration_and_the_weights_rebuild_the_layer(case):
    layer, hidden, real, options = made(case)
    again = MultiHeadAttention.from_config(layer.get_config())
    again.build(hidden.shape, hidden.shape)
    assert again.get_config() == layer.get_config()
    again.set_weights(layer.get_weights())
    expected = attended(layer, hidden, real, **options)
    assert (attended(again, hidden, real, **options) == expected).all()


@pytest.mark.slow
@HALF
@given(cases())
def test_a_file_reloads_bit_for_bit(tmp_path_factory, case):
    layer, hidden, real, _ = made(case)
    inputs = keras.Input((None, WIDTH)), keras.Input((None,), dtype="bool")
    model = keras.Model(inputs, layer(inputs[0], inputs[0], value_mask=inputs[1]))
    file = tmp_path_factory.mktemp("model") / "model.keras"
    model.save(file)
    loaded = keras.saving.load_model(file)
    assert (array(loaded([hidden, real])) == array(model([hidden, real]))).all()


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "tolerance"), [("float16", 0.02), ("bfloat16", 0.15)])
@HALF
@given(case=cases())
def test_half_precision_is_close(policy, tolerance, case):
    layer, hidden, real, options = made(case)
    config = {**layer.get_config(), "dtype": f"mixed_{policy}"}
    half = MultiHeadAttention.from_config(config)
    half.build(hidden.shape, hidden.shape)
    half.set_weights(layer.get_weights())
    expected = attended(layer, hidden, real, **options)
    found = attended(half, hidden, real, **options)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected, atol=tolerance * max(1, np.abs(expected).max()))
