"""Text in and out of a model: tokenizers that run in the graph, and batches of sentence pairs."""

try:
    import tensorflow_text as _tensorflow_text  # noqa: F401  (registers its ops)
except ImportError as error:
    raise ImportError(
        "keras_transformer.text needs TensorFlow and TF Text. Install them with "
        '`pip install "keras-transformer-components[tensorflow]"`'
    ) from error

from keras_transformer.text.character_tokenizer import CharacterTokenizer
from keras_transformer.text.corpus import prepare_corpus
from keras_transformer.text.dataset import translation_dataset
from keras_transformer.text.loading import load_tokenizer
from keras_transformer.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_transformer.text.symbol_tokenizer import SymbolTokenizer
from keras_transformer.text.wordpiece_tokenizer import WordPieceTokenizer

__all__ = [
    "CharacterTokenizer",
    "SentencePieceTokenizer",
    "SymbolTokenizer",
    "WordPieceTokenizer",
    "load_tokenizer",
    "prepare_corpus",
    "translation_dataset",
]
