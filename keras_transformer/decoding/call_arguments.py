"""Checks of the arguments of a search's call. Each error says the rule and what was received."""

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Ids, PaddingMask, Tensor
from keras_transformer.integer_ids import dtype_name, integer_ids
from keras_transformer.masking import boolean_mask

LARGEST_INT32 = 2**31 - 1


def is_read(values: Any) -> bool:
    """Whether values are of Python or NumPy, so that a check can read them in a graph too."""
    return isinstance(values, (list, tuple, str, numbers.Number, np.generic, np.ndarray))


def read_numbers(name: str, values: Any) -> np.ndarray:
    """Returns values that `is_read` as an array, or raises `ValueError` unless they are numbers."""
    try:
        read = np.asarray(values)
    except (ValueError, OverflowError):  # rows of different lengths
        read = np.asarray(None)
    if read.dtype.kind not in "iuf":
        raise ValueError(f"`{name}` must be an array of numbers. Received: {name}={values!r:.200}")
    return read


def special_ids_by_name(pad_id: Any, bos_id: Any, eos_id: Any) -> dict[str, int]:
    """Returns the three ids by name as integers, or raises `ValueError`."""
    given = {"pad_id": pad_id, "bos_id": bos_id, "eos_id": eos_id}
    return {name: arguments.non_negative_integer(name, value) for name, value in given.items()}


def number_or_tensor(check: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    """Returns `check(name, value)`, or a tensor as it is."""
    return check(name, value) if value is None or is_read(value) else value


def per_sentence(
    name: str,
    values: Any,
    batch_size: int | Tensor,
    *,
    dtype: str,
    least: float,
    most: float = math.inf,
) -> Tensor:
    """Returns values (batch,), or one value for all, as a tensor (batch,) of `dtype`.

    Raises `ValueError` for a wrong shape, and for floats where `dtype` is an integer type. Where
    the values can be read, also for NaN and for a value that is not from `least` to `most`.
    """
    if is_read(values):
        read = read_numbers(name, values)
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


def checked_source_mask(source_mask: PaddingMask, batch_size: int | Tensor) -> PaddingMask:
    """Returns the mask, or raises `ValueError` for floats and unless it is (batch, source)."""
    mask = boolean_mask("source_mask", source_mask)
    return checked_rows("source_mask", mask, "source", batch_size)


def checked_prefix(prefix_ids: Ids, batch_size: int | Tensor, pad_id: int) -> tuple[Ids, int]:
    """Returns `prefix_ids` as int32, and the largest of them: -1 for a tensor, which is not read.

    Raises `ValueError` unless they are (batch, prefix), ids of at least 0, padded at the end.
    """
    if is_read(prefix_ids):
        read_numbers("prefix_ids", prefix_ids)
    prefix = ops.cast(integer_ids("prefix_ids", prefix_ids), "int32")
    prefix = checked_rows("prefix_ids", prefix, "prefix", batch_size)
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


def checked_rows(name: str, tensor: Tensor, axis: str, batch_size: int | Tensor) -> Tensor:
    """Returns the tensor, or raises `ValueError` unless it is (batch, `axis`)."""
    rows = tensor.shape[0] if len(tensor.shape) == 2 else -1
    if rows == -1 or (isinstance(batch_size, int) and rows not in (None, batch_size)):
        raise ValueError(
            f"`{name}` must be (batch, {axis}), a row for each sentence. "
            f"Received: shape {tuple(tensor.shape)} for {batch_size} sentences"
        )
    return tensor
