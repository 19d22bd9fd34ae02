"""What a search returns."""

from typing import Any, NamedTuple

# A log-probability or score that no real hypothesis reaches; finite, so that no NaN can arise.
IMPOSSIBLE = -1e9


class DecodeResult(NamedTuple):
    """Holds the hypotheses of a search, the best of each sentence first.

    Attributes:
        ids: int32 (batch, hypotheses, length), the tokens after `bos_id`, `eos_id` included,
            then padding. A hypothesis without `eos_id` was cut at the maximum length.
        scores: float32 (batch, hypotheses), the log-probability of the tokens under the
            search's penalties. -1e9 where a sentence has fewer hypotheses than asked for.
        lengths: int32 (batch, hypotheses), the number of tokens, `eos_id` included.
        token_log_probs: float32 (batch, hypotheses, length), the log-probability of each token,
            0 for padding.
        alignments: float32 (batch, hypotheses, length, source), how much each token attended to
            each position of the source, or None when the search was not asked for them.

    Example:

    >>> import numpy as np
    >>> result = DecodeResult(np.array([[[5, 3, 0]]]), np.array([[-0.7]]), np.array([[2]]))
    >>> result.ids[0, 0, : result.lengths[0, 0]].tolist()
    [5, 3]
    """

    ids: Any
    scores: Any
    lengths: Any
    token_log_probs: Any = None
    alignments: Any = None
