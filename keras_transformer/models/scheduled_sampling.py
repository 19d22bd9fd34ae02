"""Scheduled sampling: in training a decoder is given some of the words that it would have written.

Bengio et al. 2015, with the two passes of Mihaylova and Martins 2019.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Ids, Logits, Tensor
from keras_transformer.decoding.search import IMPOSSIBLE
from keras_transformer.masking import has_begun, padding_mask

Schedule = keras.optimizers.schedules.LearningRateSchedule


def checked_share(share: Any) -> Any:
    """A share in [0, 1), or a schedule of it; `ValueError` for anything else."""
    if isinstance(share, dict):
        share = keras.saving.deserialize_keras_object(share)
    if isinstance(share, Schedule):
        return share
    try:
        return arguments.rate("scheduled_sampling", share)
    except ValueError as error:
        raise ValueError(
            "`scheduled_sampling` must be a number in [0, 1), or a schedule of "
            f"`keras.optimizers.schedules`. Received: scheduled_sampling={share!r}"
        ) from error


def share_config(share: Any) -> Any:
    """What `checked_share` reads again, fit for JSON."""
    is_schedule = isinstance(share, Schedule)
    return keras.saving.serialize_keras_object(share) if is_schedule else share


def share_now(share: Any, seed: keras.random.SeedGenerator) -> Tensor:
    """The share at this step of the training.

    The seed generator counts the steps, so every backend's compiled step knows them. They are saved
    and resumed with the seeds, without a weight that older files would lack.
    """
    return share(ops.cast(seed.state, "float32")[1]) if isinstance(share, Schedule) else share


def mix_in_written(
    target_ids: Ids,
    logits: Logits,
    *,
    share: Any,
    seed: keras.random.SeedGenerator,
    pad_id: int,
    bos_id: int,
) -> Ids:
    """Replaces a share of the target's tokens by the most likely ones.

    Args:
        target_ids: integers (batch, target), the decoder's inputs.
        logits: float32 (batch, target, vocab), what the decoder makes of them.
        share: what `checked_share` returns.
        seed: a `keras.random.SeedGenerator`.
        pad_id, bos_id: ids that a decoder does not write.

    Returns:
        Integers (batch, target).
    """
    logits = logits[:, :-1]
    tokens = ops.arange(logits.shape[-1])
    # As in a search, which writes neither.
    never = ops.logical_or(tokens == pad_id, tokens == bos_id)
    written = ops.argmax(ops.where(never, IMPOSSIBLE, logits), axis=-1)  # -> (batch, target - 1)
    given = target_ids[:, 1:]
    share = share_now(share, seed)
    draws = keras.random.uniform(ops.shape(given), seed=seed)
    is_token = padding_mask(target_ids, pad_id)
    # The first token of a row is `bos_id`, which nothing before it writes.
    may_be_written = ops.logical_and(is_token[:, 1:], has_begun(is_token)[:, :-1])
    taken = ops.logical_and(draws < share, may_be_written)
    written = ops.stop_gradient(ops.cast(written, target_ids.dtype))
    return ops.concatenate([target_ids[:, :1], ops.where(taken, written, given)], axis=1)
