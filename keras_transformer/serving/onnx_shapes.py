"""TensorFlow's operations that move numbers from place to place, in operations that ONNX has.

They reshape, join, slice, look up and write, and keep lists of tensors. A function takes the
builder, the node of TensorFlow, and the values of its inputs. It returns the value of the output,
or a list of values.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.serving.onnx_graph import GraphBuilder, Value, is_same_size

LARGEST = np.iinfo(np.int64).max
# The length of an axis of a list of tensors that nothing has been written to.
OPEN = "open"


def transpose(builder: GraphBuilder, node: Any, value: Value, order: Value) -> Value:
    """Another order of the axes."""
    return builder.permute(value, order.read_numbers("an order of axes"))


def shape(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """The lengths of the axes."""
    sizes = tuple(builder.size(value, axis) for axis in range(value.rank))
    if node.attr["out_type"].type == tf.int64.as_datatype_enum:
        return builder.vector(sizes, "int64")
    return builder.vector(sizes, "int32")._replace(parts=sizes)


def reshape(builder: GraphBuilder, node: Any, value: Value, to: Value) -> Value:
    """Other axes for the same elements, with a constant shape where ONNX can find the rest."""
    parts = builder.parts(to)
    sizes = [part.as_size for part in parts]
    made_by, inputs = builder.makers.get(value.name, ("", ()))
    for given in (inputs[0], value) if made_by == "Reshape" else (value,):
        if len(sizes) == given.rank and all(map(is_same_size, sizes, given.sizes)):
            return given
        wanted = constant_shape(parts, given.sizes)
        if None not in wanted:
            return builder.add("Reshape", [given, builder.constant(wanted, "int64")], None, sizes)
    return builder.add("Reshape", [value, builder.vector(parts)], None, sizes)


def constant_shape(parts: Sequence[Value], sizes: Sequence[Any]) -> list[Any]:
    """The numbers of a shape for a tensor of `sizes`: 0 as it is, -1 the rest, None unknown."""
    wanted: list[Any] = [part.number for part in parts]
    for axis, (part, size) in enumerate(zip(parts, sizes, strict=False)):
        if wanted[axis] is None and is_same_size(part, size):
            wanted[axis] = 0
    if wanted.count(None) == 1 and -1 not in wanted:
        wanted[wanted.index(None)] = -1
    return wanted


def broadcast(builder: GraphBuilder, node: Any, value: Value, to: Value) -> Value:
    """The value repeated to a shape."""
    return builder.expand(value, builder.parts(to))


def fill(builder: GraphBuilder, node: Any, to: Value, value: Value) -> Value:
    """A number repeated to a shape."""
    return builder.expand(value, builder.parts(to))


def zeros_like(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """Zeros of the same shape."""
    parts = [builder.size(value, axis) for axis in range(value.rank)]
    return builder.expand(builder.constant(0, value.dtype), parts)


def expand_axes(builder: GraphBuilder, node: Any, value: Value, axis: Value) -> Value:
    """A new axis of length 1."""
    (place,) = axis.read_numbers("an axis")
    place %= value.rank + 1
    sizes = [*value.sizes[:place], 1, *value.sizes[place:]]
    found = builder.add("Unsqueeze", [value, builder.axes([place])], None, sizes)
    return found._replace(parts=(value,)) if is_integer_scalar(value) else found


def is_integer_scalar(value: Value) -> bool:
    """Whether a value is one int32."""
    return value.rank == 0 and value.dtype == np.int32


def squeeze(builder: GraphBuilder, node: Any, value: Value) -> Value:
    """Without some axes of length 1."""
    axes = [axis % value.rank for axis in node.attr["squeeze_dims"].list.i]
    axes = axes or [axis for axis, size in enumerate(value.sizes) if size == 1]
    sizes = [size for axis, size in enumerate(value.sizes) if axis not in axes]
    return builder.add("Squeeze", [value, builder.axes(axes)], None, sizes)


def pack(builder: GraphBuilder, node: Any, *values: Value) -> Value:
    """Values side by side along a new axis."""
    if all(map(is_integer_scalar, values)):
        return builder.vector(values, "int32")._replace(parts=values)
    axis = node.attr["axis"].i % (values[0].rank + 1)
    rows = [builder.add("Unsqueeze", [value, builder.axes([axis])]) for value in values]
    return rows[0] if len(rows) == 1 else builder.add("Concat", rows, axis=axis)


def unpack(builder: GraphBuilder, node: Any, value: Value) -> list[Value]:
    """The slices along an axis."""
    axis, sizes = node.attr["axis"].i % value.rank, list(value.sizes)
    del sizes[axis]
    return [
        builder.add("Gather", [value, builder.constant(index, "int64")], None, sizes, axis=axis)
        for index in range(node.attr["num"].i)
    ]


def concatenate(builder: GraphBuilder, node: Any, *values: Value) -> Value:
    """Values one after another along an axis."""
    *rows, last = values
    (axis,) = last.read_numbers("an axis")
    if all(row.rank == 1 and (row.parts or row.constant is not None) for row in rows):
        parts = tuple(part for row in rows for part in builder.parts(row))
        if rows[0].dtype == np.int32:
            return builder.vector(parts, "int32")._replace(parts=parts)
    axis %= rows[0].rank
    lengths = [row.sizes[axis] for row in rows]
    sizes = list(rows[0].sizes)
    sizes[axis] = sum(lengths) if all(isinstance(length, int) for length in lengths) else None
    return rows[0] if len(rows) == 1 else builder.add("Concat", rows, None, sizes, axis=axis)


def split(builder: GraphBuilder, node: Any, axis: Value, value: Value) -> list[Value]:
    """Equal parts along an axis."""
    (place,) = axis.read_numbers("an axis")
    count = node.attr["num_split"].i
    outputs = [(value.dtype, None)] * count
    return builder.add_many("Split", [value], outputs, axis=place % value.rank, num_outputs=count)


def tile(builder: GraphBuilder, node: Any, value: Value, counts: Value) -> Value:
    """The value repeated so many times along each axis."""
    return builder.add("Tile", [value, builder.vector(builder.parts(counts))])


def pad(builder: GraphBuilder, node: Any, value: Value, widths: Value, *fill: Value) -> Value:
    """The value with `fill` around it."""
    before_and_after = builder.permute(widths, [1, 0])
    flat = builder.add("Reshape", [before_and_after, builder.constant([-1], "int64")])
    return builder.add("Pad", [value, builder.cast(flat, "int64"), *fill])


def gather(builder: GraphBuilder, node: Any, value: Value, indices: Value, axis: Value) -> Value:
    """Slices of an axis by their indices."""
    (place,) = axis.read_numbers("an axis")
    place %= value.rank
    shared = node.attr["batch_dims"].i
    if value.parts is not None and indices.number is not None and indices.rank == 0:
        return value.parts[int(indices.number)]
    before, after = value.sizes[:place], value.sizes[place + 1 :]
    sizes = (*before, *indices.sizes[shared:], *after)
    if not shared:
        return builder.add("Gather", [value, indices], None, sizes, axis=place)
    if place != shared:
        raise ValueError(f"the axis of a lookup must follow its batch. Received: {node.name}")
    last = builder.axes([indices.rank])
    places = builder.cast(builder.add("Unsqueeze", [indices, last]), "int64")
    return builder.add("GatherND", [value, places], None, sizes, batch_dims=shared)


def gather_points(builder: GraphBuilder, node: Any, value: Value, indices: Value) -> Value:
    """Slices by the indices of several axes."""
    return builder.add("GatherND", [value, builder.cast(indices, "int64")])


def scatter(builder: GraphBuilder, node: Any, places: Value, values: Value, to: Value) -> Value:
    """Zeros of a shape with `values` added at places."""
    zeros = builder.expand(builder.constant(0, values.dtype), builder.parts(to))
    inputs = [zeros, builder.cast(places, "int64"), values]
    return builder.add("ScatterND", inputs, None, zeros.sizes, reduction="add")


def scatter_points(
    builder: GraphBuilder, node: Any, value: Value, places: Value, values: Value
) -> Value:
    """The value with others at places."""
    inputs = [value, builder.cast(places, "int64"), values]
    return builder.add("ScatterND", inputs, None, value.sizes)


def update_slice(
    builder: GraphBuilder, node: Any, value: Value, new: Value, starts: Value
) -> Value:
    """The value with `new` from a place of one axis on; from the first place of all others."""
    parts = builder.parts(starts)
    moving = [axis for axis, part in enumerate(parts) if part.number != 0]
    if not moving:
        moving = [value.rank - 1]
    if len(moving) > 1:
        raise ValueError(f"a slice may be written along one axis. Received: {node.name}")
    (axis,) = moving
    place, length = parts[axis], builder.size(new, axis)
    if length.number != 1:
        bounds = [builder.constant(0, "int32"), length, builder.constant(1, "int32")]
        steps = builder.add("Add", [builder.add("Range", bounds), place])
        after = list(range(1, value.rank - axis))
        place = builder.add("Unsqueeze", [steps, builder.axes(after)]) if after else steps
        place = place._replace(sizes=(None, *[1] * len(after)))
    to = [builder.size(new, axis) for axis in range(new.rank)]
    places = builder.expand(builder.cast(place, "int64"), to)
    return builder.add("ScatterElements", [value, places, new], None, value.sizes, axis=axis)


def reverse(builder: GraphBuilder, node: Any, value: Value, axes: Value) -> Value:
    """The elements of some axes from last to first."""
    places = axes.read_numbers("axes")
    rows = [[number] * len(places) for number in (-1, -LARGEST)]
    inputs = [*map(builder.axes, [*rows, places, [-1] * len(places)])]
    return builder.add("Slice", [value, *inputs], None, value.sizes)


def strided_slice(
    builder: GraphBuilder, node: Any, value: Value, begin: Value, end: Value, step: Value
) -> Value:
    """What square brackets select."""
    flags = {
        name: node.attr[f"{name}_mask"].i
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    begins, ends = builder.parts(begin), builder.parts(end)
    steps = step.read_numbers("steps")
    new = sum(flags["new_axis"] >> index & 1 for index in range(len(steps)))
    hidden = value.rank - (len(steps) - new)  # axes that no index names
    slices: dict[int, tuple[Value, Value, int]] = {}
    picked: dict[int, Value] = {}
    made: list[int | None] = []  # axes of the result: that of the value, or None for a new one
    axis = 0
    for index, stride in enumerate(steps):
        bit = 1 << index
        if flags["ellipsis"] & bit:
            made.extend(range(axis, axis + hidden + 1))
            axis += hidden + 1
            continue
        if flags["new_axis"] & bit:
            made.append(None)
            continue
        if flags["shrink_axis"] & bit:
            picked[axis] = begins[index]
        else:
            made.append(axis)
            first = builder.constant(0 if stride > 0 else LARGEST, "int64")
            last = builder.constant(LARGEST if stride > 0 else -LARGEST, "int64")
            first = first if flags["begin"] & bit else begins[index]
            last = last if flags["end"] & bit else ends[index]
            if (first.number, last.number, stride) != (0, LARGEST, 1):
                slices[axis] = first, last, stride
        axis += 1
    made.extend(range(axis, value.rank))
    if value.rank == 1 and value.parts is not None and len(steps) == 1 and not new:
        chosen = chosen_parts(value.parts, slices, picked)
        if chosen is not None:
            return chosen if picked else builder.vector(chosen, "int32")._replace(parts=chosen)
    return select_axes(builder, value, slices, picked, made)


def chosen_parts(parts: Any, slices: dict[int, Any], picked: dict[int, Value]) -> Any:
    """The parts of a vector that constants select, or None."""
    if picked:
        number = picked[0].number
        return None if number is None else parts[int(number)]
    if not slices:
        return parts
    first, last, stride = slices[0]
    if first.number is None or last.number is None:
        return None
    return tuple(parts[int(first.number) : int(last.number) : stride])


def select_axes(
    builder: GraphBuilder,
    value: Value,
    slices: dict[int, tuple[Value, Value, int]],
    picked: dict[int, Value],
    made: Sequence[int | None],
) -> Value:
    """The slices of some axes, one element of others, and new axes."""
    sizes = [None if axis in slices else size for axis, size in enumerate(value.sizes)]
    if slices:
        firsts, lasts, strides = zip(*slices.values(), strict=True)
        inputs = [
            bound_vector(builder, firsts),
            bound_vector(builder, lasts),
            builder.axes(list(slices)),
            builder.axes(strides),
        ]
        for axis, (first, last, stride) in slices.items():
            sizes[axis] = sliced_size(value.sizes[axis], first, last, stride)
        value = builder.add("Slice", [value, *inputs], None, sizes)
    for axis in sorted(picked, reverse=True):
        del sizes[axis]
        index = picked[axis]
        value = builder.add("Gather", [value, index], None, sizes, axis=axis)
    added = [place for place, axis in enumerate(made) if axis is None]
    if added:
        for place in added:
            sizes.insert(place, 1)
        value = builder.add("Unsqueeze", [value, builder.axes(added)], None, sizes)
    return value


def bound_vector(builder: GraphBuilder, bounds: Sequence[Value]) -> Value:
    """Begins or ends of slices, int64."""
    if all(bound.constant is not None for bound in bounds):
        return builder.axes([int(bound.number) for bound in bounds])
    rows = [
        builder.add("Unsqueeze", [builder.cast(bound, "int64"), builder.axes([0])], sizes=(1,))
        for bound in bounds
    ]
    return rows[0] if len(rows) == 1 else builder.add("Concat", rows, axis=0)


def sliced_size(size: Any, first: Value, last: Value, stride: int) -> Any:
    """The length of a slice, where it is a number or the end is the scalar itself."""
    if isinstance(size, int) and first.number is not None and last.number is not None:
        return len(range(size)[int(first.number) : int(last.number) : stride])
    return None


def list_from_tensor(builder: GraphBuilder, node: Any, value: Value, *rest: Value) -> Value:
    """A list of tensors is one tensor; its first axis is that of the list."""
    return value


def new_list(builder: GraphBuilder, node: Any, shape: Value, count: Value) -> Value:
    """A list of so many zeros, each of one element until a tensor is written."""
    sizes = [number if number >= 0 else OPEN for number in shape.read_numbers("a shape")]
    one = builder.constant(1, "int32")
    parts = [one if size == OPEN else builder.constant(size, "int32") for size in sizes]
    zero = builder.constant(0, tf.as_dtype(node.attr["element_dtype"].type).as_numpy_dtype)
    zeros = builder.expand(zero, [count, *parts])
    return zeros._replace(constant=None, sizes=(count.as_size, *sizes))


def write_item(builder: GraphBuilder, node: Any, items: Value, index: Value, new: Value) -> Value:
    """The list with a tensor at `index`."""
    count = builder.size(items, 0)
    bounds = [builder.constant(0, "int32"), count, builder.constant(1, "int32")]
    places = builder.add("Range", bounds, sizes=(None,))
    after = builder.axes(list(range(1, items.rank)))
    here = builder.add("Equal", [places, index], bool)
    here = builder.add("Unsqueeze", [here, after], bool) if items.rank > 1 else here
    row = builder.add("Unsqueeze", [new, builder.axes([0])])
    return builder.add("Where", [here, row, items], new.dtype, items.sizes)


def read_item(builder: GraphBuilder, node: Any, items: Value, index: Value, *rest: Value) -> Value:
    """The tensor at `index` of a list."""
    sizes = [None if size == OPEN else size for size in items.sizes[1:]]
    return builder.add("Gather", [items, index], None, sizes, axis=0)


def stack_list(builder: GraphBuilder, node: Any, items: Value, *rest: Value) -> Value:
    """The tensors of a list as one."""
    return items._replace(sizes=tuple(None if size == OPEN else size for size in items.sizes))
