"""TensorBoard's curves hold what was measured, and no NaN."""

import keras
import numpy as np
import pytest

from keras_transformer.callbacks import MeasuredTensorBoard, TranslationQuality
from tests.event_files import values_in_tensorboard


def test_a_figure_of_every_second_epoch_is_a_curve_of_as_many_points(tmp_path):
    pytest.importorskip("tensorflow", reason="TensorBoard's files are written by TensorFlow")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    quality = TranslationQuality(list, ["a", "b"], ["a", "c"], metrics=["exact_match"], every=2)
    data = np.ones((4, 1))
    model.fit(
        data,
        data,
        epochs=4,
        verbose=0,
        validation_data=(data, data),
        callbacks=[quality, MeasuredTensorBoard(str(tmp_path))],
    )
    values = list(values_in_tensorboard(tmp_path / "validation"))
    assert [value for name, value in values if name == "epoch_exact_match"] == [50.0, 50.0]
    assert sum(name == "epoch_loss" for name, _ in values) == 4
