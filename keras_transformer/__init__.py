"""Reusable Transformer layers for Keras 3, a model trained with `model.fit`, search and serving."""

import os
import re
import sys


def _is_command() -> bool:
    """Whether this process is the command line, which answers `--help` before Keras is imported."""
    program = os.path.basename([*getattr(sys, "argv", []), ""][0])
    if program == "-m":  # so Python calls a program while it looks for the module to run
        module = re.search(r" -[a-zA-Z]*m ?(\S+)", " ".join(sys.orig_argv))
        return module is not None and module[1] == "keras_transformer"
    return program in ("keras-transformer", "keras-transformer.exe")


if not _is_command():
    from keras_transformer import batches, callbacks, decoding, layers, masking, models
    from keras_transformer.decoding import BeamSearch, DecodeResult, GreedySearch, Sampling
    from keras_transformer.layers import (
        ALiBi,
        Decoder,
        DecoderLayer,
        Dropout,
        Encoder,
        EncoderLayer,
        FeedForward,
        LearnedPositionalEncoding,
        MultiHeadAttention,
        PositionalEncoding,
        RelativePositionBias,
        RotaryPositionalEncoding,
        SimilarityAttention,
        TokenEmbedding,
    )
    from keras_transformer.losses import MaskedCrossentropy
    from keras_transformer.metrics import MaskedAccuracy, PaddingRatio, Perplexity, TokenCount
    from keras_transformer.models import RecurrentSeq2Seq, ScoreResult, Transformer
    from keras_transformer.optimizers import FusedAdam
    from keras_transformer.schedules import UpdateSchedule, WarmupSchedule

__all__ = [
    "ALiBi",
    "BeamSearch",
    "DecodeResult",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "FusedAdam",
    "GreedySearch",
    "LearnedPositionalEncoding",
    "MaskedAccuracy",
    "MaskedCrossentropy",
    "MultiHeadAttention",
    "PaddingRatio",
    "Perplexity",
    "PositionalEncoding",
    "RecurrentSeq2Seq",
    "RelativePositionBias",
    "RotaryPositionalEncoding",
    "Sampling",
    "ScoreResult",
    "SimilarityAttention",
    "TokenCount",
    "TokenEmbedding",
    "Transformer",
    "UpdateSchedule",
    "WarmupSchedule",
    "batches",
    "callbacks",
    "decoding",
    "layers",
    "masking",
    "models",
]
__version__ = "0.1.0"
