"""Checks of what a search is called with: each says the rule and what was received."""

import math
import numbers

import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.masking import boolean_mask, dtype_name, integer_ids

LARGEST_INT32 = 2**31 - 1


def is_read(values):
    """Whether values are Python's or NumPy's, which can be read whatever compiles the search."""
    return isinstance(values, (list, tuple, str, numbers.Number, np.generic, np.ndarray))


def numbers_of(name, values):
    """Values that can be read as an array, or `ValueError` when they are not numbers."""
    try:
        read = np.asarray(values)
    except (ValueError, OverflowError):  # rows of different lengths
        read = np.asarray(None)
    if read.dtype.kind not in "iuf":
        raise ValueError(f"`{name}` must be an array of numbers. Received: {name}={values!r:.200}")
    return read


def refuse_ids_outside(name, ids, vocab_size):
    """Raises `ValueError` for an id that the vocabulary does not have; tensors are not read.

    An embedding would take another id's row instead, or NaN, as the backend has it.
    """
    if not is_read(ids):
        return
    ids = np.asarray(ids)
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.size:
        raise ValueError(
            f"`{name}` must be ids of the vocabulary, from 0 to {vocab_size - 1}. "
            f"Received: {name} with {outside[0]}"
        )


def special_ids(bos_id, eos_id, pad_id):
    """The three as Python's integers by name, or `ValueError`."""
    given = {"bos_id": bos_id, "eos_id": eos_id, "pad_id": pad_id}
    return {name: arguments.non_negative_integer(name, value) for name, value in given.items()}


def number_or_tensor(check, name, value):
    """Returns `value`, checked unless it is a tensor, as in a graph."""
    return check(name, value) if value is None or is_read(value) else value


def per_sentence(name, values, batch_size, dtype, least, most=math.inf):
    """Values (batch,) or one for all, as a tensor (batch,) of `dtype`, or `ValueError`.

    Values out of their bounds, and NaN, are refused where they can be read; shapes, and numbers
    that are not integers where `dtype` is, always.
    """
    if is_read(values):
        read = numbers_of(name, values)
        if not np.all((read >= least) & (read <= most)):
            bounds = f"at least {least}" + ("" if most == math.inf else f" and at most {most:g}")
            raise ValueError(f"`{name}` must be {bounds}. Received: {name}={values!r:.200}")
        values = np.minimum(read, LARGEST_INT32) if read.dtype.kind in "iu" else read
    tensor = ops.convert_to_tensor(values)
    if "int" in dtype and "int" not in dtype_name(tensor):
        raise ValueError(f"`{name}` must be integers. Received: {name}={values!r:.200}")
    if dtype_name(tensor) in ("int64", "uint32", "uint64"):
        tensor = ops.minimum(tensor, LARGEST_INT32)
    shape = tuple(tensor.shape)
    known = shape and isinstance(batch_size, int) and shape[0] is not None
    if len(shape) > 1 or (known and shape[0] != batch_size):
        raise ValueError(
            f"`{name}` must be (batch,), a number for each sentence. "
            f"Received: shape {shape} for {batch_size} sentences"
        )
    return ops.broadcast_to(ops.cast(tensor, dtype), (batch_size,))


def source_mask_of(source_mask, batch_size):
    """Returns the mask, or raises `ValueError` for floats and when it is not (batch, source)."""
    mask = boolean_mask("source_mask", source_mask)
    return rows_of_sentences("source_mask", mask, "source", batch_size)


def prefix_of(prefix_ids, batch_size, pad_id):
    """Returns `prefix_ids` as int32 and the largest, -1 for a tensor, which is not read.

    Raises `ValueError` when they are no rows of ids, padded at the end.
    """
    if is_read(prefix_ids):
        numbers_of("prefix_ids", prefix_ids)
    prefix = ops.cast(integer_ids("prefix_ids", prefix_ids), "int32")
    prefix = rows_of_sentences("prefix_ids", prefix, "prefix", batch_size)
    if not is_read(prefix_ids):
        return prefix, -1
    read = np.asarray(prefix_ids)
    if np.any(read < 0):
        raise ValueError(
            f"`prefix_ids` must have ids of at least 0. Received: prefix_ids={prefix_ids!r:.200}"
        )
    is_padding = read == pad_id
    if np.any(is_padding[:, :-1] & ~is_padding[:, 1:]):
        raise ValueError(
            "`prefix_ids` must have padding at the end alone. "
            f"Received: prefix_ids={prefix_ids!r:.200}"
        )
    return prefix, int(np.max(read, initial=-1))


def rows_of_sentences(name, tensor, width, batch_size):
    """Returns the tensor, or raises `ValueError` when it is not (batch, width)."""
    rows = tensor.shape[0] if len(tensor.shape) == 2 else -1
    if rows == -1 or (isinstance(batch_size, int) and rows not in (None, batch_size)):
        raise ValueError(
            f"`{name}` must be (batch, {width}), a row for each sentence. "
            f"Received: shape {tuple(tensor.shape)} for {batch_size} sentences"
        )
    return tensor
