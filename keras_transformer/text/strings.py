"""Python text on its way to TensorFlow: it is checked, made valid UTF-8, and a string tensor."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

REPLACEMENT = "\ufffd"


def valid_text(text: str) -> str:
    """Returns `text` with each lone surrogate replaced by three U+FFFD, one for each byte."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def text_list(name: str, texts: Any) -> list[str]:
    """Returns the list of an iterable of `str`, or raises `TypeError`."""
    return list(each_text(name, texts))


def each_text(name: str, texts: Any) -> Iterator[str]:
    """Yields each of an iterable of `str`, or raises `TypeError`."""
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"`{name}` must be an iterable of strings. Received: {name}={texts!r:.80}")
    try:
        texts = iter(texts)
    except TypeError as error:
        raise TypeError(
            f"`{name}` must be an iterable of strings. Received: {name}={texts!r:.80}"
        ) from error
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"`{name}` must be an iterable of strings. Received: {name}[{index}]={text!r:.80} "
                f"of type {type(text).__name__}"
            )
        yield text


def string_tensor(strings: Sequence[str | bytes] | tf.Tensor) -> tf.Tensor:
    """Returns the string tensor (batch,) of a list of `str` or `bytes`, or of such a tensor."""
    tensor: tf.Tensor = strings if tf.is_tensor(strings) else _constant(strings)
    if tensor.dtype != tf.string:
        raise TypeError(
            f"`strings` must hold strings. Received: strings with dtype={tensor.dtype.name}"
        )
    if tensor.shape.rank != 1:
        raise ValueError(
            f"`strings` must have the shape (batch,). Received: strings with shape={tensor.shape}"
        )
    return tensor


def _constant(strings: Any) -> tf.Tensor:
    if isinstance(strings, (str, bytes)):
        raise TypeError(
            f"`strings` must be a list of strings or a string tensor; put one string in a list. "
            f"Received: strings={strings!r:.80}"
        )
    # An array of objects, because NumPy strips trailing NUL characters from its own strings.
    values = np.empty(len(strings), dtype=object)
    for index, value in enumerate(strings):
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        if not isinstance(value, bytes):
            raise TypeError(
                f"`strings` must hold strings. Received: strings[{index}]={value!r:.80} "
                f"of type {type(value).__name__}"
            )
        values[index] = value
    return tf.constant(values, dtype=tf.string)


def string_constant(strings: Iterable[str]) -> tf.Tensor:
    """Returns a constant of strings; NumPy's own would lose a NUL at the end."""
    return tf.constant(np.array([text.encode() for text in strings], dtype=object), tf.string)
