"""The layers of the Transformer, each usable alone in any Keras model."""

from keras_transformer.layers.alibi import ALiBi
from keras_transformer.layers.decoder import Decoder
from keras_transformer.layers.decoder_layer import DecoderLayer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.encoder import Encoder
from keras_transformer.layers.encoder_layer import EncoderLayer
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.learned_positional_encoding import LearnedPositionalEncoding
from keras_transformer.layers.multi_head_attention import MultiHeadAttention
from keras_transformer.layers.positional_encoding import PositionalEncoding
from keras_transformer.layers.relative_position_bias import RelativePositionBias
from keras_transformer.layers.rotary_positional_encoding import RotaryPositionalEncoding
from keras_transformer.layers.similarity_attention import SimilarityAttention
from keras_transformer.layers.token_embedding import TokenEmbedding

__all__ = [
    "ALiBi",
    "Decoder",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "LearnedPositionalEncoding",
    "MultiHeadAttention",
    "PositionalEncoding",
    "RelativePositionBias",
    "RotaryPositionalEncoding",
    "SimilarityAttention",
    "TokenEmbedding",
]
