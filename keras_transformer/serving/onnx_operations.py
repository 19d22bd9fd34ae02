"""TensorFlow's operations that compute numbers, in operations that ONNX has, and the table of all.

Those that only move numbers are in `onnx_shapes.py`. A function takes the builder, the node of
TensorFlow, and the values of its inputs. It returns the value of the output, or a list of values.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.serving import onnx_patterns, onnx_shapes
from keras_transformer.serving.onnx_graph import GraphBuilder, Value, is_same_size

SIGN_BIT = np.iinfo(np.int32).min


def settled(value: Any, shape: Any) -> Any:
    """The value with the sizes that TensorFlow knows."""
    if not isinstance(value, Value) or shape is None or shape.unknown_rank:
        return value
    if value.constant is not None:
        return value._replace(sizes=value.constant.shape)
    known = [None if axis.size < 0 else axis.size for axis in shape.dim]
    if value.rank not in (0, len(known)):
        return value  # a list of tensors, which TensorFlow takes for a scalar
    own = value.sizes or [None] * len(known)
    pairs = zip(known, own, strict=True)
    return value._replace(sizes=tuple(two if one is None else one for one, two in pairs))


def broadcast_sizes(values: Sequence[Value]) -> tuple[Any, ...]:
    """The sizes of what an operation by element makes of values."""
    rank = max(value.rank for value in values)
    sizes = []
    for axis in range(-rank, 0):
        own = [value.sizes[axis] for value in values if value.rank >= -axis]
        own = [size for size in own if not (isinstance(size, int) and size == 1)]
        alike = own and all(is_same_size(size, own[0]) for size in own)
        fixed = [size for size in own if isinstance(size, int)]
        sizes.append(fixed[0] if fixed else own[0] if alike else None if own else 1)
    return tuple(sizes)


def attribute_type(node: Any, name: str) -> np.dtype:
    """A dtype among the attributes of a node."""
    return np.dtype(tf.as_dtype(node.attr[name].type).as_numpy_dtype)


def by_element(kind: str, dtype: Any = None) -> Callable[..., Value]:
    """An operation of the same meaning in ONNX, which takes its inputs element by element."""

    def convert(builder: GraphBuilder, node: Any, *values: Value) -> Value:
        return builder.add(kind, values, dtype, broadcast_sizes(values))

    return convert


def negated(kind: str) -> Callable[..., Value]:
    """The contrary of a comparison."""

    def convert(builder: GraphBuilder, node: Any, *values: Value) -> Value:
        sizes = broadcast_sizes(values)
        return builder.add("Not", [builder.add(kind, values, bool, sizes)], bool, sizes)

    return convert


def arithmetic(kind: str) -> Callable[..., Value]:
    """Like `by_element`, and without a node where a number changes nothing."""
    neutral = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}[kind]

    def convert(builder: GraphBuilder, node: Any, one: Value, two: Value) -> Value:
        if two.number == neutral and two.rank <= one.rank:
            return one
        if kind in ("Add", "Mul") and one.number == neutral and one.rank <= two.rank:
            return two
        normal = onnx_patterns.layer_normalization(builder, one, two) if kind == "Add" else None
        return normal or builder.add(kind, [one, two], None, broadcast_sizes([one, two]))

    return convert


def exponential(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """`e ** value`."""
    found = onnx_patterns.softmax(builder, value)
    return found or builder.add("Exp", [value], sizes=value.sizes)


def same_value(builder: GraphBuilder, node: Any, *values: Value) -> list[Value]:
    """The inputs, as they are."""
    return list(values)


def constant(builder: GraphBuilder, node: Any) -> Value:
    """A constant of the graph."""
    array = tf.make_ndarray(node.attr["value"].tensor)
    return builder.constant(array)


def read_variable(builder: GraphBuilder, node: Any, variable: Value) -> Value:
    """A variable, which the file holds as a constant."""
    return variable


def cast(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """Another dtype."""
    return builder.cast(value, attribute_type(node, "DstT"))


def floor_divide(builder: GraphBuilder, node: Any, one: Value, two: Value) -> Value:
    """`floor(one / two)`; ONNX divides integers towards 0."""
    sizes = broadcast_sizes([one, two])
    if one.dtype.kind == "f":
        return builder.add("Floor", [builder.add("Div", [one, two], sizes=sizes)], sizes=sizes)
    rest = builder.add("Mod", [one, two], sizes=sizes)
    return builder.add("Div", [builder.add("Sub", [one, rest], sizes=sizes), two], sizes=sizes)


def remainder(builder: GraphBuilder, node: Any, one: Value, two: Value) -> Value:
    """The rest of a division, of the sign of `two`; onnxruntime knows that of integers alone."""
    sizes = broadcast_sizes([one, two])
    if one.dtype.kind != "f":
        return builder.add("Mod", [one, two], None, sizes)
    whole = builder.add("Mul", [floor_divide(builder, node, one, two), two], None, sizes)
    return builder.add("Sub", [one, whole], None, sizes)


def squared_difference(builder: GraphBuilder, node: Any, one: Value, two: Value) -> Value:
    """`(one - two) ** 2`."""
    sizes = broadcast_sizes([one, two])
    difference = builder.add("Sub", [one, two], sizes=sizes)
    return builder.add("Mul", [difference, difference], sizes=sizes)


def square(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """`value ** 2`."""
    return builder.add("Mul", [value, value], None, value.sizes)


def reciprocal_root(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """`1 / sqrt(value)`."""
    root = builder.add("Sqrt", [value], sizes=value.sizes)
    return builder.add("Reciprocal", [root], sizes=value.sizes)


def is_finite(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """Neither infinite nor NaN."""
    sizes = value.sizes
    kinds = [builder.add(kind, [value], bool, sizes) for kind in ("IsInf", "IsNaN")]
    return builder.add("Not", [builder.add("Or", kinds, bool, sizes)], bool, sizes)


def error_complement(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """`1 - erf(value)`."""
    one = builder.constant(1, value.dtype)
    error = builder.add("Erf", [value], sizes=value.sizes)
    return builder.add("Sub", [one, error], sizes=value.sizes)


def select(builder: GraphBuilder, node: Any, chosen: Value, one: Value, two: Value) -> Value:
    """`one` where `chosen`, else `two`; onnxruntime selects no booleans."""
    sizes = broadcast_sizes([chosen, one, two])
    if one.dtype != bool:
        return builder.add("Where", [chosen, one, two], one.dtype, sizes)
    other = builder.add("Not", [chosen], bool, chosen.sizes)
    halves = [builder.add("And", pair, bool, sizes) for pair in ([chosen, one], [other, two])]
    return builder.add("Or", halves, bool, sizes)


def bit_cast(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """The sign bit of a float as an integer, for `bitwise_and`, which takes no other bit."""
    if (value.dtype, attribute_type(node, "type")) != (np.dtype("float32"), np.dtype("int32")):
        raise ValueError(f"a bit cast must be of float32 to int32. Received: {value.dtype}")
    # The reciprocal of -0 is -inf; that of -inf is -0.
    zero = builder.constant(0, "float32")
    inverse = builder.add("Reciprocal", [value], sizes=value.sizes)
    signs = [builder.add("Less", [part, zero], bool, value.sizes) for part in (value, inverse)]
    negative = builder.add("Or", signs, bool, value.sizes)
    bits = [builder.constant(number, "int32") for number in (SIGN_BIT, 0)]
    found = builder.add("Where", [negative, *bits], "int32", value.sizes)
    return found._replace(parts=(value,))


def bitwise_and(builder: GraphBuilder, node: Any, bits: Value, mask: Value) -> Value:
    """The sign bit of what `bit_cast` made."""
    is_sign = mask.constant is not None and np.all(mask.constant == SIGN_BIT)
    if not is_sign or bits.parts is None:
        raise ValueError(f"only the sign bit of a float is converted. Received: {node.name}")
    return bits._replace(parts=None)


def reduce(kind: str) -> Callable[..., Value]:
    """A sum, mean, product or extreme over axes."""

    def convert(builder: GraphBuilder, node: Any, value: Value, axes: Value) -> Value:
        keep = int(node.attr["keep_dims"].b)
        chosen = [axis % value.rank for axis in axes.read_numbers("axes")]
        if not chosen:
            return value
        if kind == "ReduceProd" and value.parts is not None:
            product = builder.constant(1, "int32")
            for part in value.parts:
                product = arithmetic("Mul")(builder, None, product, part)
            return product
        sizes = [1 if axis in chosen else size for axis, size in enumerate(value.sizes)]
        if not keep:
            sizes = [size for axis, size in enumerate(value.sizes) if axis not in chosen]
        inputs = [value, builder.axes(chosen)]
        return builder.add(kind, inputs, None, sizes, keepdims=keep)

    return convert


def reduce_boolean(kind: str) -> Callable[..., Value]:
    """Whether any, or all, are true."""

    def convert(builder: GraphBuilder, node: Any, value: Value, axes: Value) -> Value:
        number = builder.cast(value, "int32")
        return builder.cast(reduce(kind)(builder, node, number, axes), bool)

    return convert


def swap_last(builder: GraphBuilder, value: Value) -> Value:
    """The value with its last two axes exchanged."""
    return builder.permute(value, [*range(value.rank - 2), value.rank - 1, value.rank - 2])


def matrix_product(builder: GraphBuilder, node: Any, one: Value, two: Value) -> Value:
    """A product of matrices, perhaps transposed."""
    names = ("transpose_a", "transpose_b") if node.op == "MatMul" else ("adj_x", "adj_y")
    flags = [node.attr[name].b for name in names]
    factors = [
        swap_last(builder, value) if flag else value
        for value, flag in zip((one, two), flags, strict=True)
    ]
    left, right = factors
    batch = broadcast_sizes([value._replace(sizes=value.sizes[:-2]) for value in factors])
    return builder.add("MatMul", factors, None, (*batch, left.sizes[-2], right.sizes[-1]))


def einsum(builder: GraphBuilder, node: Any, *values: Value) -> Value:
    """A sum of products by letters."""
    return builder.add("Einsum", values, equation=node.attr["equation"].s.decode())


def softmax(kind: str) -> Callable[..., Value]:
    """A softmax over the last axis."""

    def convert(builder: GraphBuilder, node: Any, value: Value) -> Value:
        return builder.add(kind, [value], None, value.sizes, axis=-1)

    return convert


def numbers_from_to(builder: GraphBuilder, node: Any, *values: Value) -> Value:
    """A range."""
    start, end, step = values
    sizes = [end] if (start.number, step.number) == (0, 1) and end.number is None else [None]
    return builder.add("Range", values, None, sizes)


def cumulative_sum(builder: GraphBuilder, node: Any, value: Value, axis: Value) -> Value:
    """Sums up to each element."""
    flags = {name: int(node.attr[name].b) for name in ("exclusive", "reverse")}
    return builder.add("CumSum", [value, axis], None, value.sizes, **flags)


def largest(builder: GraphBuilder, node: Any, value: Value, count: Value) -> list[Value]:
    """The largest of the last axis, and where they are; among equals the first."""
    counts = builder.add("Unsqueeze", [builder.cast(count, "int64"), builder.axes([0])])
    sizes = (*value.sizes[:-1], count.number)
    outputs = [(value.dtype, sizes), ("int64", sizes)]
    values, places = builder.add_many("TopK", [value, counts], outputs, axis=-1)
    return [values, builder.cast(places, "int32")]


def place_of_largest(builder: GraphBuilder, node: Any, value: Value, axis: Value) -> Value:
    """Where the largest of an axis is; among equals the first."""
    (place,) = axis.read_numbers("an axis")
    place %= value.rank
    sizes = [size for index, size in enumerate(value.sizes) if index != place]
    found = builder.add("ArgMax", [value], "int64", sizes, axis=place, keepdims=0)
    return builder.cast(found, attribute_type(node, "output_type"))


def one_hot(
    builder: GraphBuilder, node: Any, ids: Value, depth: Value, on: Value, off: Value
) -> Value:
    """`on` at the place of each id, and `off` elsewhere."""
    axis = ids.rank if node.attr["axis"].i == -1 else node.attr["axis"].i
    if axis != ids.rank or depth.number is None:
        raise ValueError(f"the axis of a one-hot tensor must be the last. Received: {node.name}")
    places = builder.constant(np.arange(depth.number), ids.dtype)
    rows = builder.add("Unsqueeze", [ids, builder.axes([axis])], None, (*ids.sizes, 1))
    sizes = (*ids.sizes, int(depth.number))
    here = builder.add("Equal", [rows, places], bool, sizes)
    return builder.add("Where", [here, on, off], on.dtype, sizes)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("EnsureShape", "Identity", "IdentityN", "StopGradient"), same_value),
    **{
        kind: by_element(kind)
        for kind in (
            "Abs",
            "Ceil",
            "Erf",
            "Floor",
            "Log",
            "Neg",
            "Relu",
            "Sigmoid",
            "Sqrt",
            "Tanh",
            "Pow",
        )
    },
    **{
        kind: by_element(other, dtype)
        for kind, other, dtype in (
            ("Maximum", "Max", None),
            ("Minimum", "Min", None),
            ("Less", "Less", bool),
            ("LessEqual", "LessOrEqual", bool),
            ("Greater", "Greater", bool),
            ("GreaterEqual", "GreaterOrEqual", bool),
            ("Equal", "Equal", bool),
            ("LogicalAnd", "And", bool),
            ("LogicalOr", "Or", bool),
            ("LogicalNot", "Not", bool),
        )
    },
    **{
        kind: arithmetic(other)
        for kind, other in (
            ("Add", "Add"),
            ("AddV2", "Add"),
            ("BiasAdd", "Add"),
            ("Mul", "Mul"),
            ("RealDiv", "Div"),
            ("Sub", "Sub"),
        )
    },
    **{
        kind: reduce(other)
        for kind, other in (
            ("Max", "ReduceMax"),
            ("Mean", "ReduceMean"),
            ("Min", "ReduceMin"),
            ("Prod", "ReduceProd"),
            ("Sum", "ReduceSum"),
        )
    },
    "All": reduce_boolean("ReduceMin"),
    "Any": reduce_boolean("ReduceMax"),
    "ArgMax": place_of_largest,
    "BatchMatMulV2": matrix_product,
    "Bitcast": bit_cast,
    "BitwiseAnd": bitwise_and,
    "BroadcastTo": onnx_shapes.broadcast,
    "Cast": cast,
    "ConcatV2": onnx_shapes.concatenate,
    "Const": constant,
    "Cumsum": cumulative_sum,
    "Einsum": einsum,
    "Erfc": error_complement,
    "Exp": exponential,
    "ExpandDims": onnx_shapes.expand_axes,
    "Fill": onnx_shapes.fill,
    "FloorDiv": floor_divide,
    "FloorMod": remainder,
    "GatherNd": onnx_shapes.gather_points,
    "GatherV2": onnx_shapes.gather,
    "IsFinite": is_finite,
    "LogSoftmax": softmax("LogSoftmax"),
    "MatMul": matrix_product,
    "NotEqual": negated("Equal"),
    "OneHot": one_hot,
    "Pack": onnx_shapes.pack,
    "Pad": onnx_shapes.pad,
    "PadV2": onnx_shapes.pad,
    "Range": numbers_from_to,
    "ReadVariableOp": read_variable,
    "Reshape": onnx_shapes.reshape,
    "ReverseV2": onnx_shapes.reverse,
    "Rsqrt": reciprocal_root,
    "ScatterNd": onnx_shapes.scatter,
    "SelectV2": select,
    "Shape": onnx_shapes.shape,
    "Softmax": softmax("Softmax"),
    "Split": onnx_shapes.split,
    "Square": square,
    "SquaredDifference": squared_difference,
    "Squeeze": onnx_shapes.squeeze,
    "StridedSlice": onnx_shapes.strided_slice,
    "TensorListFromTensor": onnx_shapes.list_from_tensor,
    "TensorListGetItem": onnx_shapes.read_item,
    "TensorListReserve": onnx_shapes.new_list,
    "TensorListSetItem": onnx_shapes.write_item,
    "TensorListStack": onnx_shapes.stack_list,
    "TensorScatterUpdate": onnx_shapes.scatter_points,
    "Tile": onnx_shapes.tile,
    "TopKV2": largest,
    "Transpose": onnx_shapes.transpose,
    "Unpack": onnx_shapes.unpack,
    "XlaDynamicUpdateSlice": onnx_shapes.update_slice,
    "ZerosLike": onnx_shapes.zeros_like,
}
