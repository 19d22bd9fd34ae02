"""TensorBoard's curves hold what was measured, once, and no NaN."""

import keras
import numpy as np
import pytest

from keras_transformer.callbacks import MeasuredTensorBoard, TranslationQuality
from tests.backends import BACKEND
from tests.event_files import values_in_tensorboard


def test_a_figure_of_some_epochs_is_a_curve_of_as_many_points(tmp_path):
    pytest.importorskip("tensorflow", reason="TensorBoard's files are written by TensorFlow")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=BACKEND == "jax")
    quality = TranslationQuality(list, ["a", "b"], ["a", "c"], metrics=["exact_match"], every=2)
    data = np.ones((4, 1))
    no_number = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.update(val_other=[1.0, np.nan, np.inf, 2.0][epoch])
    )
    model.fit(
        data,
        data,
        epochs=4,
        verbose=0,
        validation_data=(data, data),
        callbacks=[quality, no_number, MeasuredTensorBoard(str(tmp_path))],
    )
    values = list(values_in_tensorboard(tmp_path / "validation"))
    assert [value for name, value in values if name == "epoch_exact_match"] == [50.0] * 3
    assert not any(name.endswith("_epoch") for name, _ in values)
    assert [value for name, value in values if name == "epoch_other"] == [1.0, 2.0]
    assert sum(name == "epoch_loss" for name, _ in values) == 4
