"""Scheduled sampling: what the decoder is given, in training alone, and a share that grows."""

import keras
import numpy as np
import pytest

from keras_transformer import MaskedCrossentropy, RecurrentSeq2Seq
from keras_transformer.callbacks import ExactResume
from tests.backends import BACKEND, array
from tests.models.small_recurrent import SOURCE, TARGET, logits, made

LABELS = np.pad(TARGET[:, 1:], [(0, 0), (0, 1)])


def late(steps=2):
    """Teacher forcing up to this step, from then on nearly none of it."""
    return keras.optimizers.schedules.PiecewiseConstantDecay([steps], [0.0, 0.999])


def losses(model, epochs, callbacks=(), eagerly=BACKEND != "jax", **options):
    """The loss of each step; an epoch is one."""
    model.run_eagerly = eagerly
    options |= {"callbacks": list(callbacks), "shuffle": False, "verbose": 0}
    return model.fit((SOURCE, TARGET), LABELS, epochs=epochs, **options).history["loss"]


def compiled(rate=0.0, **options):
    model = made(num_layers=1, dropout=0.0, **options)
    model.set_weights(made(num_layers=1).get_weights())  # the same with a seed and without
    model.compile(keras.optimizers.SGD(rate), MaskedCrossentropy())
    return model


def test_the_decoder_is_given_its_own_words_in_training_alone():
    model = made(dropout=0.0, scheduled_sampling=0.9)
    plain = made(dropout=0.0)
    plain.set_weights(model.get_weights())
    np.testing.assert_array_equal(logits(model, SOURCE, TARGET), logits(plain, SOURCE, TARGET))
    mixed = array(model((SOURCE, TARGET), training=True))
    taught = array(plain((SOURCE, TARGET), training=True))
    np.testing.assert_array_equal(mixed[:, 0], taught[:, 0])  # `bos_id` is always given
    assert (mixed[0] != taught[0]).any()
    ids = array(model._sample_targets(TARGET, model.encode(SOURCE), SOURCE))
    assert ((ids == 0) == (TARGET == 0)).all()
    taught[..., [0, 2]] = -np.inf  # neither padding nor `bos_id` is ever written
    written = np.argmax(taught, axis=-1)[:, :-1]
    kept = ids[:, 1:] == TARGET[:, 1:]
    assert (kept | (ids[:, 1:] == written)).all()
    assert not kept.all()


def test_what_no_search_may_write_is_never_given():
    model = made(scheduled_sampling=0.999)
    kernel = model.target_embedding.weights[0]
    rows = np.array(array(kernel))
    # However strongly the model wants padding and `bos_id`, with either sign of its states.
    rows[0], rows[2] = 50.0, -50.0
    kernel.assign(rows)
    ids = array(model._sample_targets(TARGET, model.encode(SOURCE), SOURCE))
    assert not np.isin(ids[:, 1:][TARGET[:, 1:] != 0], (0, 2)).any()


def test_the_first_token_stays_bos_with_padding_on_the_left():
    model = made(scheduled_sampling=0.999)
    left = np.array([[2, 5, 6, 9], [0, 0, 2, 7], [0, 2, 9, 9]])
    for _ in range(3):
        ids = array(model._sample_targets(left, model.encode(SOURCE), SOURCE))
        assert ((ids == 2) == (left == 2)).all()
        assert ((ids == 0) == (left == 0)).all()


@pytest.mark.slow
def test_a_schedule_changes_the_share_from_step_to_step_of_fit():
    (expected,) = losses(compiled(scheduled_sampling=0.0), epochs=1)
    found = losses(compiled(scheduled_sampling=late()), epochs=5, eagerly=False)
    taught = found[0]
    assert taught == pytest.approx(expected, rel=1e-5)
    assert found[:3] == [taught] * 3
    assert taught not in found[3:]


def test_a_schedule_adds_no_weight_and_goes_into_files(tmp_path):
    model = compiled(scheduled_sampling=late())
    assert len(model.weights) == len(compiled().weights)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_config() == model.get_config()
    assert again.scheduled_sampling.get_config() == late().get_config()
    np.testing.assert_array_equal(logits(again, SOURCE, TARGET), logits(model, SOURCE, TARGET))


@pytest.mark.slow
def test_a_resumed_training_goes_on_in_the_schedule(tmp_path):
    options = {"rate": 0.1, "scheduled_sampling": late(steps=1)}
    whole = losses(compiled(**options), epochs=3)
    first = losses(compiled(**options), epochs=1, callbacks=[ExactResume(tmp_path)])
    resume = ExactResume(tmp_path)
    second = losses(compiled(**options), epochs=3, callbacks=[resume], initial_epoch=resume.epoch)
    assert first + second == whole


@pytest.mark.parametrize("share", [1.0, -0.1, "half", lambda step: 0.5])
def test_what_is_neither_share_nor_schedule_is_refused(share):
    with pytest.raises(ValueError, match="`scheduled_sampling` must be .* Received: "):
        RecurrentSeq2Seq(12, scheduled_sampling=share)
