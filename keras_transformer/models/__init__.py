"""Whole models built from the layers."""

from keras_transformer.models.scoring import ScoreResult
from keras_transformer.models.transformer import Transformer

__all__ = ["ScoreResult", "Transformer"]
