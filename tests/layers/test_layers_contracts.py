"""What every layer promises about masks, dtypes, dropout and files, however it is run."""

import functools
import json
from itertools import product
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
from tests.layers.blocks import BLOCKS, EACH, MIXING, REAL_SOURCE, REAL_TARGET, inputs_of
from tests.selection import spread

# Compiling is for TensorFlow and JAX; a torch layer is run as it is.
WAYS_HERE = [way for way in WAYS if not (way == "compiled" and BACKEND == "torch")]


def with_each(values, rarely=None):
    """Each block with each value; the default run tries a block that is not composed once.

    One that is tried `rarely` is a part of another: the slow tests leave it out.
    """
    composed = [name for name, block in BLOCKS.items() if block.composed]
    cases = spread((name for name in BLOCKS if name not in composed), values)
    slow = [pytest.param(*both, marks=pytest.mark.slow) for both in product(composed, values)]
    return [
        pytest.param(case.values, marks=case.marks, id=" ".join(case.values))
        for case in cases + slow
        if not case.marks or case.values[1] != rarely
    ]


# One block of each kind of weights and calls, for what the default run need not try with all.
CHOSEN = (
    "PositionalEncoding",
    "LearnedPositionalEncoding",
    "FeedForward gated",
    "MultiHeadAttention grouped, gated",
    "MultiHeadAttention window",
    "EncoderLayer window, RMS norm",
    "DecoderLayer alone",
    "Decoder grouped, window, relative",
)
SOME = [pytest.param(n, marks=() if n in CHOSEN else pytest.mark.slow) for n in BLOCKS]


class Running(NamedTuple):
    """A block that runs in one way: arrays to (output, its mask), explicit and carried."""

    name: str
    run: object  # (hidden, mask, memory, memory_mask) to ((output, mask), (output, mask))
    usual: tuple  # what `run` gives for `inputs_of()`


@pytest.fixture(
    scope="module",
    params=with_each(WAYS_HERE, rarely="functional"),  # what is reloaded is functional too
)
def running(request, tmp_path_factory):
    name, way = request.param
    layer = blocks.shared(name)

    def both(hidden, mask, memory, memory_mask):
        explicit = BLOCKS[name].explicit(layer, hidden, mask, memory, memory_mask)
        hidden, memory = with_mask(hidden, mask), with_mask(memory, memory_mask)
        implicit = BLOCKS[name].implicit(layer, hidden, memory)
        return (explicit, mask_of(explicit)), (implicit, mask_of(implicit))

    run = prepared(way, both, inputs_of(), tmp_path_factory.mktemp("model"))
    return Running(name, run, run(*inputs_of()))


def test_masks_given_and_masks_carried_give_the_same(running):
    (given, given_mask), (carried, carried_mask) = running.usual
    np.testing.assert_allclose(carried, given, atol=1e-6)
    assert (given_mask == inputs_of()[1]).all()
    assert (carried_mask == given_mask).all()


def test_padding_and_neighbours_do_not_change_a_sentence(running):
    hidden, mask, memory, memory_mask = inputs_of()
    shorter = (hidden[:1, :REAL_TARGET], mask[:1, :REAL_TARGET])
    found = running.run(*shorter, memory[:1, :REAL_SOURCE], memory_mask[:1, :REAL_SOURCE])
    for (alone, _), (output, _) in zip(found, running.usual, strict=True):
        np.testing.assert_allclose(output[:1, :REAL_TARGET], alone, atol=1e-6)


def test_padding_on_the_left_does_not_change_a_sentence_either(running):
    hidden, mask, memory, memory_mask = inputs_of()
    (expected, _), _ = running.usual
    more = ((0, 0), (4, 0))
    hidden, memory = (np.pad(x, (*more, (0, 0)), constant_values=7) for x in (hidden, memory))
    left, left_memory = (np.pad(x, more) for x in (mask, memory_mask))
    for output, output_mask in running.run(hidden, left, memory, left_memory):
        np.testing.assert_allclose(output[:, 4:][mask], expected[mask], atol=2e-6)
        assert (output_mask == left).all()


def test_what_is_stored_at_padding_does_not_matter_not_even_nan(running):
    hidden, mask, memory, memory_mask = inputs_of()
    (expected, _), _ = running.usual
    # One batch with the sentences once for each value at padding.
    values = np.repeat(np.float32([np.nan, np.inf, 1e20]), len(hidden))[:, None, None]
    hidden, memory, expected = (np.tile(x, (3, 1, 1)) for x in (hidden, memory, expected))
    mask, memory_mask = (np.tile(x, (3, 1)) for x in (mask, memory_mask))
    spoilt = np.where(mask[:, :, None], hidden, values)
    spoilt_memory = np.where(memory_mask[:, :, None], memory, values)
    for output, _ in running.run(spoilt, mask, spoilt_memory, memory_mask):
        np.testing.assert_allclose(output[mask], expected[mask], atol=1e-6)
        if BLOCKS[running.name].mixes:
            assert np.isfinite(output).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_the_test_of_padding_can_fail(name):
    # Without masks the padding is read, by every layer that mixes positions.
    hidden, mask, memory, memory_mask = inputs_of()
    output, _ = blocks.shared_output(name)
    inputs = hidden, np.ones_like(mask), memory, np.ones_like(memory_mask)
    unmasked = array(BLOCKS[name].explicit(blocks.shared(name), *inputs))
    differs = np.abs(array(output) - unmasked)[mask].max() > 1e-3
    assert differs == BLOCKS[name].reads_padding


@pytest.mark.parametrize("name", MIXING)
def test_gradients_are_finite_with_nan_at_padding_and_a_sentence_of_padding_alone(name):
    hidden, mask, memory, memory_mask = inputs_of()
    mask[1], memory_mask[1] = False, False
    layer = blocks.shared(name)
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
    if BLOCKS[name].reads_memory:
        assert (by_input[1][memory_mask] != 0).any()


@pytest.mark.parametrize("name", SOME)
def test_the_tensors_of_the_caller_keep_their_masks(name):
    hidden, mask, memory, memory_mask = map(ops.convert_to_tensor, inputs_of())
    layer = blocks.shared(name)
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
    # Each alone forgets something that the other remembers.
    half, half_memory = array(mask).copy(), array(memory_mask).copy()
    half[0], half_memory[0] = True, True
    rest, rest_memory = array(mask).copy(), array(memory_mask).copy()
    rest[1], rest_memory[1] = True, True
    output = BLOCKS[name].explicit(
        blocks.shared(name),
        with_mask(hidden, ops.convert_to_tensor(half)),
        ops.convert_to_tensor(rest),
        with_mask(memory, ops.convert_to_tensor(half_memory)),
        ops.convert_to_tensor(rest_memory),
    )
    np.testing.assert_allclose(array(output), array(blocks.shared_output(name)[0]), atol=1e-6)
    assert (array(mask_of(output)) == array(mask)).all()


@pytest.mark.parametrize("name", MIXING)
def test_a_mask_of_integers_counts_as_boolean(name):
    hidden, mask, memory, memory_mask = inputs_of()
    integers = mask.astype("int32") * 2, memory_mask.astype("int32")
    inputs = hidden, integers[0], memory, integers[1]
    output = BLOCKS[name].explicit(blocks.shared(name), *inputs)
    for found, wanted in zip((output, mask_of(output)), blocks.shared_output(name), strict=True):
        np.testing.assert_array_equal(array(found), array(wanted))


@pytest.mark.parametrize("name", MIXING)
def test_a_mask_of_floats_is_refused_with_the_fix(name):
    hidden, mask, memory, memory_mask = inputs_of()
    layer = blocks.shared(name)
    good = tuple(map(ops.convert_to_tensor, (mask, memory_mask)))
    bad = tuple(map(ops.convert_to_tensor, (mask.astype("float32"), memory_mask.astype("float32"))))
    for own, of_memory in [(bad[0], good[1]), (good[0], bad[1])]:
        if own is good[0] and not BLOCKS[name].reads_memory:
            continue
        with pytest.raises(ValueError, match="mask == 0(.|\n)*mask != 0(.|\n)*dtype float32"):
            BLOCKS[name].explicit(layer, hidden, own, memory, of_memory)


@pytest.mark.parametrize("name_and_policy", with_each(POLICIES[1:]))
def test_half_precision_is_close_to_float32_in_all_layers_and_nothing_is_nan(name_and_policy):
    name, policy = name_and_policy
    layer = randomise(blocks.built(name, dtype=policy))
    output = BLOCKS[name].explicit(layer, *map(ops.convert_to_tensor, inputs_of()))
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    assert {weight.dtype for weight in layer.weights} <= {"float32"}
    expected = array(blocks.shared_output(name)[0])
    # bfloat16 keeps 8 bits of each number, float16 11; values here are of the order of 1.
    tolerance = {"mixed_float16": 2e-2, "mixed_bfloat16": 2e-1}[policy]
    assert np.abs(array(output) - expected).max() < tolerance * max(1, np.abs(expected).max())

    inside = [layer, *layer._flatten_layers(include_self=False)]
    # A position is the user's own layer, and computes in float32 whatever its policy.
    inside = [part for part in inside if part is not getattr(layer, "position", None)]
    assert {part.dtype_policy.name for part in inside} == {policy}


@pytest.mark.parametrize("name", EACH)
def test_symbolic_shape_and_dtype_are_those_of_real_outputs(name):
    output, _ = blocks.shared_output(name)
    symbols = [keras.Input(x.shape[1:], len(x), dtype=x.dtype.name) for x in inputs_of()]
    for layer in (blocks.shared(name), BLOCKS[name].make()):
        symbolic = BLOCKS[name].explicit(layer, *symbols)
        assert tuple(symbolic.shape) == tuple(output.shape)
        assert symbolic.dtype == keras.backend.standardize_dtype(output.dtype)


@pytest.mark.parametrize("name", EACH)
def test_the_configuration_rebuilds_the_layer(name):
    layer = BLOCKS[name].make(dtype="mixed_bfloat16", name="a_name", dropout=0.25)
    config = layer.get_config()
    json.dumps(config)
    again = type(layer).from_config(config)
    assert again.get_config() == config
    assert again.name == "a_name"
    assert again.dtype_policy.name == "mixed_bfloat16"
    assert again.dropout == 0.25


@pytest.mark.parametrize("name", SOME)
def test_files_reload_bit_for_bit(name, tmp_path):
    inputs = inputs_of()
    layer, (expected, _) = blocks.shared(name), blocks.shared_output(name)
    symbols = [keras.Input((None, *x.shape[2:]), dtype=x.dtype.name) for x in inputs]
    model = keras.Model(symbols, BLOCKS[name].explicit(layer, *symbols))

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == len(layer.weights)
    assert (array(loaded(list(inputs))) == array(expected)).all()
    if not layer.weights:
        return

    model.save_weights(tmp_path / "model.weights.h5")
    randomise(loaded, seed=1)
    loaded.load_weights(tmp_path / "model.weights.h5")
    pairs = zip(loaded.get_weights(), layer.get_weights(), strict=True)
    assert all((found == wanted).all() for found, wanted in pairs)


@pytest.mark.parametrize("name", SOME)
def test_dropout_is_on_in_training_alone_and_reproducible_from_a_seed(name):
    inputs = tuple(map(ops.convert_to_tensor, inputs_of()))

    def outputs(*options):
        keras.utils.set_random_seed(1)
        layer = BLOCKS[name].make(dropout=0.5)
        return [
            array(BLOCKS[name].explicit(functools.partial(layer, **training), *inputs))
            for training in options
        ]

    training = {"training": True}
    plain, inference, first, second = outputs({}, {"training": False}, training, training)
    assert (plain == inference).all()
    assert np.abs(first - plain).max() > 1e-3
    assert np.abs(first - second).max() > 1e-3
    (again,) = outputs(training)
    assert (again == first).all()
