"""What several nodes compute and one node of ONNX computes alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.serving.onnx_graph import GraphBuilder, Value


def match_inputs(builder: GraphBuilder, value: Value, kind: str) -> Sequence[Any]:
    """The two inputs of the node of a kind that makes a value; None for each where it is another.

    An input that the node lacks is None.
    """
    made_by, inputs = builder.makers.get(value.name, ("", ()))
    return [*inputs, None, None][:2] if made_by == kind else [None, None]


def follow(builder: GraphBuilder, value: Value, *kinds: str) -> Value | None:
    """The first input of the first input, and so on, of nodes of these kinds, None for others."""
    found: Value | None = value
    for kind in kinds:
        found = None if found is None else match_inputs(builder, found, kind)[0]
    return found


def is_same(one: Value | None, other: Value | None) -> bool:
    """Whether two values are one tensor."""
    return one is not None and other is not None and one.name == other.name


def softmax(builder: GraphBuilder, value: Value) -> Value | None:
    """The exponential of a value as a softmax, or None where it is something else."""
    logits = follow(builder, value, "LogSoftmax")
    if logits is None:
        return None
    return builder.add("Softmax", [logits], None, value.sizes, axis=-1)


def layer_normalization(builder: GraphBuilder, one: Value, two: Value) -> Value | None:
    """The sum of two values as a layer normalization, or None where it is something else.

    With `scale = gamma / sqrt(variance + epsilon)`, Keras computes it as
    `x * scale + (beta - mean * scale)`.
    """
    x, scale = match_inputs(builder, one, "Mul")
    moved, beta = match_inputs(builder, two, "Add")
    if x is None or moved is None or not is_same(match_inputs(builder, moved, "Mul")[1], scale):
        return None
    root, gamma = match_inputs(builder, scale, "Mul")
    mean = follow(builder, moved, "Mul", "Neg")
    total = None if root is None else follow(builder, root, "Reciprocal", "Sqrt")
    if mean is None or total is None:
        return None
    variance, epsilon = match_inputs(builder, total, "Add")
    square = None if variance is None else follow(builder, variance, "ReduceMean")
    if square is None or not is_same(*match_inputs(builder, square, "Mul")):
        return None
    centred = follow(builder, square, "Mul")
    parts = [None, None] if centred is None else match_inputs(builder, centred, "Sub")
    (averaged, axis), (_, other_axis) = (
        match_inputs(builder, part, "ReduceMean") for part in (mean, variance)
    )
    if not (is_same(parts[0], x) and is_same(parts[1], mean) and is_same(averaged, x)):
        return None
    width = x.sizes[-1]
    is_last = all(part.number in (-1, x.rank - 1) for part in (axis, other_axis))
    vectors = [part.constant for part in (gamma, beta)]
    if not is_last or epsilon.number is None or not isinstance(width, int):
        return None
    if any(vector is None or vector.size != width for vector in vectors):
        return None
    weights = [builder.constant(np.reshape(vector, [width])) for vector in vectors]
    options = {"axis": -1, "epsilon": float(epsilon.number)}
    return builder.add("LayerNormalization", [x, *weights], None, x.sizes, **options)
