"""The whole model: masks, causality, precision, dropout, files, and cached decoding."""

import math
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    BeamSearch,
    GreedySearch,
    MaskedAccuracy,
    MaskedCrossentropy,
    Perplexity,
    Transformer,
    WarmupSchedule,
)
from keras_transformer.layers import Dropout, LearnedPositionalEncoding, PositionalEncoding
from keras_transformer.models.transformer_step import TransformerStep
from tests.backends import (
    POLICIES,
    WAYS,
    array,
    arrays,
    gradients,
    on_jax,
    on_tensorflow,
    prepared,
)
from tests.models.small_transformer import (
    EOS,
    PAD,
    REAL,
    SIZES,
    SOURCE_IDS,
    TARGET_IDS,
    VOCAB,
    Forced,
    built,
    logits_of,
    padded,
    random_targets,
    rescored,
    with_changed_tokens,
)
from tests.numpy_reference import log_softmax
from tests.selection import spread

REPOSITORY = Path(__file__).resolve().parents[2]
BOTH_NORMS = pytest.mark.parametrize("norm_first", [False, True])


# --- Masks and causality.


LEFT = np.array([[0, 5, 6, 7, 8, 3], [0, 0, 0, 9, 4, 3]]), np.array([[2, 9, 5], [0, 2, 6]])
LEFT = tuple(ids.astype("int32") for ids in LEFT)  # SOURCE_IDS and TARGET_IDS, padded on the left


@pytest.mark.parametrize(("way", "norm_first"), spread(WAYS, [False, True]))
def test_logits_depend_on_real_tokens_alone(way, norm_first, tmp_path):
    model = built(norm_first=norm_first, num_layers=2 if way == "eager" else 1)
    run = prepared(way, lambda s, t: model((s, t)), [SOURCE_IDS, TARGET_IDS], tmp_path)
    logits = run(SOURCE_IDS, TARGET_IDS)
    assert logits.shape == (2, 5, VOCAB)
    longer = run(padded(SOURCE_IDS, 6), padded(TARGET_IDS, 8))
    np.testing.assert_allclose(longer[:, :5][REAL], logits[REAL], atol=1e-6, rtol=0)
    alone = run(SOURCE_IDS[1:, :3], TARGET_IDS[1:, :2])
    np.testing.assert_allclose(alone[0], logits[1, :2], atol=1e-6, rtol=0)
    other_neighbour = SOURCE_IDS.copy()
    other_neighbour[0] = [4, 4, 4, 4, 4, 4, 3]
    beside = run(other_neighbour, TARGET_IDS)
    np.testing.assert_allclose(beside[1], logits[1], atol=1e-6, rtol=0)
    left = run(*LEFT)
    np.testing.assert_allclose(left[0], logits[0, :3], atol=2e-6)
    np.testing.assert_allclose(left[1, 1:], logits[1, :2], atol=2e-6)
    # What the sentence does hold matters.
    other_word = SOURCE_IDS.copy()
    other_word[:, 1] = 11
    assert (np.abs(run(other_word, TARGET_IDS) - logits)[REAL].max(axis=-1) > 1e-4).all()


@pytest.mark.parametrize(
    "policy", ["mixed_float16", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)]
)
def test_padding_on_the_left_changes_next_to_nothing_in_half_precision(policy):
    model = built(dtype=policy)
    expected, found = logits_of(model), logits_of(model, *LEFT)
    np.testing.assert_allclose(found[0], expected[0, :3], atol=0.02)
    np.testing.assert_allclose(found[1, 1:], expected[1, :2], atol=0.02)


def test_the_padding_id_is_the_models_own():
    model = built(pad_id=1)
    swap = np.vectorize(lambda i: {0: 1, 1: 0}.get(i, i))
    source_ids, target_ids = swap(SOURCE_IDS), swap(TARGET_IDS)
    logits = logits_of(model, source_ids, target_ids)
    longer = np.pad(source_ids, [(0, 0), (0, 4)], constant_values=1)
    np.testing.assert_allclose(logits_of(model, longer, target_ids), logits, atol=1e-6)


@BOTH_NORMS
def test_changing_a_token_changes_no_logits_before_it(norm_first):
    for position, before, after in with_changed_tokens(built(norm_first=norm_first)):
        assert (after[:, :position] == before[:, :position]).all()
        assert (np.abs(after - before)[:, position:].max(axis=(0, 2)) > 1e-4).all()


def test_encode_and_decode_are_the_model_in_two_halves():
    model = built()
    memory = model.encode(SOURCE_IDS)
    assert memory.shape == (2, 7, 15)
    logits = array(model.decode(TARGET_IDS, memory, SOURCE_IDS))
    assert (logits == logits_of(model)).all()


# --- Vocabularies.


def test_self_attention_weights_are_rows_over_the_tokens_that_may_be_seen():
    model = built(num_layers=2)
    of_source, of_target = model.self_attention_weights(SOURCE_IDS, TARGET_IDS)
    assert len(of_source) == len(of_target) == 2
    for weights, ids in ((of_source, SOURCE_IDS), (of_target, TARGET_IDS)):
        seen = np.broadcast_to((ids > 0)[:, None, None, :], weights[0].shape)
        if ids is TARGET_IDS:
            seen = np.tril(seen)
        for found in map(array, weights):
            np.testing.assert_array_equal(found > 0, seen)
            np.testing.assert_allclose(found.sum(axis=-1), 1.0, atol=1e-5)


def test_one_vocabulary_is_one_matrix_and_two_are_two():
    joint, separate = built(), built(vocab_size=None, source_vocab_size=11, target_vocab_size=19)
    assert joint.count_params() + 11 * 15 + (19 - VOCAB) * 15 == separate.count_params()
    assert [w.shape for w in joint.weights].count((VOCAB, 15)) == 1
    logits = logits_of(separate, SOURCE_IDS, TARGET_IDS)
    assert logits.shape == (2, 5, 19)


@pytest.mark.parametrize("name", ["source_ids", "target_ids"])
def test_ids_that_are_not_integers_are_refused(name):
    model, floats = built(), TARGET_IDS + 0.5
    memory = model.encode(TARGET_IDS)
    calls = {
        "source_ids": lambda: model.encode(floats),
        "target_ids": lambda: model.decode(floats, memory, TARGET_IDS),
    }
    with pytest.raises(ValueError, match=f"`{name}` must be integers.*Received: .*with 2.5"):
        calls[name]()


# --- Precision.


@pytest.mark.parametrize(("policy", "norm_first"), spread(POLICIES, [False, True]))
def test_logits_are_float32_and_close_to_float32_under_every_policy(policy, norm_first):
    exact, model = built(norm_first=norm_first), built(norm_first=norm_first, dtype=policy)
    logits = model((SOURCE_IDS, TARGET_IDS))
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    expected = logits_of(exact)
    tolerance = {"float32": 1e-6, "mixed_float16": 1e-2, "mixed_bfloat16": 1e-1}[policy]
    assert np.abs(array(logits) - expected).max() < tolerance * np.abs(expected).max()


@pytest.mark.parametrize(
    ("policy", "norm_first"),
    [("mixed_float16", False), pytest.param("mixed_bfloat16", True, marks=pytest.mark.slow)],
)
def test_large_activations_give_no_nan_in_half_precision(policy, norm_first):
    # Queries, keys and embeddings ten times their size; all of a source is padding in one row.
    model = built(dtype=policy, d_model=64, num_heads=2, norm_first=norm_first, scale=0.6)
    source_ids = SOURCE_IDS.copy()
    source_ids[1] = PAD
    assert np.isfinite(logits_of(model, source_ids)).all()
    result = arrays(model.generate(source_ids, BeamSearch(2), max_length=3))
    assert np.isfinite(result.scores).all()


def test_gradients_are_finite_for_a_sentence_without_tokens():
    model = built()
    source_ids, labels = SOURCE_IDS.copy(), TARGET_IDS.copy()
    source_ids[1], labels[1] = PAD, PAD

    def loss():
        return MaskedCrossentropy(0.1)(labels, model((source_ids, TARGET_IDS)))

    _, by_weight = gradients(loss, [], model)
    assert all(np.isfinite(gradient).all() for gradient in by_weight)
    # Every weight learns, but for the biases of the keys, which change no attention weight.
    idle = [
        v.path
        for v, g in zip(model.trainable_variables, by_weight, strict=True)
        if np.abs(g).max() < 1e-7
    ]
    assert all(path.endswith("key/bias") for path in idle)


# --- Training.


def compiled_model(**arguments):
    keras.utils.set_random_seed(1)
    model = Transformer(**{"vocab_size": VOCAB, **SIZES, **arguments})
    model.compile(
        optimizer=keras.optimizers.Adam(WarmupSchedule(15, warmup_steps=80), beta_2=0.98),
        loss=MaskedCrossentropy(label_smoothing=0.1),
        metrics=[MaskedAccuracy(), Perplexity()],
    )
    return model


LABELS = np.array([[9, 5, 3, 0, 0], [6, 3, 0, 0, 0]], "int32")


@BOTH_NORMS
def test_more_padding_changes_no_gradient(norm_first):
    model = built(norm_first=norm_first, dropout=0.0)
    found = []
    for more in (0, 4):
        inputs = padded(SOURCE_IDS, more), padded(TARGET_IDS, more + 1)
        labels = padded(LABELS, more + 1)
        loss = lambda x=inputs, y=labels: MaskedCrossentropy(0.1)(y, model(x))  # noqa: E731
        found.append(gradients(loss, [], model)[1])
    for gradient, same in zip(*found, strict=True):
        np.testing.assert_allclose(same, gradient, atol=1e-5)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("position", [PositionalEncoding(), LearnedPositionalEncoding(9)])
def test_padding_on_the_left_changes_no_gradient(position):
    model, found = built(position=position, dropout=0.0), []
    for inputs, labels in (
        ((SOURCE_IDS, TARGET_IDS), LABELS),
        (LEFT, np.array([[9, 5, 3], [0, 6, 3]], "int32")),
    ):
        loss = lambda x=inputs, y=labels: MaskedCrossentropy(0.1)(y, model(x))  # noqa: E731
        found.append(gradients(loss, [], model)[1])
    for gradient, same in zip(*found, strict=True):
        np.testing.assert_allclose(same, gradient, atol=1e-5)


@pytest.fixture
def dropouts(monkeypatch):
    """Records the `training` flag of every dropout inside, by the path of its layer."""
    seen = []
    call = Dropout.call

    def recorded(self, inputs, training=False):
        if self.rate:
            seen.append((self, bool(training)))
        return call(self, inputs, training=training)

    monkeypatch.setattr(Dropout, "call", recorded)
    return seen


# Two for the embeddings, two in the encoder's layer and three in the decoder's.
NUM_DROPOUTS = 2 + 2 + 3


def test_fit_learns_two_sentences_by_heart_with_every_dropout_on_and_generates_them(dropouts):
    model = compiled_model(dropout=0.02, num_layers=1)
    model.build()
    pairs = ((SOURCE_IDS, TARGET_IDS), LABELS)
    often = keras.tree.map_structure(lambda ids: np.tile(ids, (60, 1)), pairs)
    dropouts.clear()
    history = model.fit(*often, epochs=2, batch_size=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]
    assert len({id(layer) for layer, flag in dropouts if flag}) == NUM_DROPOUTS
    dropouts.clear()

    measured = model.evaluate(*pairs, verbose=0, return_dict=True)
    assert measured["masked_accuracy"] == 1.0
    assert measured["perplexity"] < 1.5
    expected = np.exp(
        -np.mean(
            np.take_along_axis(log_softmax(logits_of(model)), LABELS[..., None], -1)[..., 0][
                LABELS != 0
            ]
        )
    )
    assert measured["perplexity"] == pytest.approx(expected, rel=1e-3)
    result = arrays(model.generate(SOURCE_IDS, GreedySearch(), max_length=5))
    assert (result.ids[:, 0] == LABELS).all()
    model.predict((SOURCE_IDS, TARGET_IDS), verbose=0)
    assert len({id(layer) for layer, _ in dropouts}) == NUM_DROPOUTS
    assert not any(flag for _, flag in dropouts)


def test_training_calls_differ_and_are_reproducible_from_a_seed():
    def calls():
        keras.utils.set_random_seed(3)
        model = Transformer(vocab_size=VOCAB, **{**SIZES, "num_layers": 1}, dropout=0.5)
        inputs = (SOURCE_IDS, TARGET_IDS)
        return [array(model(inputs, training=flag)) for flag in (None, False, True, True)]

    first, again = calls(), calls()
    assert (first[0] == first[1]).all()
    assert np.abs(first[2] - first[0]).max() > 1e-2
    assert np.abs(first[3] - first[2]).max() > 1e-2
    for one, other in zip(first, again, strict=True):
        assert (one == other).all()


@pytest.mark.slow
def test_fit_with_dropout_is_reproducible_from_a_seed_and_differs_from_fit_without():
    def loss(dropout):
        model = compiled_model(dropout=dropout, num_layers=1)
        model.compile("sgd", MaskedCrossentropy(), run_eagerly=True)
        return model.fit((SOURCE_IDS, TARGET_IDS), LABELS, verbose=0).history["loss"]

    assert loss(0.5) == loss(0.5) != loss(0.0)


# --- Files.


RELOAD = """
import sys
import keras, numpy as np
import keras_transformer
from keras_transformer import Transformer

model = keras.models.load_model(sys.argv[1])
data = np.load(sys.argv[3])
config = model.get_config()
other = Transformer.from_config(config)
other.build()
other.load_weights(sys.argv[2])
for loaded in (model, other):
    logits = keras.ops.convert_to_numpy(loaded((data["source"], data["target"])))
    assert (logits == data["logits"]).all(), abs(logits - data["logits"]).max()
assert model.optimizer.iterations == 1
print("equal", len(model.weights))
"""


@pytest.mark.slow
def test_files_reload_bit_for_bit_in_a_fresh_process(tmp_path):
    model = compiled_model(num_layers=1, norm_first=True, activation="gelu")
    model.run_eagerly = True
    model.fit((SOURCE_IDS, TARGET_IDS), LABELS, verbose=0)
    files = [tmp_path / name for name in ("m.keras", "m.weights.h5", "data.npz")]
    model.save(files[0])
    model.save_weights(files[1])
    np.savez(files[2], source=SOURCE_IDS, target=TARGET_IDS, logits=logits_of(model))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", RELOAD, *map(str, files)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["equal", str(len(model.weights))]


@pytest.mark.parametrize(
    "policy",
    [*(pytest.param(p, marks=pytest.mark.slow) for p in POLICIES[:2]), "mixed_bfloat16"],
)
def test_a_loaded_model_keeps_policy_logits_and_generation(policy, tmp_path):
    sizes = {"vocab_size": None, "source_vocab_size": 11, "target_vocab_size": 19}
    model = built(**sizes, num_layers=1, dtype=policy)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    assert loaded.dtype_policy.name == policy
    assert (logits_of(loaded) == logits_of(model)).all()
    one, other = (arrays(m.generate(SOURCE_IDS, max_length=2)) for m in (model, loaded))
    assert (one.ids == other.ids).all()
    assert (one.scores == other.scores).all()


# --- Decoding.


@BOTH_NORMS
def test_cached_steps_equal_the_full_decoder_for_every_prefix(norm_first):
    model, targets = built(norm_first=norm_first), random_targets(beams=1)
    found = model.generate(SOURCE_IDS, Forced(targets), max_length=5)[:, 0]
    for length in (1, 3, 5):
        whole = logits_of(model, target_ids=targets[:, 0, :length])
        np.testing.assert_allclose(found[:, :length], whole, atol=2e-6)


def test_the_beams_of_a_sentence_have_caches_of_their_own_and_one_memory():
    model, targets = built(), random_targets(beams=3)
    found = model.generate(SOURCE_IDS, Forced(targets), max_length=7)
    for beam in range(3):
        whole = logits_of(model, target_ids=targets[:, beam])
        np.testing.assert_allclose(found[:, beam], whole, atol=2e-6)


@pytest.mark.parametrize(
    ("norm_first", "length_penalty"),
    [pytest.param(False, 0.0, marks=pytest.mark.slow), (True, 0.6)],
)
def test_a_score_is_the_rescored_log_probability_of_the_ids(norm_first, length_penalty):
    model = built(norm_first=norm_first, scale=0.2)
    search = BeamSearch(3, length_penalty)
    result = arrays(model.generate(SOURCE_IDS, search, max_length=7))
    expected = rescored(model, result, length_penalty)
    np.testing.assert_allclose(result.scores, expected, atol=1e-4)


class EndsSoon(TransformerStep):
    """A step that holds the end for the likeliest token by far."""

    def __call__(self, *args):
        logits, *rest = super().__call__(*args)
        return logits + 50.0 * ops.one_hot(EOS, VOCAB), *rest


def test_the_default_is_a_beam_of_4_and_50_tokens_more_than_the_source(monkeypatch):
    monkeypatch.setattr(Transformer, "step_class", EndsSoon)
    model = built(num_layers=1)
    result = model.generate(SOURCE_IDS[:, :5])
    assert tuple(result.ids.shape) == (2, 4, 55)


def test_a_source_and_an_output_of_a_single_token_need_no_warning():
    result = arrays(built().generate(np.array([[3]], "int32"), BeamSearch(2), max_length=1))
    assert result.ids.shape == (1, 2, 1)
    assert np.isfinite(result.scores).all()


@pytest.mark.parametrize("max_length", [0, -1, 2.5, True])
def test_a_max_length_that_is_no_positive_integer_is_refused(max_length):
    with pytest.raises(ValueError, match=f"`max_length` must .*max_length={max_length!r}"):
        built().generate(SOURCE_IDS, max_length=max_length)


@on_tensorflow
@pytest.mark.parametrize(
    ("search", "jit_compile"),
    [
        pytest.param(GreedySearch(), True, id="greedy-xla"),
        pytest.param(BeamSearch(3), False, id="beam-graph", marks=pytest.mark.slow),
    ],
)
def test_generate_is_traced_once_for_every_batch_and_length(search, jit_compile):
    import tensorflow as tf

    model, traces = built(scale=0.2, num_layers=1), []

    def generate(source_ids):
        traces.append(None)
        return model.generate(source_ids, search, max_length=5)

    run = tf.function(
        generate,
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        jit_compile=jit_compile,
        autograph=False,
    )
    for source_ids in (padded(SOURCE_IDS, 4), SOURCE_IDS[1:, :3]):
        found, expected = arrays(run(source_ids)), model.generate(source_ids, search, max_length=5)
        assert (found.ids == array(expected.ids)).all()
        np.testing.assert_allclose(found.scores, array(expected.scores), atol=1e-4)
    assert len(traces) == 1


# AutoGraph rewrites each function of the package: four times the time of a trace.
@on_tensorflow
@pytest.mark.parametrize("autograph", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_generate_without_max_length_follows_the_source_inside_a_tf_function(
    autograph, monkeypatch
):
    import tensorflow as tf

    monkeypatch.setattr(Transformer, "step_class", EndsSoon)
    model = built(num_layers=1)
    run = tf.function(
        lambda ids: model.generate(ids, GreedySearch()),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        autograph=autograph,
    )
    for length in (3, 7):
        source_ids = SOURCE_IDS[:, :length]
        found = arrays(run(source_ids))
        assert found.ids.shape == (2, 1, length + 50)
        assert (found.ids == array(model.generate(source_ids, GreedySearch()).ids)).all()


@on_jax
@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(3)], ids=["greedy", "beam"])
def test_generate_inside_jax_jit(search):
    import jax

    model = built(scale=0.2)
    run = jax.jit(lambda source_ids: model.generate(source_ids, search, max_length=7))
    found, expected = arrays(run(SOURCE_IDS)), model.generate(SOURCE_IDS, search, max_length=7)
    assert (found.ids == array(expected.ids)).all()
    np.testing.assert_allclose(found.scores, array(expected.scores), atol=1e-4)


def test_the_parameters_of_the_base_model_are_those_of_the_paper():
    # Table 3: 65 million with a joint vocabulary of about 37000. By hand, for d = 512:
    # attention `4 * (d * d + d)`, feed-forward `2 * d * 2048 + 2048 + d`, norm `2 * d`.
    d, ff = 512, 2048
    attention, ffn, norm = 4 * (d * d + d), 2 * d * ff + ff + d, 2 * d
    by_hand = 6 * (attention + ffn + 2 * norm) + 6 * (2 * attention + ffn + 3 * norm)
    model = Transformer(vocab_size=4)
    model.build()
    assert model.count_params() == by_hand + 4 * d
    assert math.isclose(by_hand + 37_000 * d, 65e6, rel_tol=0.03)
