"""Reusable Transformer layers for Keras 3, a model trained with `model.fit`, search and serving."""

from keras_transformer.command_process import is_command as _is_command

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
__version__ = "0.2.0.dev0"
