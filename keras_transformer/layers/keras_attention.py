"""Weights and settings between `MultiHeadAttention` and Keras's own attention layers."""

from typing import Any

import keras


def copy_weights(source: Any, target: Any) -> None:
    """Gives `target` the weights of `source`, or raises `ValueError` when they are not alike."""
    weights, count = source.get_weights(), len(target.weights)
    if len(weights) != count:
        raise ValueError(
            "weights are copied between attention layers as they are: the projections must be "
            "neither quantized nor hold LoRA weights. "
            f"Received: {source.name} with {len(weights)} weights in place of {count}"
        )
    target.set_weights(weights)


def config_from_keras(layer: Any) -> dict[str, Any]:
    """The constructor's arguments of ours that make `layer`, a Keras attention layer, again."""
    config = layer.get_config()
    if isinstance(layer, keras.layers.MultiHeadAttention):
        return config
    if isinstance(layer, keras.layers.GroupQueryAttention):
        config["key_dim"] = config.pop("head_dim")
        config["num_heads"] = config.pop("num_query_heads")
        return config
    raise ValueError(
        "`layer` must be a keras.layers.MultiHeadAttention or a keras.layers.GroupQueryAttention. "
        f"Received: layer={layer!r}"
    )


def keras_twin(layer: Any) -> keras.layers.Layer:
    """An unbuilt Keras layer with the settings of `layer`; refuses what Keras does not have."""
    config = layer.get_config()
    position, window = config.pop("position"), config.pop("window")
    num_key_value_heads = config.pop("num_key_value_heads")
    config.pop("trainable_inside", None)  # Keras's layer is trainable or frozen as a whole
    grouped = num_key_value_heads != layer.num_heads
    if position is not None:
        raise ValueError(
            "a Keras attention layer has no positions of its own. Received: a layer with "
            f"position={layer.position!r}"
        )
    if not grouped:
        config["sliding_window"] = None if window is None else window + 1
        return keras.layers.MultiHeadAttention.from_config(config)
    if layer.value_dim != layer.key_dim or layer.attention_axes or config.pop("output_shape"):
        raise ValueError(
            "Keras's grouped attention has no `value_dim`, `attention_axes` and `output_shape` "
            f"of its own. Received: value_dim={layer.value_dim}, key_dim={layer.key_dim}, "
            f"attention_axes={layer.attention_axes}, output_shape={layer.output_width}"
        )
    del config["value_dim"], config["attention_axes"]
    config["head_dim"] = config.pop("key_dim")
    config["num_query_heads"] = config.pop("num_heads")
    config["num_key_value_heads"] = num_key_value_heads
    config["sliding_window"] = None if window is None else window + 1
    return keras.layers.GroupQueryAttention.from_config(config)
