"""The decoder layer and stack: causality, a memory read by every layer, one step at a time."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import Decoder, DecoderLayer, attention
from tests.backends import WAYS, array, gradients, normal, prepared, randomise, with_mask
from tests.layers.blocks import BATCH, D_FF, D_MODEL, HEADS, SOURCE, TARGET, inputs_of
from tests.selection import spread

INPUTS, MEMORY = normal(1, BATCH, TARGET, D_MODEL), normal(2, BATCH, SOURCE, D_MODEL)
MEMORY_MASK = np.arange(SOURCE)[None] < [[5], [2]]
STEPS = 3  # of a cache for more
SOME_WAYS = [
    way if way in ("eager", "functional") else pytest.param(way, marks=pytest.mark.slow)
    for way in WAYS
]


def built(layer, has_memory=True):
    shape = (None, None, D_MODEL)
    layer.build(shape, shape if has_memory else None)
    return randomise(layer)


def stack(norm_first=False, has_memory=True, num_layers=2):
    return built(Decoder(num_layers, HEADS, D_FF, norm_first=norm_first), has_memory)


@pytest.mark.parametrize(
    ("way", "kind"), spread(WAYS, itertools.product([False, True], [True, False]))
)
def test_changing_a_token_changes_no_output_before_it(way, kind, tmp_path):
    norm_first, has_memory = kind
    layer = stack(norm_first, has_memory, num_layers=1)
    memory = ops.convert_to_tensor(MEMORY) if has_memory else None
    if way in ("functional", "reloaded"):
        inputs = [INPUTS, MEMORY] if has_memory else [INPUTS]
    else:
        inputs = [INPUTS]
    call = (lambda x, m: layer(x, m)) if len(inputs) == 2 else (lambda x: layer(x, memory=memory))
    run = prepared(way, call, inputs, tmp_path)
    before = run(*inputs)
    for position in (0, 4, TARGET - 1):
        changed = INPUTS.copy()
        changed[:, position] = 3.0 * normal(6, D_MODEL)
        after = run(changed, *inputs[1:])
        assert (after[:, :position] == before[:, :position]).all()
        assert (np.abs(after - before)[:, position:].max(axis=(0, 2)) > 1e-5).all()


@pytest.mark.parametrize(("norm_first", "has_memory"), spread([False, True], [True, False]))
def test_no_gradient_flows_from_an_output_to_a_later_input(norm_first, has_memory):
    layer = stack(norm_first, has_memory)
    memory = ops.convert_to_tensor(MEMORY) if has_memory else None
    weigh = ops.convert_to_tensor(normal(3, D_MODEL))

    def loss(inputs):
        return ops.sum(layer(inputs, memory=memory)[:, 4] * weigh)

    (gradient,), _ = gradients(loss, [INPUTS])
    assert (gradient[:, 5:] == 0).all()
    assert (np.abs(gradient[:, :5]).max(axis=2) > 0).all()


@pytest.mark.parametrize("way", SOME_WAYS)
def test_a_memory_read_by_several_layers_is_masked_in_each(way, tmp_path):
    # Keras's own attention deletes the mask from the memory at its first use.
    layers = [built(DecoderLayer(HEADS, D_FF)) for _ in range(2)]

    def implicit(hidden, memory, memory_mask):
        memory = with_mask(memory, memory_mask)
        for layer in layers:
            hidden = layer(hidden, memory)
        return hidden

    run = prepared(way, implicit, [INPUTS, MEMORY, MEMORY_MASK], tmp_path)
    expected = ops.convert_to_tensor(INPUTS)
    for layer in layers:
        expected = layer(expected, MEMORY, memory_padding_mask=MEMORY_MASK)
    np.testing.assert_allclose(run(INPUTS, MEMORY, MEMORY_MASK), array(expected), atol=1e-6)
    spoilt = np.where(MEMORY_MASK[:, :, None], MEMORY, np.float32(np.nan))
    np.testing.assert_allclose(run(INPUTS, spoilt, MEMORY_MASK), array(expected), atol=1e-6)


def test_the_mask_of_a_keras_embedding_reaches_every_layer_of_a_functional_model():
    source, hidden = keras.Input((None,), dtype="int32"), keras.Input((None, D_MODEL))
    memory = keras.layers.Embedding(17, D_MODEL, mask_zero=True)(source)
    output = hidden
    for _ in range(2):
        output = DecoderLayer(HEADS, D_FF)(output, memory)
    model = keras.Model([source, hidden], output)
    ids = np.array([[3, 5, 7], [8, 9, 2]], "int32")
    padded = np.pad(ids, [(0, 0), (0, 4)])
    expected = array(model([ids, INPUTS]))
    np.testing.assert_allclose(array(model([padded, INPUTS])), expected, atol=1e-6)


def test_a_memory_without_any_real_token_adds_nothing():
    layer = built(DecoderLayer(HEADS, D_FF, norm_first=True))
    nothing = np.zeros_like(MEMORY_MASK)
    one, other = (
        array(layer(INPUTS, memory, memory_padding_mask=nothing))
        for memory in (MEMORY, 5.0 * MEMORY)
    )
    assert (one == other).all()
    assert np.isfinite(one).all()


@pytest.mark.parametrize("norm_first", [pytest.param(False, marks=pytest.mark.slow), True])
def test_steps_with_a_cache_equal_the_whole_prefix(norm_first):
    decoder = stack(norm_first)
    memory = ops.convert_to_tensor(MEMORY)
    projected = decoder.project_memory(memory, ops.convert_to_tensor(MEMORY_MASK))
    caches = decoder.start_cache(BATCH, TARGET)
    whole = array(decoder(INPUTS, memory, memory_padding_mask=MEMORY_MASK))
    for index in range(STEPS):
        step, caches, _ = decoder.step(
            ops.convert_to_tensor(INPUTS[:, index : index + 1]),
            ops.convert_to_tensor(index, "int32"),
            caches,
            projected,
            memory_padding_mask=ops.convert_to_tensor(MEMORY_MASK),
        )
        np.testing.assert_allclose(array(step)[:, 0], whole[:, index], atol=1e-5)


def test_steps_without_memory_equal_the_whole_prefix():
    decoder = stack(has_memory=False)
    caches = decoder.start_cache(BATCH, TARGET)
    whole = array(decoder(INPUTS))
    for index in range(STEPS):
        step, caches, _ = decoder.step(
            ops.convert_to_tensor(INPUTS[:, index : index + 1]),
            ops.convert_to_tensor(index, "int32"),
            caches,
        )
        np.testing.assert_allclose(array(step)[:, 0], whole[:, index], atol=1e-5)


def test_beams_of_a_sentence_read_its_memory():
    decoder, beams = stack(), 3
    memory, mask = ops.convert_to_tensor(MEMORY), ops.convert_to_tensor(MEMORY_MASK)
    rows = normal(4, BATCH * beams, 1, D_MODEL)
    found, _, weights = decoder.step(
        ops.convert_to_tensor(rows),
        ops.convert_to_tensor(0, "int32"),
        decoder.start_cache(BATCH * beams, TARGET),
        decoder.project_memory(memory, mask),
        memory_padding_mask=mask,
    )
    expected = decoder.inspect(
        rows,
        np.repeat(MEMORY, beams, 0),
        memory_padding_mask=np.repeat(MEMORY_MASK, beams, 0),
    )
    np.testing.assert_allclose(array(found), array(expected.outputs), atol=1e-5)
    last = array(expected.attention_weights[-1])[:, :, 0].reshape(BATCH, beams, HEADS, SOURCE)
    np.testing.assert_allclose(array(weights), last.swapaxes(1, 2), atol=1e-6)


@pytest.mark.parametrize("capacities", ["one", "several"])
def test_beams_that_follow_paths_equal_their_whole_prefixes(capacities, monkeypatch):
    decoder, beams = stack(), 3
    memory, mask = ops.convert_to_tensor(MEMORY), ops.convert_to_tensor(MEMORY_MASK)
    projected = decoder.project_memory(memory, mask)
    random = np.random.default_rng(5)
    inputs = normal(6, BATCH, TARGET, beams, D_MODEL)  # what is read in each slot
    paths = np.broadcast_to(np.arange(beams)[None, :, None], (BATCH, beams, TARGET + 1)).copy()
    caches = decoder.start_cache(BATCH, TARGET, beams)
    if capacities == "several":  # 2, 8 and TARGET positions; what is NaN must not be read
        monkeypatch.setattr(attention, "SMALLEST_CAPACITY", 2)
        late = np.arange(TARGET * beams)[:, None] >= 8 * beams
        caches = keras.tree.map_structure(lambda slots: ops.where(late, np.nan, slots), caches)
    for index in range(STEPS):
        found, caches, _ = decoder.step(
            ops.convert_to_tensor(inputs[:, index].reshape(BATCH * beams, 1, D_MODEL)),
            ops.convert_to_tensor(index, "int32"),
            caches,
            projected,
            memory_padding_mask=mask,
            paths=ops.convert_to_tensor(paths),
        )
        positions = np.arange(index + 1)
        prefixes = inputs[np.arange(BATCH)[:, None, None], positions, paths[:, :, : index + 1]]
        whole = decoder(
            prefixes.reshape(BATCH * beams, index + 1, D_MODEL),
            np.repeat(MEMORY, beams, 0),
            memory_padding_mask=np.repeat(MEMORY_MASK, beams, 0),
        )
        np.testing.assert_allclose(array(found)[:, 0], array(whole)[:, -1], atol=1e-5)
        parents = random.integers(0, beams, (BATCH, beams))
        paths[:, :, : index + 1] = np.take_along_axis(paths, parents[..., None], 1)[
            :, :, : index + 1
        ]


def test_a_memory_in_some_calls_only_is_refused():
    with_memory, alone = built(DecoderLayer(HEADS, D_FF)), built(DecoderLayer(HEADS, D_FF), False)
    with pytest.raises(ValueError, match="built with one. Received: memory=None"):
        with_memory(INPUTS)
    with pytest.raises(ValueError, match=r"built without one. Received: memory=\(2, 7, 15\)"):
        alone(INPUTS, MEMORY)


def test_a_memory_of_another_width_is_read():
    hidden, mask, _, memory_mask = inputs_of()
    memory = normal(5, BATCH, SOURCE, 19)
    layer = DecoderLayer(HEADS, D_FF)
    output = layer(hidden, memory, padding_mask=mask, memory_padding_mask=memory_mask)
    assert output.shape == hidden.shape


def test_integer_masks_count_as_boolean_ones_whole_and_by_step():
    layer = stack()
    masks = {
        "padding_mask": np.arange(TARGET) < [[TARGET], [4]],
        "memory_padding_mask": MEMORY_MASK,
        "attention_mask": normal(5, BATCH, TARGET, TARGET) > -1,
    }
    integers = {name: ops.convert_to_tensor(mask.astype("int32")) for name, mask in masks.items()}
    masks = {name: ops.convert_to_tensor(mask) for name, mask in masks.items()}
    inputs, memory = ops.convert_to_tensor(INPUTS), ops.convert_to_tensor(MEMORY)
    whole = [array(layer(inputs, memory=memory, **given)) for given in (masks, integers)]
    np.testing.assert_array_equal(*whole)
    steps = []
    for given in (masks, integers):
        mask = given["memory_padding_mask"]
        projected = layer.project_memory(memory, mask)
        caches = layer.start_cache(BATCH, TARGET)
        start = ops.convert_to_tensor(0)
        output, _, _ = layer.step(inputs[:, :1], start, caches, projected, memory_padding_mask=mask)
        steps.append(array(output))
    np.testing.assert_array_equal(*steps)
