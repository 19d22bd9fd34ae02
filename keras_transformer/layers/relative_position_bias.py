"""The relative position bias of T5: a learned number for each head and each bucket of distances."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Shape, Tensor
from keras_transformer.layers.lookup import looked_up
from keras_transformer.layers.positions import (
    AttentionPosition,
    key_distances,
    position_range,
)


@keras.saving.register_keras_serializable(package="keras_transformer")
class RelativePositionBias(AttentionPosition):
    """Adds to each score a learned number for its head and the bucket of its distance.

    `score[h, q, k] += b[bucket(k - q), h]`

    Half of the buckets are for keys after the query; in causal attention all of them are for
    keys before it. Of the n buckets of a side the first n / 2 hold one distance each. The others
    hold ranges that grow geometrically up to `max_distance`, and the last one all beyond it.

    Args:
        num_buckets: number of buckets, a multiple of 4.
        max_distance: the distance from which on all share the last bucket.

    Shapes:
        inputs: scores (batch, heads, query, key). Output: the same.

    Returns:
        The biased scores, float32.

    Raises:
        ValueError: for a bad argument.

    Masking: none; scores carry no mask.

    Reference: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
    Text-to-Text Transformer", section 2.1.

    Example:

    >>> import numpy as np
    >>> tuple(RelativePositionBias()(np.zeros((1, 2, 3, 5))).shape)
    (1, 2, 3, 5)
    """

    def __init__(self, num_buckets: int = 32, max_distance: int = 128, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_buckets = arguments.positive_integer("num_buckets", num_buckets)
        self.max_distance = arguments.positive_integer("max_distance", max_distance)
        if num_buckets % 4:
            raise ValueError(
                f"`num_buckets` must be a multiple of 4. Received: num_buckets={num_buckets}"
            )
        if max_distance <= num_buckets // 2:
            raise ValueError(
                "`max_distance` must be above half of `num_buckets`. "
                f"Received: max_distance={max_distance}, num_buckets={num_buckets}"
            )

    def build(self, input_shape: Shape) -> None:
        """Creates the numbers, (num_buckets, heads)."""
        self.bucket_bias = self.add_weight(
            name="bucket_bias",
            shape=(self.num_buckets, input_shape[1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,
        )
        self.built = True

    def build_for_heads(self, num_heads: int, key_dim: int) -> None:
        """Builds for `num_heads` heads."""
        if not self.built:
            self.build((None, num_heads, None, None))

    def call(self, inputs: Tensor, causal: bool = False) -> Tensor:
        """Returns scores with the bias added."""
        query, key = ops.shape(inputs)[2:]
        bias = self.bias(position_range(query), position_range(key), causal)
        return ops.cast(inputs, "float32") + bias

    def bias(self, query_positions: Tensor, key_positions: Tensor, causal: bool = False) -> Tensor:
        """Returns the bias (1, heads, query, key)."""
        distance = key_distances(query_positions, key_positions)
        num_buckets = self.num_buckets if causal else self.num_buckets // 2
        table = distance_buckets(num_buckets, self.max_distance)
        before = ops.take(table, ops.clip(-distance, 0, self.max_distance), axis=0)
        buckets = before
        if not causal:
            after = ops.take(table, ops.clip(distance, 0, self.max_distance), axis=0)
            buckets = ops.where(distance > 0, after + num_buckets, before)
        bias = looked_up(self.bucket_bias, buckets)  # -> (query, key, heads)
        # -> (1, heads, query, key)
        return ops.cast(ops.transpose(bias, (2, 0, 1))[None], "float32")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        own = {"num_buckets": self.num_buckets, "max_distance": self.max_distance}
        return {**super().get_config(), **own}


def distance_buckets(num_buckets: int, max_distance: int) -> Tensor:
    """The bucket of each distance 0 to `max_distance`, int32, in whole numbers throughout.

    A distance d from `exact = num_buckets / 2` on has the bucket
    `exact + floor(log(d / exact) / log(max_distance / exact) * (num_buckets - exact))`, at most
    the last; floating-point logarithms would decide the borders by rounding.
    """
    exact = num_buckets // 2
    steps = num_buckets - exact
    buckets = []
    for distance in range(max_distance + 1):
        bucket = min(distance, exact)
        # Bucket exact + s begins where (distance / exact) ** steps >= (max / exact) ** s.
        while distance >= exact and bucket < num_buckets - 1:
            s = bucket + 1 - exact
            if distance**steps * exact**s < max_distance**s * exact**steps:
                break
            bucket += 1
        buckets.append(bucket)
    return np.asarray(buckets, "int32")
