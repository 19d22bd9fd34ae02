"""Accuracy and perplexity over real tokens, exact however the batches were made up."""

import math

import keras
import numpy as np
import pytest

from keras_transformer import MaskedAccuracy, MaskedCrossentropy, Perplexity, TokenCount
from keras_transformer.metrics import PaddingRatio
from tests.backends import array, normal
from tests.numpy_reference import log_softmax

VOCAB = 7
METRICS = (MaskedAccuracy, Perplexity)


def measured(metric, *batches):
    for batch in batches:
        metric.update_state(*batch)
    return float(array(metric.result()))


def test_accuracy_by_hand():
    # Real tokens: 3 is found, 1 is taken for 2, 2 is found; the padding is never asked.
    labels, guesses = np.array([[3, 1, 0], [2, 0, 0]]), [[3, 2, 0], [2, 5, 6]]
    logits = np.eye(VOCAB, dtype="float32")[guesses]
    assert measured(MaskedAccuracy(), (labels, logits)) == pytest.approx(2 / 3)


def test_tokens_of_a_training_are_not_those_of_its_validation():
    # On PyTorch Keras's Sum gives the running sum itself, to which validation adds.
    labels = np.array([[1, 2, 0], [3, 0, 0], [1, 2, 3]])
    model = keras.Sequential([keras.Input((3,), dtype="int32"), keras.layers.Embedding(4, 4)])
    model.compile("sgd", MaskedCrossentropy(), metrics=[TokenCount()])
    data, few = (labels, labels), (labels[:1], labels[:1])
    history = model.fit(*data, validation_data=few, epochs=2, batch_size=1, verbose=0).history
    assert (history["tokens"], history["val_tokens"]) == ([6.0, 6.0], [2.0, 2.0])


def test_perplexity_by_hand():
    # The two real tokens have probability 1/2 and 1/8: exp(mean(log 2, log 8)) = sqrt(16) = 4.
    logits = np.log([[[1, 2, 1], [5, 2, 1], [9, 9, 1]]]).astype("float32")
    labels = np.array([[1, 2, 0]])
    assert measured(Perplexity(), (labels, logits)) == pytest.approx(4.0, rel=1e-5)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary():
    labels, logits = np.array([[3, 1, 6]]), np.zeros((1, 3, VOCAB), "float32")
    assert measured(Perplexity(), (labels, logits)) == pytest.approx(VOCAB, rel=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_two_unequal_batches_equal_their_union(metric):
    labels = np.array([[3, 1, 6, 2, 5], [4, 2, 0, 0, 0], [1, 0, 0, 0, 0]])
    logits = normal(1, 3, 5, VOCAB, scale=3.0)
    logits[0, [0, 1], [3, 1]] = 9.0  # the first batch has 2 of 5 right, the second 1 of 3
    logits[1, 0, 4] = 9.0
    whole = measured(metric(), (labels, logits))
    # 5 tokens, then 3: a plain average of the two batches' values would weigh them alike.
    parts = measured(metric(), (labels[:1], logits[:1]), (labels[1:], logits[1:]))
    assert parts == pytest.approx(whole, rel=1e-5)
    # Batches of other lengths, as buckets make them: a token of a long row counts no less.
    short = measured(metric(), (labels[:1], logits[:1]), (labels[1:, :2], logits[1:, :2]))
    assert short == pytest.approx(whole, rel=1e-5)
    alone = [measured(metric(), (labels[rows], logits[rows])) for rows in ([0], [1, 2])]
    assert np.mean(alone) != pytest.approx(whole, rel=1e-3)


def test_perplexity_is_the_exponential_of_the_unsmoothed_loss():
    labels, logits = np.array([[3, 1, 0]]), normal(2, 1, 3, VOCAB)
    loss = float(array(MaskedCrossentropy()(labels, logits)))
    assert measured(Perplexity(), (labels, logits)) == pytest.approx(math.exp(loss), rel=1e-5)
    log_probs = log_softmax(logits)
    by_definition = math.exp(-(log_probs[0, 0, 3] + log_probs[0, 1, 1]) / 2)
    assert math.exp(loss) == pytest.approx(by_definition, rel=1e-5)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_padding_and_what_is_stored_there_changes_nothing(metric, bad):
    labels, logits = np.array([[3, 1], [6, 2]]), normal(3, 2, 2, VOCAB)
    padded = np.pad(labels, [(0, 0), (0, 5)])
    spoilt = np.concatenate([logits, np.full((2, 5, VOCAB), bad, "float32")], axis=1)
    expected = measured(metric(), (labels, logits))
    assert measured(metric(), (padded, spoilt)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("shape", [(2,), (2, 1)], ids=str)
@pytest.mark.parametrize("metric", METRICS)
def test_a_weight_for_each_sentence_weighs_its_tokens(metric, shape):
    labels, logits = np.array([[1, 2], [2, 0]]), normal(4, 2, 2, 4, scale=3.0)
    logits[0, 0, 1] = logits[1, 0, 1] = 20.0  # right in the first sentence alone
    weight = np.array([3.0, 1.0], "float32")
    spread = measured(metric(), (labels, logits, np.repeat(weight[:, None], 2, axis=1)))
    found = measured(metric(), (labels, logits, weight.reshape(shape)))
    assert found == pytest.approx(spread, rel=1e-5)
    assert measured(metric(), (labels, logits)) != pytest.approx(spread, rel=1e-3)


@pytest.mark.parametrize("metric", METRICS)
def test_weights_that_do_not_fit_the_labels_are_refused(metric):
    labels, logits = np.array([[1, 2], [2, 1]]), np.zeros((2, 2, 4), "float32")
    with pytest.raises(ValueError, match=r"Received: sample_weight of shape \(3,\) for labels"):
        metric().update_state(labels, logits, np.ones(3, "float32"))


@pytest.mark.parametrize("metric", METRICS)
def test_sample_weights_weigh_tokens(metric):
    labels, logits = np.array([[3, 1, 6]]), normal(4, 1, 3, VOCAB, scale=3.0)
    only_the_first = measured(metric(), (labels[:, :1], logits[:, :1]))
    weight = np.array([[5.0, 0.0, 0.0]], "float32")
    assert measured(metric(), (labels, logits, weight)) == pytest.approx(only_the_first, rel=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_reset_forgets_and_no_token_gives_a_number(metric):
    instance = metric()
    measured(instance, (np.array([[3, 1]]), normal(5, 1, 2, VOCAB)))
    instance.reset_state()
    nothing = measured(instance, (np.zeros((1, 2), "int32"), normal(6, 1, 2, VOCAB)))
    assert nothing == (0.0 if metric is MaskedAccuracy else 1.0)


@pytest.mark.parametrize("metric", METRICS)
def test_another_padding_id(metric):
    labels, logits = np.array([[3, 1, 6, 6]]), normal(7, 1, 4, VOCAB)
    expected = measured(metric(), (labels[:, :2], logits[:, :2]))
    assert measured(metric(pad_id=6), (labels, logits)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_labels_of_a_large_vocabulary_are_read_exactly_in_half_precision(metric):
    # bfloat16 would round 257 to 256, where the logits are low.
    logits = np.zeros((1, 1, 300), "float32")
    logits[0, 0, 257] = 30.0
    logits = keras.ops.cast(keras.ops.convert_to_tensor(logits), "bfloat16")
    assert measured(metric(), (np.array([[257]]), logits)) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_shapes_that_do_not_fit_are_refused(metric):
    with pytest.raises(ValueError, match=r"`y_true` must have shape .*\(2,\)"):
        metric().update_state(np.ones(2, "int32"), np.ones((2, 3, VOCAB), "float32"))


@pytest.mark.parametrize("metric_class", [*METRICS, TokenCount, PaddingRatio])
def test_labels_may_be_whole_floats_and_fractions_are_refused(metric_class):
    labels, logits = np.array([[3, 1, 0], [2, 0, 0]]), normal(1, 2, 3, VOCAB)
    floats = labels.astype("float32")
    wanted = measured(metric_class(), (labels, logits))
    assert measured(metric_class(), (floats, logits)) == wanted
    with pytest.raises(ValueError, match="`y_true` must be integers, or whole.* with 3.5"):
        metric_class().update_state(floats + np.float32(0.5), logits)
