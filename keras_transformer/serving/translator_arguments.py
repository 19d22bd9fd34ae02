"""Checks of what a `Translator` is made of and of what it is called with."""

import warnings


def check_texts(name, texts):
    """Raises `ValueError` unless `texts` is a list or tuple of strings."""
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"`{name}` must be a list of strings. Received: {name}={texts!r:.200}")


def check_tokenizer(side, tokenizer, model):
    """Raises `ValueError` when the tokenizer's ids are not those of the model."""
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
    """Warns when texts were longer than the model reads."""
    if num_truncated:
        warnings.warn(
            f"{num_truncated} text(s) were too long and have no translation: see "
            "`max_source_length` and `max_segments`.",
            stacklevel=4,
        )
