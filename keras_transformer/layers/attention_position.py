"""What a scheme of positions inside attention may do: turn queries and keys, or bias scores."""

from typing import NamedTuple

import keras
from keras import ops


class AttentionPosition(keras.layers.Layer):
    """The base of `RotaryPositionalEncoding`, `RelativePositionBias` and `ALiBi`.

    `MultiHeadAttention(position=...)` calls both methods on its heads; a scheme overrides the
    one it needs. Positions are integers, a NumPy array where they are known beforehand and a
    tensor where they are not.
    """

    def build_for_heads(self, num_heads, key_dim):
        """Builds the scheme for an attention with these heads."""
        raise NotImplementedError

    def rotate(self, heads, positions):
        """Returns queries or keys (batch, length, heads, key_dim) at `positions` (length,)."""
        return heads

    def bias(self, query_positions, key_positions, causal=False):
        """Returns a float32 bias (1, heads, query, key) for the scores, or None for none."""
        return None


def distances(query_positions, key_positions):
    """How far each key comes after each query: int32 (query, key)."""
    query, key = (ops.cast(p, "int32") for p in (query_positions, key_positions))
    return key[None, :] - query[:, None]


class Shared(NamedTuple):
    """Hands a block's position to the layers inside it, which then use this very object."""

    position: AttentionPosition | None


def checked_position(position):
    """Returns a copy of `position` or of its saved configuration, or raises `ValueError`.

    A copy, for a position in two layers would be saved in one of them only.
    """
    if isinstance(position, Shared):
        return position.position
    if isinstance(position, dict):
        position = keras.saving.deserialize_keras_object(position)
    if position is None:
        return None
    if not isinstance(position, AttentionPosition):
        raise ValueError(
            "`position` must be None, a RotaryPositionalEncoding, a RelativePositionBias or an "
            "ALiBi; positions that are added are for layers and stacks, not for attention. "
            f"Received: position={position!r}"
        )
    return type(position).from_config(position.get_config())


def position_config(position):
    """Returns what `get_config` saves of a position layer or None."""
    if position is None:
        return None
    config = keras.saving.serialize_keras_object(position)
    # The layer that holds the position builds it, whether this one was built already or not, and
    # saves itself what is trainable inside.
    config["config"] = {
        key: value
        for key, value in config["config"].items()
        if key not in ("trainable", "trainable_inside")
    }
    return {key: value for key, value in config.items() if key != "build_config"}
