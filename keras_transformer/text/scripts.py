"""Scripts of texts, such as Latin or Hangul, by the names of Unicode."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def checked_scripts(name: str, scripts: Sequence[str]) -> tuple[str, ...]:
    """Names of scripts, or a `ValueError`."""
    if isinstance(scripts, str):
        raise ValueError(f"`{name}` must be a list of names. Received: {name}={scripts!r}")
    for script in scripts:
        try:
            tf.strings.regex_full_match("", rf"\p{{{script}}}")
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                f"`{name}` must be names of scripts in Unicode, such as 'Latin'. "
                f"Received: {script!r}"
            ) from error
    return tuple(scripts)


def are_of_scripts(texts: list[str], scripts: Sequence[str]) -> np.ndarray:
    """Whether at least half of the letters of each text are of the scripts, a boolean array."""
    others = "".join(rf"\p{{{script}}}" for script in scripts)
    letters = tf.strings.regex_replace(texts, r"\P{L}+", "")
    own = tf.strings.regex_replace(letters, f"[^{others}]+", "")
    counts = [tf.strings.length(strings, "UTF8_CHAR").numpy() for strings in (letters, own)]
    return 2 * counts[1] >= counts[0]
