"""The result of scoring given outputs, all positions at once."""

from typing import NamedTuple

from keras import ops

from keras_transformer.arguments import Ids, PaddingMask, Shape, Tensor
from keras_transformer.masking import count_positions


class ScoreResult(NamedTuple):
    """What a model thinks of given outputs.

    Attributes:
        token_log_probs: float32 (batch, target), `log p(token_t | source, tokens before)`, 0
            where a token does not count.
        log_prob: float32 (batch,), their sum.
        lengths: int32 (batch,), the number of tokens that count.
        perplexity: float32 (batch,), `exp(-log_prob / lengths)`; 1 where none counts.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import Transformer
    >>> model = Transformer(vocab_size=50, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    >>> result = model.score(np.array([[7, 8, 3]]), np.array([[9, 3, 0]]))
    >>> np.asarray(result.lengths).tolist()
    [2]
    """

    token_log_probs: Tensor
    log_prob: Tensor
    lengths: Tensor
    perplexity: Tensor


def shift_right(target_ids: Ids, is_token: PaddingMask, bos_id: int, pad_id: int) -> Ids:
    """The decoder's inputs for these outputs: each row starts with `bos_id` at its first token."""
    before = ops.pad(target_ids, [(0, 0), (1, 0)], constant_values=pad_id)[:, :-1]
    is_first = ops.logical_and(is_token, count_positions(is_token) == 0)
    return ops.where(is_first, bos_id, before)


def check_alike(name: str, shape: Shape, other: str, other_shape: Shape) -> None:
    """Raises `ValueError` for two shapes that differ where both are known."""
    sizes = zip(shape, other_shape, strict=False)
    differ = any(one != two for one, two in sizes if None not in (one, two))
    if differ or len(shape) != len(other_shape):
        raise ValueError(
            f"`{name}` and `{other}` must go together, row by row. "
            f"Received: shapes {tuple(shape)} and {tuple(other_shape)}"
        )
