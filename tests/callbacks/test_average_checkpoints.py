"""AverageCheckpoints gives the mean of the last epochs' weights."""

import keras
import numpy as np
import pytest

from keras_transformer.callbacks import AverageCheckpoints
from tests.backends import BACKEND, array

DATA = np.linspace(-1, 1, 12, dtype="float32")[:, None]


class NoteWeights(keras.callbacks.Callback):
    """Notes the weights after each epoch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append([array(weight) for weight in self.model.weights])


def small_model():
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(3), keras.layers.BatchNormalization()]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=BACKEND == "jax")
    return model


def fitted(directory, epochs=6, **arguments):
    model, note = small_model(), NoteWeights()
    average = AverageCheckpoints(directory, **arguments)
    callbacks = [note, average]
    model.fit(DATA, DATA * np.ones(3), epochs=epochs, verbose=0, callbacks=callbacks)
    return model, note.seen, average


def means(seen):
    return [np.mean(values, axis=0) for values in zip(*seen, strict=True)]


def assert_close(weights, expected):
    for weight, value in zip(weights, expected, strict=True):
        np.testing.assert_allclose(array(weight), value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("last", "kept"), [(1, 1), (4, 4), (10, 6)])
def test_the_model_ends_with_the_mean_of_the_last_epochs(tmp_path, last, kept):
    model, seen, average = fitted(tmp_path, last=last)
    assert [file.name for file in average.files()] == [
        f"weights-{epoch:04d}.npz" for epoch in range(7 - kept, 7)
    ]
    assert_close(model.weights, means(seen[-kept:]))


def test_the_mean_is_lent_and_given_back_also_after_an_error(tmp_path):
    model, seen, average = fitted(tmp_path, last=3, at_end=False)
    assert_close(model.weights, seen[-1])
    with average.averaged():
        assert_close(model.weights, means(seen[-3:]))
    assert_close(model.weights, seen[-1])
    with pytest.raises(KeyError), average.averaged():
        raise KeyError
    assert_close(model.weights, seen[-1])


def test_a_training_that_goes_on_from_an_earlier_epoch_forgets_the_later_ones(tmp_path):
    fitted(tmp_path, last=3)
    model, average = small_model(), AverageCheckpoints(tmp_path, last=3)
    targets = DATA * np.ones(3)
    fit = dict(initial_epoch=4, epochs=5, verbose=0, callbacks=[average])
    model.fit(DATA, targets, **fit)
    assert [file.name for file in average.files()] == ["weights-0004.npz", "weights-0005.npz"]


def test_files_of_another_model_are_refused(tmp_path):
    fitted(tmp_path, last=2)
    other = keras.Sequential([keras.Input((1,)), keras.layers.Dense(4)])
    average = AverageCheckpoints(tmp_path)
    average.set_model(other)
    with pytest.raises(ValueError, match="must hold the variables of this model"):
        average.mean()


def test_half_precision_weights_are_averaged_in_their_type(tmp_path):
    dense = keras.layers.Dense(2, dtype="bfloat16")
    model = keras.Sequential([keras.Input((1,)), dense])
    average = AverageCheckpoints(tmp_path)
    average.set_model(model)
    for epoch, value in enumerate((1.0, 2.0)):
        dense.kernel.assign(np.full((1, 2), value))
        average.on_epoch_end(epoch)
    average.on_train_end()
    assert array(dense.kernel).tolist() == [[1.5, 1.5]]
    assert keras.backend.standardize_dtype(dense.kernel.dtype) == "bfloat16"


@pytest.mark.parametrize("last", [0, -1, 1.5, True])
def test_a_bad_number_of_epochs_raises(tmp_path, last):
    with pytest.raises(ValueError, match="`last` must be a positive integer. Received: last="):
        AverageCheckpoints(tmp_path, last=last)


def test_no_epoch_has_no_mean(tmp_path):
    average = AverageCheckpoints(tmp_path)
    average.set_model(small_model())
    with pytest.raises(ValueError, match="there are none"):
        average.mean()


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_callback_that_restores_other_weights_at_the_end_is_refused(tmp_path, place):
    """The later of the two would silently undo the other."""
    stop = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    callbacks = [AverageCheckpoints(tmp_path), stop]
    if place == "after":
        callbacks.reverse()
    message = "at_end=False here.*Received: restore_best_weights=True"
    with pytest.raises(ValueError, match=message):
        small_model().fit(DATA, DATA * np.ones(3), verbose=0, callbacks=callbacks)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("at_end", "restore"), [(True, False), (False, True), (False, False)])
def test_beside_early_stopping_one_of_the_two_sets_the_weights_at_the_end(
    tmp_path, at_end, restore
):
    model, note = small_model(), NoteWeights()
    average = AverageCheckpoints(tmp_path, last=2, at_end=at_end)
    # The loss falls: by "max" the first epoch is the best.
    stop = keras.callbacks.EarlyStopping(
        "loss", mode="max", patience=3, restore_best_weights=restore
    )
    fit = dict(epochs=9, verbose=0, callbacks=[note, average, stop])
    model.fit(DATA, DATA * np.ones(3), **fit)
    assert len(note.seen) == 4
    expected = means(note.seen[-2:]) if at_end else note.seen[0 if restore else -1]
    assert_close(model.weights, expected)
