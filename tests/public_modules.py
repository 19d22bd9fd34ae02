"""The public modules of the package, and the public names of each."""

import importlib

import keras
import pytest

FOLDERS = [
    "keras_transformer",
    "keras_transformer.batches",
    "keras_transformer.callbacks",
    "keras_transformer.decoding",
    "keras_transformer.interop",
    "keras_transformer.layers",
    "keras_transformer.models",
    "keras_transformer.plots",
    "keras_transformer.recipes",
    "keras_transformer.serving",
    "keras_transformer.text",
]
FILES = [
    "keras_transformer.checks",
    "keras_transformer.distribution",
    "keras_transformer.lora",
    "keras_transformer.losses",
    "keras_transformer.masking",
    "keras_transformer.metrics",
    "keras_transformer.optimizers",
    "keras_transformer.process_group",
    "keras_transformer.schedules",
]
MODULES = [*FOLDERS, *FILES]
TENSORFLOW_ONLY = {f"keras_transformer.{name}" for name in ("interop", "serving", "text")}


def load(name):
    if name in TENSORFLOW_ONLY and keras.backend.backend() != "tensorflow":
        pytest.skip("only on the TensorFlow backend")
    return importlib.import_module(name)


def public_objects(module):
    objects = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in objects.items() if callable(value)}
