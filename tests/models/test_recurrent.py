"""RecurrentSeq2Seq keeps the contracts of the Transformer, whatever its cell and attention."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    BeamSearch,
    GreedySearch,
    MaskedCrossentropy,
    RecurrentSeq2Seq,
    Sampling,
)
from keras_transformer.batches import PairDataset
from keras_transformer.checks import check_padding_invariance
from tests.backends import BACKEND, array, arrays, gradients, on_tensorflow
from tests.models.small_recurrent import SOURCE, TARGET, logits, made, shared

# Both cells, and every attention with one of them: its formula is tested on its own.
PAIRS = [("lstm", "additive"), ("gru", None)]
OTHERS = [("gru", "dot"), ("lstm", "scaled_dot"), ("gru", "cosine"), ("lstm", "general")]
if BACKEND == "jax":  # which compiles every operation anew for each kind
    OTHERS = []


def kinds_of(pairs, others=()):
    """A test of each of these cells and attentions, and a slow one of each of the others."""
    return pytest.mark.parametrize(
        "kind",
        [
            pytest.param(
                {"cell": cell, "attention": attention},
                id=f"{cell}-{attention}",
                marks=pytest.mark.slow if (cell, attention) in others else (),
            )
            for cell, attention in [*pairs, *others]
        ],
    )


kinds, both_cells = kinds_of(PAIRS[:1], PAIRS[1:] + OTHERS), kinds_of(PAIRS)
all_kinds = kinds_of(PAIRS + OTHERS)


@all_kinds
def test_padding_and_other_rows_change_nothing(kind):
    model = shared(**kind)
    expected = logits(model, SOURCE, TARGET)
    wider = logits(model, np.pad(SOURCE, [(0, 0), (0, 4)]), np.pad(TARGET, [(0, 0), (0, 3)]))
    np.testing.assert_allclose(wider[:, :4], expected, atol=1e-6)
    alone = logits(model, SOURCE[1:2, :3], TARGET[1:2, :2])
    np.testing.assert_allclose(alone, expected[1:2, :2], atol=1e-6)


@kinds
def test_padding_may_stand_at_any_place_of_a_row(kind):
    model = shared(**kind)
    left = np.array([[5, 6, 7, 8, 3], [0, 0, 9, 4, 3]]), np.array([[2, 5, 6, 9], [0, 0, 2, 7]])
    assert check_padding_invariance(model, left, side="left") < 1e-6
    expected = logits(model, SOURCE[:2], TARGET[:2])
    np.testing.assert_allclose(logits(model, *left)[1, 2:], expected[1, :2], atol=1e-6)
    holes = np.array([[5, 6, 7, 8, 3], [9, 0, 4, 0, 3]]), np.array([[2, 0, 5, 6, 0, 9], [0] * 6])
    found = logits(model, *holes)[0]
    np.testing.assert_allclose(found[[0, 2, 3, 5]], expected[0], atol=1e-6)
    np.testing.assert_allclose(
        array(model.encode(holes[0]))[1, [0, 2, 4]], array(model.encode(SOURCE))[1, :3], atol=1e-6
    )


def test_a_source_of_one_token_needs_no_warning():
    """A wider one has the same logits; Keras warns of a softmax over one number."""
    model, source = shared(), SOURCE[:, :1]
    found = logits(model, source, TARGET)
    np.testing.assert_allclose(found, logits(model, np.pad(source, [(0, 0), (0, 2)]), TARGET), 1e-5)
    assert array(model.generate(source, BeamSearch(2), max_length=3).ids).shape == (3, 2, 3)


def test_outputs_and_scores_do_not_depend_on_the_side_of_the_padding():
    model = shared()
    left = np.pad([np.roll(row, (row == 0).sum()) for row in SOURCE], [(0, 0), (2, 0)])
    expected, found = (
        arrays(model.generate(ids, BeamSearch(2), max_length=6)) for ids in (SOURCE, left)
    )
    longest = expected.lengths.max()
    assert (found.ids[:, :, :longest] == expected.ids[:, :, :longest]).all()
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    targets = np.array([[0, 0, 5, 6, 3], [0, 0, 0, 7, 3], [9, 9, 8, 4, 3]])
    right = np.array([[5, 6, 3, 0, 0], [7, 3, 0, 0, 0], [9, 9, 8, 4, 3]])
    found, expected = (arrays(model.score(SOURCE, ids)) for ids in (targets, right))
    np.testing.assert_allclose(found.log_prob, expected.log_prob, atol=1e-5)


@both_cells
def test_gradients_are_finite_for_rows_that_are_all_padding(kind):
    model = shared(**kind)
    empty = np.zeros_like(SOURCE), np.zeros_like(TARGET)
    _, found = gradients(lambda: ops.sum(model(empty, training=True) ** 2), [], model)
    assert all(np.isfinite(gradient).all() for gradient in found)


@on_tensorflow
@pytest.mark.parametrize("cell", ["lstm", pytest.param("gru", marks=pytest.mark.slow)])
def test_no_graph_made_beside_a_gpu_needs_cudnn(cell, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: [kind])

    def operations(function, *shapes):
        specs = [tf.TensorSpec(shape, tf.int32) for shape in shapes]
        traced = tf.function(function, autograph=False)
        graph = traced.get_concrete_function(*specs).graph
        return {operation.type for operation in graph.get_operations()}

    plain = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}[cell](4)
    hidden = keras.layers.Embedding(9, 4, mask_zero=True)
    found = operations(lambda ids: plain(hidden(ids)), [None, None])
    assert found >= {"CudnnRNNV3", "Assert"}
    assert not plain.supports_jit
    model = made(cell=cell)
    for training in (False, True):
        found = operations(lambda *ids: model(ids, training=training), [None, 5], [None, 4])  # noqa: B023
        assert not found & {"CudnnRNNV3", "Assert"}
    assert all(layer.supports_jit for layer in model._flatten_layers())


@on_tensorflow
def test_keras_refuses_the_padding_of_batches_before_cudnn():
    # The reason why the model keeps to Keras's own loop on TensorFlow.
    import tensorflow as tf
    from keras.src.backend.tensorflow.rnn import _assert_valid_mask  # noqa: TID251

    data = PairDataset([[5, 6]] * 5, [[7]] * 5, tokens_per_batch=16, verbose=False)
    whole, filled = ((source != 0) for (source, _), _ in (data[0], data[1]))
    assert whole.any(axis=1).all()
    assert not filled.any(axis=1).all()
    _assert_valid_mask(tf.constant(whole))
    for mask in (filled, whole[:, ::-1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="right-padded"):
            _assert_valid_mask(tf.constant(mask))


@both_cells
def test_a_token_changes_no_logits_before_it(kind):
    model, changed = shared(**kind), TARGET.copy()
    changed[:, 2:] = 10
    before, after = logits(model, SOURCE, TARGET), logits(model, SOURCE, changed)
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert (before[0, 2:] != after[0, 2:]).any()


@kinds
def test_the_source_matters_wherever_it_differs(kind):
    model = shared(**kind)
    sources = np.repeat(SOURCE[:1], 5, axis=0)
    sources[range(4), range(4)] = 11
    *others, expected = logits(model, sources, np.repeat(TARGET[:1], 5, axis=0))
    for found in others:
        assert np.abs(found - expected).max() > 1e-4


@kinds
def test_a_score_is_that_of_the_ids_and_beam_one_is_greedy(kind):
    model = shared(**kind)
    result = arrays(model.generate(SOURCE, BeamSearch(3, length_penalty=1.0), max_length=5))
    scored = arrays(model.score(np.repeat(SOURCE, 3, axis=0), result.ids.reshape(9, 5)))
    expected = scored.log_prob / ((5 + scored.lengths) / 6)
    np.testing.assert_allclose(result.scores.ravel(), expected, atol=1e-5)
    greedy = arrays(model.generate(SOURCE, GreedySearch(), max_length=5))
    one = arrays(model.generate(SOURCE, BeamSearch(1, length_penalty=0.0), max_length=5))
    np.testing.assert_array_equal(greedy.ids, one.ids)


def test_alignments_are_the_attention_of_the_whole_output():
    model = made(attention="general")
    result = arrays(model.generate(SOURCE, BeamSearch(2, return_alignments=True), max_length=5))
    inputs = np.concatenate([np.full((3, 1), 2), result.ids[:, 0, :-1]], axis=1)
    (weights,) = model.attention_weights(SOURCE, inputs)
    weights = array(weights)[:, 0]
    for row, length in enumerate(result.lengths[:, 0]):
        np.testing.assert_allclose(
            result.alignments[row, 0, :length], weights[row, :length], atol=1e-5
        )
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    assert (weights[1][:, 3:] == 0).all()


def test_sampling_and_prefixes_work_too():
    model = shared()
    result = arrays(model.generate(SOURCE, Sampling(seed=1), max_length=4))
    assert result.ids.shape == (3, 1, 4)
    prefix = np.array([[8, 9], [7, 0], [0, 0]])
    forced = arrays(model.generate(SOURCE, BeamSearch(2), max_length=4, prefix_ids=prefix))
    assert forced.ids[0, :, :2].tolist() == [[8, 9], [8, 9]]
    assert forced.ids[1, :, 0].tolist() == [7, 7]


@kinds
def test_files_reload_to_the_same_bits(kind, tmp_path):
    model = made(**kind, dropout=0.2)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(logits(again, SOURCE, TARGET), logits(model, SOURCE, TARGET))
    assert again.get_config() == model.get_config()
    model.save_weights(tmp_path / "model.weights.h5")
    fresh = RecurrentSeq2Seq.from_config(model.get_config())
    fresh.build()
    fresh.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(logits(fresh, SOURCE, TARGET), logits(model, SOURCE, TARGET))


def test_dropout_is_on_in_training_alone():
    model = made(dropout=0.5)
    np.testing.assert_array_equal(logits(model, SOURCE, TARGET), logits(model, SOURCE, TARGET))
    first, second = (array(model((SOURCE, TARGET), training=True)) for _ in range(2))
    assert (first != second).any()


@pytest.mark.parametrize(
    "policy", [pytest.param("mixed_bfloat16", marks=pytest.mark.slow), "mixed_float16"]
)
def test_half_precision_gives_float32_logits_near_those_of_float32(policy):
    expected = logits(shared(), SOURCE, TARGET)
    keras.utils.set_random_seed(7)
    half = RecurrentSeq2Seq(12, num_layers=2, d_model=16, dtype=policy)
    found = half((SOURCE, TARGET))
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(array(found), expected, atol=0.1)


@on_tensorflow
def test_float16_trains_every_weight_of_a_cosine():
    # A gradient that is not finite would be skipped by the optimizer, and no weight change.
    model = made(num_layers=1, attention="cosine", dtype="mixed_float16")
    model.compile(keras.optimizers.SGD(0.1), MaskedCrossentropy(), run_eagerly=True)
    before = [array(weight) for weight in model.trainable_variables]
    labels = np.pad(TARGET[:, 1:], [(0, 0), (0, 1)])
    history = model.fit((SOURCE, TARGET), labels, epochs=2, verbose=0).history["loss"]
    assert history[-1] < history[0]
    for weight, old in zip(model.trainable_variables, before, strict=True):
        assert (array(weight) != old).any(), weight.path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "attention", "count", "epochs"),
    [
        # Some sentences by heart, and elsewhere no others: a step takes much longer there.
        ("lstm", "additive", 8, 40),
        ("gru", "scaled_dot", *((256, 30) if BACKEND == "tensorflow" else (8, 40))),
    ],
    ids=["lstm", "gru"],
)
def test_it_learns_to_reverse_by_fit_and_searches_what_it_learned(cell, attention, count, epochs):
    rows = np.random.default_rng(3).integers(4, 12, (count, 4))
    source = np.pad(rows, [(0, 0), (0, 1)], constant_values=3)
    target = np.pad(rows[:, ::-1], [(0, 0), (0, 1)], constant_values=3)
    inputs = np.pad(target[:, :-1], [(0, 0), (1, 0)], constant_values=2)
    keras.utils.set_random_seed(1)
    model = RecurrentSeq2Seq(12, d_model=64, dropout=0.0, cell=cell, attention=attention)
    model.compile(keras.optimizers.Adam(5e-3), MaskedCrossentropy())
    model.fit((source, inputs), target, batch_size=32, epochs=epochs, verbose=0)
    found = arrays(model.generate(source[:32], BeamSearch(2), max_length=5))
    assert np.mean((found.ids[:, 0] == target[:32]).all(axis=1)) > 0.9


@pytest.mark.parametrize(
    ("argument", "value"),
    [("d_model", 7), ("cell", "rnn"), ("attention", "euclid"), ("num_layers", 0), ("dropout", 1)],
)
def test_a_bad_argument_is_refused(argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` must"):
        RecurrentSeq2Seq(**{"vocab_size": 12, argument: value})
