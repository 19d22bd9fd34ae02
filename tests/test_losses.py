"""The masked cross-entropy: smoothing by hand, and a mean over real tokens alone."""

import math

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import MaskedCrossentropy, Perplexity
from tests.backends import BACKEND, array, compiled, gradients, normal, on_tensorflow, with_mask
from tests.numpy_reference import log_softmax

BATCH, LENGTH, VOCAB = 2, 5, 7
LABELS = np.array([[3, 1, 6, 0, 0], [2, 0, 0, 0, 0]], "int32")
LOGITS = normal(1, BATCH, LENGTH, VOCAB, scale=2.0)


def loss_of(labels, logits, *, sample_weight=None, **arguments):
    value = MaskedCrossentropy(**arguments)(labels, logits, sample_weight=sample_weight)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    return float(array(value))


def token_losses(labels, logits, smoothing=0.0):
    """The definition, with the one-hot targets that the package avoids; real tokens only."""
    vocab = logits.shape[-1]
    targets = (1 - smoothing) * np.eye(vocab)[labels] + smoothing / vocab
    return -np.sum(targets * log_softmax(logits), axis=-1)[labels != 0]


def test_smoothed_loss_by_hand():
    # Logits log 1, log 2, log 5 are the probabilities 1/8, 2/8, 5/8. With label 2 and smoothing 0.3
    # each of the 3 entries gets `0.3 / 3 = 0.1` and the label 0.7 more: targets 0.1, 0.1, 0.8.
    logits = np.log([[[1.0, 2.0, 5.0]]]).astype("float32")
    by_hand = -(0.1 * math.log(1 / 8) + 0.1 * math.log(2 / 8) + 0.8 * math.log(5 / 8))
    assert loss_of(np.array([[2]]), logits, label_smoothing=0.3) == pytest.approx(by_hand, abs=1e-6)
    assert loss_of(np.array([[2]]), logits) == pytest.approx(-math.log(5 / 8), abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_equals_keras_categorical_crossentropy_on_one_hot_labels(smoothing):
    theirs = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing, reduction="mean_with_sample_weight"
    )
    one_hot, weight = np.eye(VOCAB, dtype="float32")[LABELS], (LABELS != 0).astype("float32")
    expected = float(array(theirs(one_hot, LOGITS, sample_weight=weight)))
    ours = loss_of(LABELS, LOGITS, label_smoothing=smoothing)
    assert ours == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_is_the_mean_over_real_tokens(smoothing):
    expected = np.mean(token_losses(LABELS, LOGITS, smoothing))
    assert loss_of(LABELS, LOGITS, label_smoothing=smoothing) == pytest.approx(expected, abs=1e-6)


def test_more_padding_changes_nothing():
    labels = np.pad(LABELS, [(0, 0), (0, 6)])
    logits = np.concatenate([LOGITS, normal(2, BATCH, 6, VOCAB, scale=50.0)], axis=1)
    assert loss_of(labels, logits) == pytest.approx(loss_of(LABELS, LOGITS), abs=1e-6)


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=2, max_size=5),
    split=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_splitting_a_batch_changes_nothing_when_parts_count_by_their_tokens(lengths, split, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(1, VOCAB, size=(len(lengths), 6))
    labels = np.where(np.arange(6) < np.array(lengths)[:, None], labels, 0)
    logits = random.normal(size=(*labels.shape, VOCAB)).astype("float32")
    total = 0.0
    for part in (slice(None, split), slice(split, None)):
        if labels[part].size:
            total += loss_of(labels[part], logits[part]) * np.sum(labels[part] != 0)
    whole = loss_of(labels, logits) * np.sum(labels != 0)
    assert whole == pytest.approx(total, abs=1e-4)


def test_another_padding_id_counts_the_tokens_it_does_not_name():
    labels = np.where(LABELS == 0, 6, LABELS)
    losses = token_losses(np.where(labels == 6, 0, labels), LOGITS)
    assert loss_of(labels, LOGITS, pad_id=6) == pytest.approx(np.mean(losses), abs=1e-6)


def test_sample_weights_weigh_tokens():
    weight = normal(3, BATCH, LENGTH) ** 2
    kept = weight[LABELS != 0]
    expected = np.sum(token_losses(LABELS, LOGITS) * kept) / np.sum(kept)
    assert loss_of(LABELS, LOGITS, sample_weight=weight) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("shape", [(BATCH,), (BATCH, 1)], ids=str)
@pytest.mark.parametrize("length", [LENGTH, BATCH], ids=["longer", "as many tokens as sentences"])
def test_a_weight_for_each_sentence_weighs_its_tokens(shape, length, reduction):
    labels, logits, weight = LABELS[:, :length], LOGITS[:, :length], np.array([2.0, 0.5], "float32")
    spread = np.repeat(weight[:, None], length, axis=1)
    expected = loss_of(labels, logits, sample_weight=spread, reduction=reduction)
    found = loss_of(labels, logits, sample_weight=weight.reshape(shape), reduction=reduction)
    assert found == pytest.approx(expected, rel=1e-6)
    uniform = loss_of(labels, logits, sample_weight=np.ones(shape), reduction=reduction)
    assert uniform != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("shape", [(), (3,), (3, 5), (1, 5), (2, 4), (5, 2), (2, 5, 1)], ids=str)
def test_weights_that_do_not_fit_the_labels_are_refused(shape):
    with pytest.raises(ValueError, match="`sample_weight` must have shape") as caught:
        loss_of(LABELS, LOGITS, sample_weight=np.ones(shape, "float32"))
    assert f"sample_weight of shape {shape} for labels of shape (2, 5)" in str(caught.value)


@on_tensorflow
def test_weights_and_labels_of_an_unknown_number_of_axes_are_refused():
    import tensorflow as tf

    loss = MaskedCrossentropy()
    unknown = tf.TensorSpec(None)
    with pytest.raises(ValueError, match="Received: sample_weight of shape None for labels"):
        tf.function(lambda w: loss(LABELS, LOGITS, w)).get_concrete_function(unknown)
    with pytest.raises(ValueError, match="Received: y_true of shape None"):
        tf.function(lambda labels: loss(labels, LOGITS)).get_concrete_function(unknown)


def test_fit_takes_a_weight_for_each_sentence():
    weight = np.array([2.0, 0.5], "float32")
    histories = []
    for given_weight in (np.repeat(weight[:, None], LENGTH, axis=1), weight, weight[:, None]):
        keras.utils.set_random_seed(1)
        layers = [keras.Input((LENGTH,), dtype="int32"), keras.layers.Embedding(7, 7)]
        model = keras.Sequential(layers)
        options = dict(weighted_metrics=[Perplexity()], jit_compile=BACKEND == "jax")
        model.compile("sgd", MaskedCrossentropy(), **options)
        fit = model.fit(LABELS, LABELS, sample_weight=given_weight, epochs=2, verbose=0)
        histories.append(fit.history)
    for name, expected in histories[0].items():
        for history in histories[1:]:
            assert history[name] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_at_padding_reach_neither_loss_nor_gradients(bad):
    spoilt = np.where((LABELS == 0)[:, :, None], np.float32(bad), LOGITS)
    expected = loss_of(LABELS, LOGITS, label_smoothing=0.1)
    assert loss_of(LABELS, spoilt, label_smoothing=0.1) == pytest.approx(expected, abs=1e-6)
    (gradient,), _ = gradients(lambda x: MaskedCrossentropy(0.1)(LABELS, x), [spoilt])
    assert np.isfinite(gradient).all()
    assert (gradient[LABELS == 0] == 0).all()
    assert (gradient[LABELS != 0] != 0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_is_that_of_the_definition(smoothing, dtype):
    weights = np.abs(normal(2, BATCH, LENGTH))
    loss = MaskedCrossentropy(smoothing)
    (gradient,), _ = gradients(
        lambda x: 3.0 * loss(LABELS, ops.cast(x, dtype), sample_weight=weights), [LOGITS]
    )
    targets = (1 - smoothing) * np.eye(VOCAB)[LABELS] + smoothing / VOCAB
    shares = np.where(LABELS != 0, weights, 0) / weights[LABELS != 0].sum()
    expected = 3.0 * shares[..., None] * (np.exp(log_softmax(LOGITS)) - targets)
    np.testing.assert_allclose(gradient, expected, atol=1e-6 if dtype == "float32" else 1e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])  # float16 has -inf there
def test_ids_that_no_output_has_get_no_smoothing(dtype):
    """The loss and its gradient are those of a vocabulary without them."""
    unused, used = [0, 4], [1, 2, 3, 5, 6]
    labels = np.array([[0, 4, 3, 1], [2, 1, 0, 0]], "int32")  # among the 5 used; 3 and 1 are 5, 2
    whole = np.array(used)[labels]
    small = normal(7, 2, 4, 5, scale=2.0)
    logits = np.full((2, 4, 7), np.float32(-1e9))
    logits[:, :, used] = small
    losses, gradients_of = [], []
    for given_labels, given_logits, ids in ((labels, small, ()), (whole, logits, unused)):
        loss = MaskedCrossentropy(0.1, pad_id=9, unused_ids=ids)

        def value(logits):
            return loss(given_labels, ops.cast(logits, dtype))  # noqa: B023

        losses.append(float(array(value(ops.convert_to_tensor(given_logits)))))
        gradients_of.append(gradients(value, [given_logits])[0][0])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert (gradients_of[1][:, :, unused] == 0).all()
    np.testing.assert_allclose(gradients_of[1][:, :, used], gradients_of[0], atol=1e-6)
    plain = MaskedCrossentropy(0.1, pad_id=9)(whole, logits)
    assert float(array(plain)) > 1e7  # what they would make of the loss


def test_unused_ids_must_be_some_of_the_vocabulary():
    for ids in ([7], [*range(7)]):
        loss = MaskedCrossentropy(0.1, unused_ids=ids)
        with pytest.raises(ValueError, match="`unused_ids` must be below the 7 entries") as caught:
            loss(LABELS, LOGITS)
        assert f"unused_ids={ids}" in str(caught.value)
    with pytest.raises(ValueError, match="`unused_ids` must be"):
        MaskedCrossentropy(unused_ids=[-1])
    with pytest.raises(ValueError, match="`unused_ids` must be"):
        MaskedCrossentropy(unused_ids=["a"])


@on_tensorflow
def test_the_gradient_spreads_no_labels_over_a_tensor_of_zeros():
    import tensorflow as tf

    @tf.function(autograph=False)
    def gradient(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = MaskedCrossentropy(0.1)(LABELS, logits)
        return tape.gradient(loss, logits)

    operations = gradient.get_concrete_function(tf.constant(LOGITS)).graph.get_operations()
    kinds = {op.type for op in operations}
    assert "Exp" in kinds
    assert not {kind for kind in kinds if "Segment" in kind or "Scatter" in kind}


@pytest.mark.parametrize("masked", [False, True], ids=["plain logits", "masked logits"])
def test_a_batch_without_real_tokens_has_loss_0_and_finite_gradients(masked):
    nothing = np.zeros_like(LABELS)

    def loss(logits):
        if masked:
            logits = with_mask(logits, ops.convert_to_tensor(nothing != 0))
        return MaskedCrossentropy(0.1)(nothing, logits)

    assert float(array(loss(ops.convert_to_tensor(LOGITS)))) == 0.0
    (gradient,), _ = gradients(loss, [LOGITS])
    assert (gradient == 0).all()


def test_labels_alone_say_what_counts_even_when_the_logits_carry_a_mask():
    mask = np.zeros_like(LABELS, bool)
    mask[0, 0] = True
    logits = with_mask(ops.convert_to_tensor(LOGITS), ops.convert_to_tensor(mask))
    assert loss_of(LABELS, logits) == pytest.approx(loss_of(LABELS, LOGITS), abs=1e-6)


@pytest.fixture(params=["float32", "float16", "bfloat16"])
def floatx(request):
    keras.config.set_floatx(request.param)
    yield request.param
    keras.config.set_floatx("float32")


@pytest.mark.usefixtures("floatx")
def test_labels_of_a_large_vocabulary_are_read_exactly_in_every_precision():
    # bfloat16 holds integers up to 256 exactly, float16 up to 2048: a label cast to either moves.
    vocab = 2**20
    for label in (257, 2049, vocab - 1):
        logits = np.zeros((1, 1, vocab), "float32")
        logits[0, 0, label] = 20.0  # exp(20) = 4.9e8 is most of the mass: the loss is near 0
        expected = math.log(math.exp(20) + vocab - 1) - 20
        assert loss_of(np.array([[label]]), logits) == pytest.approx(expected, abs=1e-5)


def test_half_precision_logits_are_normalised_in_float32():
    # In float16, exp(12) = 162754 overflows; the loss of a wrong token is 24 + log(1 + exp(-24)).
    logits = ops.convert_to_tensor(np.array([[[-12.0, -12.0, 12.0]]], "float16"))
    assert loss_of(np.array([[1]]), logits) == pytest.approx(24.0, abs=1e-3)


def test_inside_a_compiled_function_with_open_shapes():
    loss = MaskedCrossentropy(0.1)
    run = compiled(lambda labels, logits: loss(labels, logits), [LABELS, LOGITS])
    for length in (LENGTH, 3):
        labels, logits = LABELS[:, :length], LOGITS[:, :length]
        expected = np.mean(token_losses(labels, logits, 0.1))
        assert float(array(run(labels, logits))) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("labels", "logits"), [((2, 5, 1), (2, 5, 7)), ((2,), (2, 7)), ((2, 5), (2, 5))]
)
def test_shapes_that_do_not_fit_are_refused_by_name(labels, logits):
    with pytest.raises(ValueError, match="`y_true` must have shape") as caught:
        loss_of(np.ones(labels, "int32"), np.ones(logits, "float32"))
    assert str(labels) in str(caught.value)
    assert str(logits) in str(caught.value)


def test_a_sum_takes_the_weights_as_they_are_and_without_any_is_the_mean():
    random = np.random.default_rng(3)
    logits = random.normal(size=(2, 3, 7)).astype("float32")
    labels = np.array([[4, 5, 0], [6, 0, 0]])
    total = MaskedCrossentropy(0.1, reduction="sum")
    mean = float(MaskedCrossentropy(0.1)(labels, logits))
    assert float(total(labels, logits)) == pytest.approx(mean, rel=1e-6)
    weights = np.full((2, 3), 0.5, "float32")
    assert float(total(labels, logits, weights)) == pytest.approx(mean * 3 / 2, rel=1e-6)
    assert float(total(np.zeros_like(labels), logits)) == 0
    twin = MaskedCrossentropy.from_config(total.get_config())
    assert float(twin(labels, logits, weights)) == float(total(labels, logits, weights))
    with pytest.raises(ValueError, match="`reduction` must be one of 'mean', 'sum'"):
        MaskedCrossentropy(reduction="none")


@pytest.mark.parametrize("label", [-1, 9])
def test_a_label_outside_the_vocabulary_is_never_taken_for_another(label):
    batch = np.array([[1, label]], "int32"), normal(5, 1, 2, 4)
    run = compiled(MaskedCrossentropy(0.1), batch)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        # Under XLA, which reads no label outside; TensorFlow's own kernel refuses one.
        run = tf.function(MaskedCrossentropy(0.1), jit_compile=True, autograph=False)
    assert math.isnan(float(array(run(*batch))))


def test_labels_may_be_whole_floats_and_fractions_are_refused():
    floats = LABELS.astype("float32")
    assert loss_of(floats, LOGITS) == loss_of(LABELS, LOGITS)
    with pytest.raises(ValueError, match="`y_true` must be integers, or whole.* with 3.5"):
        loss_of(floats + np.float32(0.5), LOGITS)
