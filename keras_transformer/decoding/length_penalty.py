"""The length penalty of Wu et al. 2016, section 7."""

from keras import ops

# Beyond it scores of long hypotheses leave the range of float32, and are all alike.
LARGEST_LENGTH_PENALTY = 10.0


def penalty_of(search, task):
    """The length penalty: a number, or (batch, 1) where sentences have their own."""
    return search.length_penalty if task.length_penalty is None else task.length_penalty[:, None]


def length_normaliser(length, length_penalty):
    """`((5 + length) / 6) ** length_penalty` (Wu et al. 2016, equation 14)."""
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, length_penalty)


def check_has_length_penalty(search, length_penalty):
    """Raises `ValueError` when a search that has no length penalty is given one."""
    if not hasattr(search, "length_penalty"):
        raise ValueError(
            "`length_penalty` must be None for a search that has none. "
            f"Received: a {type(search).__name__} and length_penalty={length_penalty!r:.80}"
        )
