"""Log-probabilities of outputs that are given, all positions at once."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.layers.sequences import positions_in
from keras_transformer.losses import token_crossentropy
from keras_transformer.masking import boolean_mask, combine_masks, padding_mask
from keras_transformer.models.token_ids import token_ids, vocabulary_sizes


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

    token_log_probs: Any
    log_prob: Any
    lengths: Any
    perplexity: Any


def score_targets(model, source_ids, target_ids, label_mask=None):
    """Scores targets under a model that is called with (source_ids, target_ids)."""
    source_size, target_size = vocabulary_sizes(model)
    source_ids = token_ids("source_ids", source_ids, source_size)
    target_ids = token_ids("target_ids", target_ids, target_size)
    check_alike("source_ids", source_ids.shape[:1], "target_ids", target_ids.shape[:1])
    counted = padding_mask(target_ids, model.pad_id)
    inputs = shifted(target_ids, counted, model)
    if label_mask is not None:
        label_mask = boolean_mask("label_mask", label_mask)
        check_alike("label_mask", label_mask.shape, "target_ids", target_ids.shape)
        counted = combine_masks(counted, label_mask)
    logits = model((source_ids, inputs), training=False)
    token_log_probs = ops.where(counted, -token_crossentropy(target_ids, logits), 0.0)
    lengths = ops.sum(ops.cast(counted, "int32"), axis=1)
    log_prob = ops.sum(token_log_probs, axis=1)
    tokens = ops.cast(ops.maximum(lengths, 1), "float32")
    return ScoreResult(token_log_probs, log_prob, lengths, ops.exp(-log_prob / tokens))


def shifted(target_ids, is_token, model):
    """The decoder's inputs for these outputs: `bos_id` in the place of each row's first token."""
    before = ops.pad(target_ids, [(0, 0), (1, 0)], constant_values=model.pad_id)[:, :-1]
    return ops.where(ops.logical_and(is_token, positions_in(is_token) == 0), model.bos_id, before)


def check_alike(name, shape, other, other_shape):
    """Raises `ValueError` for two shapes that differ where both are known."""
    sizes = zip(shape, other_shape, strict=False)
    differ = any(one != two for one, two in sizes if None not in (one, two))
    if differ or len(shape) != len(other_shape):
        raise ValueError(
            f"`{name}` and `{other}` must go together, row by row. "
            f"Received: shapes {tuple(shape)} and {tuple(other_shape)}"
        )
