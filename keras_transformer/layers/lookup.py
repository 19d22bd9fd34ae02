"""Rows of a table, with a gradient that every optimizer reads right."""

from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import Tensor


def looked_up(table: Tensor, ids: Tensor) -> Tensor:
    """Returns `table[ids]`, whose gradient is the sum over all places an id stands at.

    TensorFlow's own has a part for each place, and Keras's optimizers (3.15) take them one by one:
    Adam's second moment is then the sum of squares instead of the square of the sum, so the rows of
    frequent ids move too far. The norm of gradients that are clipped is too small.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.take(table, ids, axis=0)
    shape = ops.shape(table)
    num_rows = shape[0]
    ids = ops.where(ids < 0, ids + num_rows, ids)
    exact = keras.backend.result_type(table.dtype, "float32")

    @ops.custom_gradient
    def lookup(table: Tensor) -> tuple[Tensor, Any]:
        def gradient(upstream: Tensor) -> Any:
            # -> (number of ids, ...)
            parts = ops.reshape(ops.cast(upstream, exact), (-1, *shape[1:]))
            # -> (rows, ...)
            rows = ops.segment_sum(parts, ops.reshape(ids, (-1,)), num_segments=num_rows)
            return ops.cast(rows, table.dtype)

        return ops.take(table, ids, axis=0), gradient

    # -> the shape it has: a tensor, where `table` is a variable
    return lookup(ops.reshape(table, shape))
