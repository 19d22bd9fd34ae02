"""What every layer promises about masks, dtypes, dropout and files, however it is run."""

import itertools
import json
from typing import NamedTuple

import keras
import numpy as np
import pytest
from keras import ops

from tests.backends import (
    BACKEND,
    POLICIES,
    WAYS,
    array,
    gradients,
    has_mask,
    mask_of,
    normal,
    prepared,
    randomise,
    with_mask,
)
from tests.layers import blocks
from tests.layers.blocks import BLOCKS, MIXING, POSITION_WISE, REAL_SOURCE, REAL_TARGET, inputs_of

# Compiling is for TensorFlow and JAX; a torch layer is run as it is.
WAYS_HERE = [way for way in WAYS if not (way == "compiled" and BACKEND == "torch")]


class Running(NamedTuple):
    name: str
    explicit: object  # (hidden, mask, memory, memory_mask) to (output, mask of the output)
    implicit: object


@pytest.fixture(
    scope="module",
    params=itertools.product(BLOCKS, WAYS_HERE),
    ids=lambda both: " ".join(both),
)
def running(request, tmp_path_factory):
    name, way = request.param
    layer = randomise(blocks.built(name))

    def explicit(hidden, mask, memory, memory_mask):
        output = BLOCKS[name].explicit(layer, hidden, mask, memory, memory_mask)
        return output, mask_of(output)

    def implicit(hidden, mask, memory, memory_mask):
        hidden, memory = with_mask(hidden, mask), with_mask(memory, memory_mask)
        output = BLOCKS[name].implicit(layer, hidden, memory)
        return output, mask_of(output)

    folders = [tmp_path_factory.mktemp("model") for _ in range(2)]
    return Running(
        name,
        *(
            prepared(way, function, inputs_of(), folder)
            for function, folder in zip((explicit, implicit), folders, strict=True)
        ),
    )


def test_masks_given_and_masks_carried_give_the_same(running):
    given, given_mask = running.explicit(*inputs_of())
    carried, carried_mask = running.implicit(*inputs_of())
    np.testing.assert_allclose(carried, given, atol=1e-6)
    assert (given_mask == inputs_of()[1]).all()
    assert (carried_mask == given_mask).all()


def test_padding_and_neighbours_do_not_change_a_sentence(running):
    hidden, mask, memory, memory_mask = inputs_of()
    output, _ = running.explicit(hidden, mask, memory, memory_mask)
    shorter = (hidden[:1, :REAL_TARGET], mask[:1, :REAL_TARGET])
    alone, _ = running.explicit(*shorter, memory[:1, :REAL_SOURCE], memory_mask[:1, :REAL_SOURCE])
    np.testing.assert_allclose(output[:1, :REAL_TARGET], alone, atol=1e-6)


def test_padding_on_the_left_does_not_change_a_sentence_either(running):
    hidden, mask, memory, memory_mask = inputs_of()
    expected, _ = running.explicit(hidden, mask, memory, memory_mask)
    more = ((0, 0), (4, 0))
    hidden, memory = (np.pad(x, (*more, (0, 0)), constant_values=7) for x in (hidden, memory))
    mask, memory_mask = (np.pad(x, more) for x in (mask, memory_mask))
    for run in (running.explicit, running.implicit):
        output, output_mask = run(hidden, mask, memory, memory_mask)
        np.testing.assert_allclose(output[:, 4:][mask[:, 4:]], expected[mask[:, 4:]], atol=2e-6)
        assert (output_mask == mask).all()


def test_what_is_stored_at_padding_does_not_matter_not_even_nan(running):
    hidden, mask, memory, memory_mask = inputs_of()
    expected, _ = running.explicit(hidden, mask, memory, memory_mask)
    for bad in (np.nan, np.inf, 1e20):
        spoilt = np.where(mask[:, :, None], hidden, np.float32(bad))
        spoilt_memory = np.where(memory_mask[:, :, None], memory, np.float32(bad))
        for run in (running.explicit, running.implicit):
            output, _ = run(spoilt, mask, spoilt_memory, memory_mask)
            np.testing.assert_allclose(output[mask], expected[mask], atol=1e-6)
            if running.name in MIXING:
                assert np.isfinite(output).all()


def test_the_test_of_padding_can_fail(running):
    # Without masks the padding is read, by every layer that mixes positions.
    hidden, mask, memory, memory_mask = inputs_of()
    output, _ = running.explicit(hidden, mask, memory, memory_mask)
    everything = np.ones_like(mask), np.ones_like(memory_mask)
    unmasked, _ = running.explicit(hidden, everything[0], memory, everything[1])
    differs = np.abs(output - unmasked)[mask].max() > 1e-3
    # A causal layer without memory never reads what follows, padding included.
    assert differs == (running.name in MIXING and running.name != "DecoderLayer alone")


@pytest.mark.parametrize("name", MIXING)
def test_gradients_are_finite_with_nan_at_padding_and_a_sentence_of_padding_alone(name):
    hidden, mask, memory, memory_mask = inputs_of()
    mask[1], memory_mask[1] = False, False
    layer = randomise(blocks.built(name))
    spoilt = np.where(mask[:, :, None], hidden, np.float32(np.nan))
    spoilt_memory = np.where(memory_mask[:, :, None], memory, np.float32(np.nan))
    # Positions weigh differently, since a normalisation's outputs have a constant sum.
    weigh = ops.convert_to_tensor(normal(5, *hidden.shape))

    def loss(hidden, memory):
        output = BLOCKS[name].explicit(
            layer, hidden, ops.convert_to_tensor(mask), memory, ops.convert_to_tensor(memory_mask)
        )
        return ops.sum(ops.square(output) * weigh)

    by_input, by_weight = gradients(loss, [spoilt, spoilt_memory], layer)
    for gradient in by_input + by_weight:
        assert np.isfinite(gradient).all()
    assert (by_input[0][~mask] == 0).all()
    assert (by_input[1][~memory_mask] == 0).all()
    assert (by_input[0][mask] != 0).any()
    assert len(by_weight) == len(layer.trainable_variables) > 0
    if reads_memory(name):
        assert (by_input[1][memory_mask] != 0).any()


@pytest.mark.parametrize("name", BLOCKS)
def test_the_tensors_of_the_caller_keep_their_masks(name):
    hidden, mask, memory, memory_mask = map(ops.convert_to_tensor, inputs_of())
    layer = blocks.built(name)
    masked, masked_memory = with_mask(hidden, mask), with_mask(memory, memory_mask)
    BLOCKS[name].implicit(layer, masked, masked_memory)
    BLOCKS[name].explicit(layer, hidden, mask, memory, memory_mask)
    assert (array(mask_of(masked)) == array(mask)).all()
    assert (array(mask_of(masked_memory)) == array(memory_mask)).all()
    assert not has_mask(hidden)
    assert not has_mask(memory)


@pytest.mark.parametrize("name", MIXING)
def test_a_given_mask_and_a_carried_one_are_combined(name):
    hidden, mask, memory, memory_mask = map(ops.convert_to_tensor, inputs_of())
    layer = randomise(blocks.built(name))
    expected = BLOCKS[name].explicit(layer, hidden, mask, memory, memory_mask)
    # Each alone forgets something that the other remembers.
    half, half_memory = array(mask).copy(), array(memory_mask).copy()
    half[0], half_memory[0] = True, True
    rest, rest_memory = array(mask).copy(), array(memory_mask).copy()
    rest[1], rest_memory[1] = True, True
    output = BLOCKS[name].explicit(
        layer,
        with_mask(hidden, ops.convert_to_tensor(half)),
        ops.convert_to_tensor(rest),
        with_mask(memory, ops.convert_to_tensor(half_memory)),
        ops.convert_to_tensor(rest_memory),
    )
    np.testing.assert_allclose(array(output), array(expected), atol=1e-6)
    assert (array(mask_of(output)) == array(mask)).all()


@pytest.mark.parametrize("name", MIXING)
def test_a_mask_of_integers_counts_as_boolean(name):
    hidden, mask, memory, memory_mask = inputs_of()
    layer = randomise(blocks.built(name))
    integers = mask.astype("int32") * 2, memory_mask.astype("int32")
    given = [BLOCKS[name].explicit(layer, hidden, mask, memory, memory_mask)]
    given.append(BLOCKS[name].explicit(layer, hidden, integers[0], memory, integers[1]))
    np.testing.assert_array_equal(*map(array, given))
    np.testing.assert_array_equal(*(array(mask_of(output)) for output in given))


@pytest.mark.parametrize("name", MIXING)
def test_a_mask_of_floats_is_refused_with_the_fix(name):
    hidden, mask, memory, memory_mask = inputs_of()
    layer = blocks.built(name)
    good = tuple(map(ops.convert_to_tensor, (mask, memory_mask)))
    bad = tuple(map(ops.convert_to_tensor, (mask.astype("float32"), memory_mask.astype("float32"))))
    for own, of_memory in [(bad[0], good[1]), (good[0], bad[1])]:
        if own is good[0] and not reads_memory(name):
            continue
        with pytest.raises(ValueError, match="mask == 0(.|\n)*mask != 0(.|\n)*dtype float32"):
            BLOCKS[name].explicit(layer, hidden, own, memory, of_memory)


def reads_memory(name):
    return name.split()[0] in ("DecoderLayer", "Decoder") and "alone" not in name or "to" in name


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("policy", POLICIES)
def test_half_precision_is_close_to_float32_and_nothing_is_nan(name, policy):
    inputs = tuple(map(ops.convert_to_tensor, inputs_of()))
    exact, layer = blocks.built(name), blocks.built(name, dtype=policy)
    randomise(exact)
    randomise(layer)
    output = BLOCKS[name].explicit(layer, *inputs)
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    assert {weight.dtype for weight in layer.weights} <= {"float32"}
    expected = array(BLOCKS[name].explicit(exact, *inputs))
    # bfloat16 keeps 8 bits of each number, float16 11; values here are of the order of 1.
    tolerance = {"float32": 1e-6, "mixed_float16": 2e-2, "mixed_bfloat16": 2e-1}[policy]
    assert np.abs(array(output) - expected).max() < tolerance * max(1, np.abs(expected).max())


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("policy", POLICIES[1:])
def test_the_policy_reaches_every_layer_inside(name, policy):
    layer = blocks.built(name, dtype=policy)
    inside = [layer, *layer._flatten_layers(include_self=False)]
    # A position is the user's own layer, and computes in float32 whatever its policy.
    inside = [part for part in inside if part is not getattr(layer, "position", None)]
    assert {part.dtype_policy.name for part in inside} == {policy}


@pytest.mark.parametrize("name", BLOCKS)
def test_symbolic_shape_and_dtype_are_those_of_real_outputs(name):
    hidden, mask, memory, memory_mask = inputs_of()
    layer = blocks.built(name)
    output = BLOCKS[name].explicit(layer, *map(ops.convert_to_tensor, inputs_of()))
    symbols = [keras.Input(x.shape[1:], len(x), dtype=x.dtype.name) for x in inputs_of()]
    symbolic = BLOCKS[name].explicit(layer, *symbols)
    assert tuple(symbolic.shape) == tuple(output.shape)
    assert symbolic.dtype == keras.backend.standardize_dtype(output.dtype)
    unbuilt = BLOCKS[name].explicit(BLOCKS[name].make(), *symbols)
    assert tuple(unbuilt.shape) == tuple(output.shape)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_configuration_rebuilds_the_layer(name):
    layer = BLOCKS[name].make(dtype="mixed_bfloat16", name="a_name", dropout=0.25)
    config = layer.get_config()
    json.dumps(config)
    again = type(layer).from_config(config)
    assert again.get_config() == config
    assert again.name == "a_name"
    assert again.dtype_policy.name == "mixed_bfloat16"
    assert again.dropout == 0.25


@pytest.mark.parametrize("name", BLOCKS)
def test_files_reload_bit_for_bit(name, tmp_path):
    inputs = inputs_of()
    layer = randomise(blocks.built(name))
    symbols = [keras.Input((None, *x.shape[2:]), dtype=x.dtype.name) for x in inputs]
    model = keras.Model(symbols, BLOCKS[name].explicit(layer, *symbols))
    expected = array(model(list(inputs)))

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == len(layer.weights)
    assert (array(loaded(list(inputs))) == expected).all()
    if not layer.weights:
        return

    model.save_weights(tmp_path / "model.weights.h5")
    other = BLOCKS[name].make()
    other_model = keras.Model(symbols, BLOCKS[name].explicit(other, *symbols))
    assert not (array(other_model(list(inputs))) == expected).all()
    other_model.load_weights(tmp_path / "model.weights.h5")
    assert (array(other_model(list(inputs))) == expected).all()


@pytest.mark.parametrize("name", BLOCKS)
def test_dropout_is_on_in_training_alone_and_reproducible_from_a_seed(name):
    inputs = tuple(map(ops.convert_to_tensor, inputs_of()))

    def outputs():
        keras.utils.set_random_seed(1)
        layer = blocks.built(name, dropout=0.5)

        def run(**training):
            call = lambda *a, **k: layer(*a, **k, **training)  # noqa: E731
            return array(BLOCKS[name].explicit(call, *inputs))

        return run(), run(training=False), run(training=True), run(training=True)

    plain, inference, first, second = outputs()
    assert (plain == inference).all()
    assert np.abs(first - plain).max() > 1e-3
    assert np.abs(first - second).max() > 1e-3
    for before, after in zip((plain, inference, first, second), outputs(), strict=True):
        assert (before == after).all()


def test_position_wise_layers_are_the_others():
    assert set(MIXING) | POSITION_WISE == set(BLOCKS)
