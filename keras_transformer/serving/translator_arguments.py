"""Checks of what a `Translator` is made of and of what it is called with."""

import warnings

from keras_transformer import arguments
from keras_transformer.serving.compiled_model import SMALLEST_LENGTH

LONGEST = 256  # of a source, when nothing else is said


def check_texts(name, texts):
    """Raises `ValueError` unless `texts` is a list or tuple of strings."""
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"`{name}` must be a list of strings. Received: {name}={texts!r:.200}")


def check_tokenizer(side, tokenizer, model):
    """Raises `ValueError` when the tokenizer's ids are not those of the model.

    Nor may that of the sources reverse, as long ones are divided from their beginning on.
    """
    if side == "source" and getattr(tokenizer, "reverse", False):
        raise ValueError(
            "a tokenizer with `reverse=True` must be that of the targets alone; give one without "
            "it for the sources. Received: source_tokenizer.reverse=True"
        )
    for name in ("pad_id", "bos_id", "eos_id"):
        if getattr(tokenizer, name) != getattr(model, name):
            raise ValueError(
                f"`{name}` of the {side} tokenizer must be that of the model. Received: "
                f"{getattr(tokenizer, name)} and {getattr(model, name)}"
            )
    joint = getattr(model, "vocab_size", None)
    known = joint or getattr(model, f"{side}_vocab_size", None)
    if known is not None and tokenizer.vocab_size > known:
        raise ValueError(
            f"the {side} tokenizer's vocabulary must not be larger than the model's. "
            f"Received: {tokenizer.vocab_size} and {known}"
        )


def warn_of_truncation(num_truncated):
    """Warns when texts or prefixes were longer than the model reads or writes."""
    if num_truncated:
        warnings.warn(
            f"{num_truncated} text(s) were too long, or their prefixes, and have no translation: "
            "see `max_source_length`, `max_segments` and `max_length`.",
            stacklevel=4,
        )


def checked_lengths(model, max_length, max_source_length):
    """Both lengths, or `ValueError` when the model's positions end before them."""
    source, target = (
        getattr(getattr(model, f"{side}_positions", None), "max_length", None)
        for side in ("source", "target")
    )
    if max_length is not None:
        max_length = arguments.positive_integer("max_length", max_length)
        if target is not None and max_length > target:
            raise ValueError(
                f"`max_length` must be at most {target}, the model's last position. "
                f"Received: max_length={max_length}"
            )
    if max_source_length is None:
        return max_length, LONGEST if source is None else min(LONGEST, source)
    max_source_length = arguments.positive_integer("max_source_length", max_source_length)
    if max_source_length < SMALLEST_LENGTH:
        raise ValueError(
            f"`max_source_length` must be at least {SMALLEST_LENGTH}. "
            f"Received: max_source_length={max_source_length}"
        )
    if source is not None and max_source_length > source:
        raise ValueError(
            f"`max_source_length` must be at most {source}, the model's last position. "
            f"Received: max_source_length={max_source_length}"
        )
    return max_length, max_source_length
