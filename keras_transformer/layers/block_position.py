"""Positions of either kind for a layer, a stack or a model: added to its input, or in attention."""

import keras

from keras_transformer.layers.added_position import AddedPosition
from keras_transformer.layers.attention_position import Shared, checked_position


def checked_block_position(position, dtype):
    """Returns a copy of a position layer of either kind, as `checked_position` does.

    One that is added works in `dtype`, the policy of the layer that adds it.
    """
    if isinstance(position, dict):
        position = keras.saving.deserialize_keras_object(position)
    if isinstance(position, Shared) or not isinstance(position, AddedPosition):
        return checked_position(position)
    if position.combine != "add":
        raise ValueError(
            "`position` must be added to the embeddings; appending it would change the width of "
            f"the model. Received: a position layer with combine={position.combine!r}"
        )
    return type(position).from_config({**position.get_config(), "dtype": dtype})
