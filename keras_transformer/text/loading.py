"""Opens a saved tokenizer without knowing which class saved it."""

import os
from os import PathLike

from keras_transformer import tokenizer_file
from keras_transformer.text.character_tokenizer import CharacterTokenizer
from keras_transformer.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_transformer.text.symbol_tokenizer import SymbolTokenizer
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.text.wordpiece_tokenizer import WordPieceTokenizer

CLASSES = (CharacterTokenizer, SentencePieceTokenizer, SymbolTokenizer, WordPieceTokenizer)


def load_tokenizer(path: str | PathLike[str]) -> Tokenizer:
    """Loads whichever tokenizer `save` wrote to `path`.

    Args:
        path: a file written by the `save` method of a tokenizer of this package.

    Returns:
        A tokenizer of the class that was saved.

    Raises:
        ValueError: when the file holds no tokenizer of this package, or a damaged one.
        OSError: when the file cannot be read.

    Example:

    >>> import os, tempfile
    >>> from keras_transformer.text import CharacterTokenizer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "letters.tokenizer")
    ...     CharacterTokenizer("abc").save(path)
    ...     type(load_tokenizer(path)).__name__
    'CharacterTokenizer'
    """
    kind, options, payload = tokenizer_file.read(path)
    for cls in CLASSES:
        if cls.__name__ == kind:
            return cls.from_payload(options, payload)
    names = ", ".join(cls.__name__ for cls in CLASSES)
    raise ValueError(f"{os.fspath(path)}: kind must be one of {names}. Received: kind={kind!r}")
