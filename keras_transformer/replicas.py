"""Sums over the replicas of a `tf.distribute` strategy; each computes a part of a batch.

There is nothing to sum elsewhere: under `keras.distribution` on JAX every array is the whole one.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import Tensor


def count_replicas() -> int:
    """Returns the number of replicas of the strategy in scope, 1 without one."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def replica_index() -> int | Tensor:
    """Returns the number of the replica that calls, from 0 on; 0 outside a replica."""
    replica = _current_replica()
    return 0 if replica is None else replica.replica_id_in_sync_group


def sum_over_replicas(value: Tensor) -> Tensor:
    """Returns the sum of all replicas' `value`, a tensor. Outside a replica it is `value`."""
    replica = _current_replica()
    if replica is None:
        return value
    return replica.all_reduce("SUM", value)


def share_loss(part: Tensor) -> Tensor:
    """Returns a replica's loss, made from its `part` of a sum. Outside a replica it is `part`.

    Its value is the sum divided by the number of replicas, its gradient that of `part`. Keras adds
    the gradients of the replicas. It logs the mean of their losses, weighted by rows, which is
    right for any numbers of rows when all losses are equal.
    """
    if _current_replica() is None:
        return part
    constant = ops.stop_gradient(part)
    return part - constant + sum_over_replicas(constant) / count_replicas()


def _current_replica() -> Any:
    """The context of the replica that calls, or None where the whole batch is computed."""
    if count_replicas() == 1:
        return None
    import tensorflow as tf

    return tf.distribute.get_replica_context()


def refuse_accumulation(optimizer: Any, num_replicas: int) -> None:
    """Raises `ValueError` when `optimizer` accumulates gradients and there are several replicas.

    Keras makes the update inside a condition, where TensorFlow cannot sum over replicas.
    """
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    if steps and num_replicas > 1:
        raise ValueError(
            "`gradient_accumulation_steps` must be None under a `tf.distribute` strategy of "
            "several replicas; make the batches larger instead. "
            f"Received: gradient_accumulation_steps={steps} with {num_replicas} replicas"
        )
