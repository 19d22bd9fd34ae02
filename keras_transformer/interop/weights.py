"""The weights of a `Transformer` by name, as the matrices that other systems keep.

A name is the path of the variable inside the model, as "encoder/layer_0/attention/query/kernel".
A kernel is a matrix (inputs, outputs), its heads side by side. A bias has one axis. All other
weights keep their axes.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer.layers import Decoder, LearnedPositionalEncoding, RelativePositionBias
from keras_transformer.layers.stack import Stack
from keras_transformer.lora import has_lora, merge_lora
from keras_transformer.models import Transformer

# The last parts of the names of what reads d_model numbers, by its first axis, and of what writes
# them, by its last.
READS = (
    *("query/kernel", "key/kernel", "value/kernel", "inner/kernel", "gate/kernel"),
    "reverse_embeddings",
)
WRITES = (
    *("attention_output/kernel", "attention_output/bias", "outer/kernel", "outer/bias"),
    *("gamma", "beta", "/embeddings", "position_vectors"),
)


def weight_shapes(model: Transformer) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each weight of a model, built or not, so before it takes memory."""
    d_model = model.d_model
    shapes: dict[str, tuple[int, ...]] = {}
    for table in (model.source_embedding, model.target_embedding):
        shapes[f"{table.name}/embedding/embeddings"] = (table.vocab_size, d_model)
        if not table.tie_output:
            shapes[f"{table.name}/embedding/reverse_embeddings"] = (d_model, table.vocab_size)
        if table.logits_bias:
            shapes[f"{table.name}/logits_bias"] = (table.vocab_size,)
    for side, stack in (("source", model.encoder), ("target", model.decoder)):
        if model.embedding_norm:
            shapes |= _norm_shapes(f"{side}_norm", stack, d_model)
        if isinstance(model.position, LearnedPositionalEncoding):
            rows = (model.position.max_length, d_model)
            shapes[f"{side}_positions/position_vectors"] = rows
        if isinstance(model.position, RelativePositionBias):
            buckets = (model.position.num_buckets, stack.num_heads)
            part = "self_attention" if isinstance(stack, Decoder) else "attention"
            first = f"{stack.name}/layer_0/{part}"  # which the other layers share
            shapes[f"{first}/{stack.name}_position/bucket_bias"] = buckets
        for index in range(stack.num_layers):
            shapes |= _layer_shapes(f"{stack.name}/layer_{index}", stack, d_model)
        if stack.norm_first:
            shapes |= _norm_shapes(f"{stack.name}/final_norm", stack, d_model)
    return shapes


def _layer_shapes(layer: str, stack: Stack, d_model: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    is_decoder = isinstance(stack, Decoder)
    width = d_model // stack.num_heads * stack.num_key_value_heads
    for part in ("self_attention", "cross_attention") if is_decoder else ("attention",):
        sizes = {"query": d_model, "key": width, "value": width, "attention_output": d_model}
        for name, size in sizes.items():
            shapes[f"{layer}/{part}/{name}/kernel"] = (d_model, size)
            shapes[f"{layer}/{part}/{name}/bias"] = (size,)
        shapes |= _norm_shapes(f"{layer}/{part}_residual/norm", stack, d_model)
    inner = ("gate", "inner") if isinstance(stack.activation, str) else ("inner",)
    for name in inner:
        shapes[f"{layer}/feed_forward/{name}/kernel"] = (d_model, stack.d_ff)
        shapes[f"{layer}/feed_forward/{name}/bias"] = (stack.d_ff,)
    shapes[f"{layer}/feed_forward/outer/kernel"] = (stack.d_ff, d_model)
    shapes[f"{layer}/feed_forward/outer/bias"] = (d_model,)
    return shapes | _norm_shapes(f"{layer}/feed_forward_residual/norm", stack, d_model)


def _norm_shapes(name: str, stack: Stack, d_model: int) -> dict[str, tuple[int, ...]]:
    if stack.rms_norm:
        return {f"{name}/scale": (d_model,)}
    return {f"{name}/gamma": (d_model,), f"{name}/beta": (d_model,)}


def variables(model: Transformer) -> dict[str, Any]:
    """Returns the variables of a built model by name."""
    return {weight.path.split("/", 1)[1]: weight for weight in model.weights}


def read_weights(model: Transformer) -> dict[str, np.ndarray]:
    """Returns the float32 weights of a built model by name; those of LoRA are merged."""
    model = merge_lora(model) if has_lora(model) else model
    shapes = weight_shapes(model)
    return {
        name: ops.convert_to_numpy(variable).astype("float32").reshape(shapes[name])
        for name, variable in variables(model).items()
    }


def build_with(model: Transformer, read: Callable[[str], np.ndarray]) -> None:
    """Builds a model whose weights have the values `read(name)`, read one at a time.

    No initial values are drawn. A weight takes memory when it gets its values, so the weights and
    copies of one are the most that is taken.
    """
    graph = tf.Graph()  # where an initializer gives its shape and takes no memory

    def empty(create: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        initial = options["initial_value"]
        if not callable(initial) or not tf.as_dtype(options["dtype"]).is_floating:
            return create(**options)

        def unfilled() -> tf.Tensor:
            with graph.as_default():
                spec = tf.TensorSpec.from_tensor(initial())
            return tf.raw_ops.Empty(shape=spec.shape, dtype=spec.dtype)

        return create(**{**options, "initial_value": unfilled})

    with tf.variable_creator_scope(empty):
        model.build()
    assign_weights(model, read)


def assign_weights(model: Transformer, read: Callable[[str], np.ndarray]) -> None:
    """Gives each weight of a built model the values `read(name)`, one weight at a time."""
    for name, variable in variables(model).items():
        variable.assign(np.asarray(read(name), "float32").reshape(variable.shape))


def reordered(name: str, values: np.ndarray, order: Iterable[int]) -> np.ndarray:
    """Returns weights for a d_model whose numbers are in another order: number i was `order[i]`.

    A model whose weights are all reordered computes the same. Heads and d_ff keep their order.
    """
    if name.endswith(READS):
        return values[list(order)]
    return values[..., list(order)] if name.endswith(WRITES) else values


def halves_order(d_model: int) -> list[int]:
    """The order that makes of interleaved sinusoids all sines, then all cosines."""
    return [*range(0, d_model, 2), *range(1, d_model, 2)]
