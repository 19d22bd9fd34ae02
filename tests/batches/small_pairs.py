"""Pairs of short rows of ids as a `PairDataset`, and a model that is quickly trained on them."""

import keras
import numpy as np

from keras_transformer import Dropout, MaskedCrossentropy
from keras_transformer.batches import PairDataset
from tests.backends import BACKEND

RANDOM = np.random.default_rng(0)
SOURCES = [RANDOM.integers(4, 20, RANDOM.integers(1, 15)).tolist() for _ in range(61)]
TARGETS = [[*row[::-1], 5] for row in SOURCES]
OPTIONS = dict(tokens_per_batch=64, max_shapes=3, verbose=False)


def dataset(sources=SOURCES, targets=TARGETS, **options):
    return PairDataset(sources, targets, **{**OPTIONS, **options})


def model(dropout=0.1):
    """Reads both inputs, and is traced in a moment."""
    keras.utils.set_random_seed(1)
    source_ids, target_ids = inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    embedding = keras.layers.Embedding(20, 8)
    source = keras.layers.GlobalAveragePooling1D(keepdims=True)(embedding(source_ids))
    hidden = keras.layers.Add()([source, embedding(target_ids)])
    hidden = Dropout(dropout)(hidden)
    made = keras.Model(inputs, keras.layers.Dense(20)(hidden))
    made.compile("adam", MaskedCrossentropy(), jit_compile=BACKEND == "jax")
    return made
