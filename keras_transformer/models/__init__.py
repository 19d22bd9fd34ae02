"""Whole models built from the layers."""

from keras_transformer.models.recurrent import RecurrentSeq2Seq
from keras_transformer.models.scoring import ScoreResult
from keras_transformer.models.transformer import Transformer

__all__ = ["RecurrentSeq2Seq", "ScoreResult", "Transformer"]
