"""Small questions about sequences: how long they are, and what is at and around a position."""

from keras import ops


def cast_alike(dtype, *tensors):
    """Casts each tensor; those that are one object stay one."""
    cast = {id(tensor): ops.cast(tensor, dtype) for tensor in tensors}
    return [cast[id(tensor)] for tensor in tensors]


def same_length(query, value):
    """Whether queries and keys are known beforehand to be equally many."""
    return query is value or (query.shape[1] is not None and query.shape[1] == value.shape[1])


def length_of(tensor):
    """The length (axis 1), a plain integer where it is known beforehand."""
    return ops.shape(tensor)[1] if tensor.shape[1] is None else tensor.shape[1]


def begun(mask):
    """True from the first True of each row of `mask` (batch, length) on."""
    return ops.cumsum(ops.cast(mask, "int32"), axis=1) > 0


def positions_in(mask):
    """Counts 0, 1, 2, ... from the first True of each row of `mask` on; 0 before it: int32."""
    return ops.maximum(ops.cumsum(ops.cast(begun(mask), "int32"), axis=1) - 1, 0)


def any_within(flags, left, right):
    """Whether any of `flags` (batch, length) is True up to `left` before and `right` after."""
    counts = ops.cumsum(ops.cast(flags, "int32"), axis=1)
    length = length_of(flags)
    upto = ops.pad(counts, [(0, 0), (left + 1, 0)])[:, :length]
    last = ops.concatenate([counts, ops.repeat(counts[:, -1:], right, axis=1)], axis=1)
    return last[:, right : right + length] > upto


def all_finite(values):
    """True at positions (batch, length) where `values` (batch, length, width) are all finite."""
    return ops.all(ops.isfinite(values), axis=-1)
