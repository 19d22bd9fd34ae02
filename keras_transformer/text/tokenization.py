"""All texts of a corpus as ids."""

import hashlib
import sys
import time
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from keras_transformer.batches.token_store import TokenStore
from keras_transformer.text.strings import string_tensor
from keras_transformer.text.tokenizer import with_first

TEXTS_PER_CALL = 4096
SECONDS_BETWEEN_LINES = 5.0


class TokenizerLike(Protocol):
    """What `translation_dataset` uses of a tokenizer."""

    @property
    def pad_id(self) -> int: ...

    @property
    def bos_id(self) -> int: ...

    @property
    def eos_id(self) -> int: ...

    def tokenize(self, strings: list[str], /) -> tf.RaggedTensor:
        """Returns ragged ids (batch, length), without bos and eos."""


class TaggedTokenizer:
    """A tokenizer that puts a tag before every text, but for a text that begins with its own.

    Only a tokenizer with `leading_tags` reads one there, as a `Translator` does.

    Args:
        tokenizer: a tokenizer of this package.
        tag: one of its tags.

    Raises:
        ValueError: when the tokenizer has no such tag.
    """

    def __init__(self, tokenizer: Any, tag: str) -> None:
        self.tokenizer = tokenizer
        self.tag_id = tokenizer.tag_id(tag)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def tokenize(self, strings: list[str]) -> tf.RaggedTensor:
        """Returns ragged ids (batch, length), the tag's first; none for a text without tokens."""
        read = self.tokenizer.read_tags(string_tensor(strings), self.tag_id)
        ids = self.tokenizer.without_leading_tags().tokenize(read.texts)
        return with_first(ids, read.tags, ids.row_lengths() > 0)


def check_same_special_ids(
    source_tokenizer: TokenizerLike, target_tokenizer: TokenizerLike
) -> None:
    """Raises `ValueError` unless both tokenizers have the same special ids."""
    for name in ("pad_id", "bos_id", "eos_id"):
        source, target = getattr(source_tokenizer, name), getattr(target_tokenizer, name)
        if source != target:
            raise ValueError(
                f"`{name}` must be the same for both tokenizers, as a model has one. "
                f"Received: source {name}={source}, target {name}={target}"
            )


def read_special_ids(tokenizer: TokenizerLike) -> tuple[int, int, int]:
    """Returns (pad_id, bos_id, eos_id)."""
    return int(tokenizer.pad_id), int(tokenizer.bos_id), int(tokenizer.eos_id)


def digest_tokenizer(tokenizer: Any) -> str:
    """Returns 16 characters that tell a tokenizer from others.

    Raises:
        ValueError: when it is none of this package.
    """
    if not hasattr(tokenizer, "to_bytes"):
        raise ValueError(
            "a prepared corpus needs a tokenizer of this package, with `to_bytes`. "
            f"Received: {type(tokenizer).__name__}"
        )
    return hashlib.sha256(tokenizer.to_bytes()).hexdigest()[:16]


def tokenize_all(
    texts: list[str], tokenizer: TokenizerLike, name: str, verbose: bool
) -> TokenStore:
    """Returns the `TokenStore` of a list of texts; says how far it is when that takes long."""
    flats, lengths = [np.zeros(0, "int32")], [np.zeros(0, "int64")]
    last_line = time.monotonic()
    for start in range(0, len(texts), TEXTS_PER_CALL):
        ids = tokenizer.tokenize(texts[start : start + TEXTS_PER_CALL])
        flats.append(ids.flat_values.numpy())
        lengths.append(ids.row_lengths().numpy())
        if verbose and time.monotonic() - last_line > SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            done = min(start + TEXTS_PER_CALL, len(texts))
            print(f"tokenized {done:,} of {len(texts):,} {name} texts", file=sys.stderr)
    return TokenStore.of_lengths(np.concatenate(flats), np.concatenate(lengths))
