"""Strings in, strings out: the translator in Python and as a SavedModel. Needs TensorFlow."""

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        "keras_transformer.serving needs Keras on TensorFlow: set the environment variable "
        "KERAS_BACKEND=tensorflow before Python starts. A model saved on another backend loads "
        f"there. Received: the backend {keras.backend.backend()}"
    )

from keras_transformer.serving.description import describe_export
from keras_transformer.serving.export import export, load
from keras_transformer.serving.litert_export import export_litert
from keras_transformer.serving.onnx_export import export_onnx
from keras_transformer.serving.shards import ShardReport, translate_shards
from keras_transformer.serving.translator import (
    AlignedPair,
    Alignment,
    Hypothesis,
    PairScore,
    Translator,
)

__all__ = [
    "AlignedPair",
    "Alignment",
    "Hypothesis",
    "PairScore",
    "ShardReport",
    "Translator",
    "describe_export",
    "export",
    "export_litert",
    "export_onnx",
    "load",
    "translate_shards",
]
