"""Strings in, strings out: the translator in Python and as a SavedModel. Needs TensorFlow."""

from keras_transformer.serving.export import export, load
from keras_transformer.serving.translator import Translator

__all__ = ["Translator", "export", "load"]
