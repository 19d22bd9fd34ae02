"""Accumulated gradients are those of one large batch, on every backend."""

import keras
import numpy as np
import pytest

from keras_transformer import MaskedCrossentropy, Transformer
from tests.backends import BACKEND, array


@pytest.mark.parametrize("weighted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_one_batch_of_8_is_4_of_2_accumulated(weighted):
    """Batches of unequal numbers of tokens; it is not, when each batch counts the same."""
    counts = np.array([1, 1, 2, 3, 5, 6, 8, 8])
    labels = np.where(np.arange(8) < counts[:, None], np.arange(64).reshape(8, 8) % 9 + 2, 0)
    inputs = np.where(labels == 0, 0, np.roll(labels, 1, axis=1))
    # Keras takes the mean of the four gradients: four shares of all tokens.
    weights = (labels != 0) * np.float32(4 / counts.sum())
    models = []
    for batch_size in (8, 2):
        keras.utils.set_random_seed(1)
        model = Transformer(11, num_layers=1, d_model=8, num_heads=2, d_ff=8, dropout=0.0)
        model.build()
        parts, options = 8 // batch_size, {}
        optimizer = keras.optimizers.SGD(
            0.5, gradient_accumulation_steps=parts if parts > 1 else None
        )
        reduction = "mean"
        if parts > 1 and weighted:
            reduction, options = "sum", {"sample_weight": weights}
        model.compile(
            optimizer,
            MaskedCrossentropy(0.1, reduction=reduction),
            jit_compile=BACKEND == "jax",
            run_eagerly=BACKEND != "jax",
        )
        fit = dict(batch_size=batch_size, epochs=1, shuffle=False, verbose=0)
        model.fit((labels, inputs), labels, **options, **fit)
        models.append(model)
    gaps = [
        np.abs(array(found) - array(expected)).max()
        for found, expected in zip(models[1].weights, models[0].weights, strict=True)
    ]
    assert max(gaps) < 1e-5 if weighted else max(gaps) > 1e-3
