"""What a search is given and what it returns."""

from typing import Any, NamedTuple

from keras import ops

# A log-probability or score that no real hypothesis reaches; finite, so that no NaN can arise.
IMPOSSIBLE = -1e9


class DecodeResult(NamedTuple):
    """Holds the hypotheses of a search, the best of each sentence first.

    Attributes:
        ids: int32 (batch, hypotheses, length), the tokens after `bos_id`, `eos_id` included,
            then padding. A hypothesis without `eos_id` was cut at the maximum length.
        scores: float32 (batch, hypotheses), the log-probability of the tokens under the
            search's length penalty. -1e9 where a sentence has fewer hypotheses than asked for.
        lengths: int32 (batch, hypotheses), the number of tokens, `eos_id` included.

    Example:

    >>> import numpy as np
    >>> result = DecodeResult(np.array([[[5, 3, 0]]]), np.array([[-0.7]]), np.array([[2]]))
    >>> result.ids[0, 0, : result.lengths[0, 0]].tolist()
    [5, 3]
    """

    ids: Any
    scores: Any
    lengths: Any


def next_log_probs(logits, pad_id, bos_id):
    """Log-probabilities (rows, vocab) of the next token, `pad_id` and `bos_id` ruled out.

    The two are ruled out after normalisation, so that a hypothesis scores what the model gives.
    """
    log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    tokens = ops.arange(logits.shape[-1])
    allowed = ops.logical_and(tokens != pad_id, tokens != bos_id)
    return ops.where(allowed, log_probs, IMPOSSIBLE)
