"""Checks of arguments, with one form of error message, and names for tensors and their shapes."""

import math
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

# Names for annotations. Each backend has a tensor class of its own, and NumPy arrays count too, so
# a type checker takes them all for `Any`. The name says the dtype and the shape.
Tensor: TypeAlias = Any
"""Of any dtype and shape."""

Ids: TypeAlias = Any
"""Integers (batch, length): token ids, or the numbers of segments."""

PaddingMask: TypeAlias = Any
"""Booleans (batch, length), True at the positions that count, False at padding.

For inputs with more axes, as attention over `attention_axes` takes them, (batch, *axes).
"""

AttentionMask: TypeAlias = Any
"""Booleans (batch, query, key) or (batch, heads, query, key), True where a query may attend.

Axes of size 1 broadcast. With more axes, (batch, *other axes, [heads,] *query axes, *key axes).
"""

BooleanMask: TypeAlias = Any
"""Booleans of any shape."""

PreviousMask: TypeAlias = Any
"""Booleans: what Keras gives `compute_mask`, a mask or a list with one for each input."""

BeamPaths: TypeAlias = Any
"""Integers, int32 (batch, beam, length): the slot of each beam at each position."""

Logits: TypeAlias = Any
"""Floats (..., vocab), before the softmax."""

LogProbs: TypeAlias = Any
"""Floats, float32 (..., vocab): log-probabilities by the token that comes next."""

Scores: TypeAlias = Any
"""Floats, float32 (batch, hypotheses): log-probabilities under a length penalty."""

Shape: TypeAlias = tuple[Any, ...]
"""Sizes, None for one that is not known in advance."""

Length: TypeAlias = int | Tensor
"""A number of positions: an integer, or an integer tensor of no axes."""

Axes: TypeAlias = int | Sequence[int]
"""One number or several."""

Activation: TypeAlias = str | Callable[[Tensor], Tensor] | dict[str, Any] | None
"""The name of an activation, a function, or what a configuration holds of it; None for none."""

Initializer: TypeAlias = str | keras.initializers.Initializer | dict[str, Any]
"""The name of an initializer, the object, or what a configuration holds of it."""

Regularizer: TypeAlias = str | keras.regularizers.Regularizer | dict[str, Any]
"""The name of a regularizer, the object, or what a configuration holds of it."""

Constraint: TypeAlias = str | keras.constraints.Constraint | dict[str, Any]
"""The name of a constraint, the object, or what a configuration holds of it."""

KerasSchedule: TypeAlias = keras.optimizers.schedules.LearningRateSchedule | dict[str, Any]
"""A schedule of `keras.optimizers.schedules`, or what a configuration holds of it."""


def plain(value: Any) -> Any:
    """Returns the Python object of a NumPy scalar or an array of no axes; others as they are."""
    is_scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim)
    return value.item() if is_scalar else value


def optional(check: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    """Returns `check(name, value)`, or None for None."""
    return None if value is None else check(name, value)


def positive_integer(name: str, value: Any) -> int:
    """Returns `value` as an int, or raises `ValueError` when it is not a positive integer."""
    number = _integer(value)
    if number is None or number <= 0:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return number


def non_negative_integer(name: str, value: Any) -> int:
    """Returns `value` as an int, or raises `ValueError` when it is not an integer of at least 0."""
    number = _integer(value)
    if number is None or number < 0:
        raise ValueError(f"`{name}` must be an integer of at least 0. Received: {name}={value!r}")
    return number


def integers(name: str, value: Any) -> tuple[int, ...]:
    """Returns an integer or several as a tuple of ints, or raises `ValueError`."""
    values = list(value) if isinstance(value, (list, tuple)) or np.ndim(value) else [value]
    found = tuple(number for number in map(_integer, values) if number is not None)
    if len(found) < len(values):
        raise ValueError(
            f"`{name}` must be an integer or a tuple of them. Received: {name}={value!r}"
        )
    return found


def rate(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises `ValueError` when it is not in [0, 1)."""
    number = _number(value)
    if not 0 <= number < 1:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={value!r}")
    return number


def one_of(name: str, value: Any, choices: Any) -> Any:
    """Returns the one of `choices`, strings or None, that `value` is, or raises `ValueError`."""
    for choice in choices:
        if isinstance(value, type(choice)) and value == choice:
            return choice
    listed = ", ".join(repr(choice) for choice in choices)
    raise ValueError(f"`{name}` must be one of {listed}. Received: {name}={value!r}")


def positive_number(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises `ValueError` when it is not finite and above 0."""
    number = _number(value)
    if not 0 < number < math.inf:
        raise ValueError(f"`{name}` must be a finite number above 0. Received: {name}={value!r}")
    return number


def non_negative_number(name: str, value: Any) -> float:
    """Returns `value` as a float, or raises `ValueError` when it is not finite and at least 0."""
    number = _number(value)
    if not 0 <= number < math.inf:
        raise ValueError(
            f"`{name}` must be a finite number of at least 0. Received: {name}={value!r}"
        )
    return number


def number_within(name: str, value: Any, least: float, most: float) -> float:
    """Returns `value` as a float, or raises `ValueError` unless it is from `least` to `most`."""
    number = _number(value)
    if not least <= number <= most:
        raise ValueError(
            f"`{name}` must be a number from {least:g} to {most:g}. Received: {name}={value!r}"
        )
    return number


def string(name: str, value: Any) -> str:
    """Returns `value` as a str, NumPy's strings too, or raises `ValueError`."""
    if not isinstance(value, str):
        raise ValueError(f"`{name}` must be a string. Received: {name}={value!r:.80}")
    return str(value)


def boolean(name: str, value: Any) -> bool:
    """Returns `value` as a bool, or raises `ValueError` when it is neither True nor False."""
    found = plain(value)
    if not isinstance(found, bool):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return found


def _integer(value: Any) -> int | None:
    """An int of what Python takes as an index, booleans left out; None of anything else."""
    value = plain(value)
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _number(value: Any) -> float:
    """A float of a number, booleans left out; NaN, which is within no bounds, of anything else."""
    value = plain(value)
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return float(value) if is_number else math.nan
