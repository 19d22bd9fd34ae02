"""A small recurrent model, and ids for it."""

import functools

import keras
import numpy as np

from keras_transformer import RecurrentSeq2Seq
from tests.backends import array

SOURCE = np.array([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0], [7, 3, 0, 0, 0]])
TARGET = np.array([[2, 5, 6, 9], [2, 7, 0, 0], [2, 9, 9, 8]])


def made(num_layers=2, **options):
    keras.utils.set_random_seed(7)
    model = RecurrentSeq2Seq(12, num_layers=num_layers, d_model=16, **options)
    model.build()
    return model


shared = functools.cache(made)  # for tests that only read the model


def logits(model, source, target):
    return array(model((source, target)))
