"""Checks of arguments, with one form of error message, and names for tensors and their shapes."""

import math
import numbers
import operator
from typing import Any, TypeAlias

import numpy as np

# Tensors in annotations. Each backend has a tensor class of its own, and NumPy arrays count too,
# so a type checker takes them all for `Any`. The name says the dtype and the shape.
Tensor: TypeAlias = Any  # of any dtype and shape
Ids: TypeAlias = Any  # integers (batch, length), token ids
BooleanMask: TypeAlias = Any  # booleans (batch, length), True at real positions
Logits: TypeAlias = Any  # floats (..., vocab), before the softmax
LogProbs: TypeAlias = Any  # float32 (..., vocab), after the log-softmax
Scores: TypeAlias = Any  # float32 (batch, hypotheses), log-probabilities under a length penalty


def plain(value):
    """Returns the Python object of a NumPy scalar or an array of no axes; others as they are."""
    is_scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim)
    return value.item() if is_scalar else value


def optional(check, name, value):
    """Returns `check(name, value)`, or None for None."""
    return None if value is None else check(name, value)


def positive_integer(name, value):
    """Returns `value` as an int, or raises `ValueError` when it is not a positive integer."""
    number = _integer(value)
    if number is None or number <= 0:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return number


def non_negative_integer(name, value):
    """Returns `value` as an int, or raises `ValueError` when it is not an integer of at least 0."""
    number = _integer(value)
    if number is None or number < 0:
        raise ValueError(f"`{name}` must be an integer of at least 0. Received: {name}={value!r}")
    return number


def integers(name, value):
    """Returns an integer or several as a tuple of ints, or raises `ValueError`."""
    values = list(value) if isinstance(value, (list, tuple)) or np.ndim(value) else [value]
    found = tuple(map(_integer, values))
    if None in found:
        raise ValueError(
            f"`{name}` must be an integer or a tuple of them. Received: {name}={value!r}"
        )
    return found


def rate(name, value):
    """Returns `value` as a float, or raises `ValueError` when it is not in [0, 1)."""
    number = _number(value)
    if not 0 <= number < 1:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={value!r}")
    return number


def one_of(name, value, choices):
    """Returns the one of `choices`, strings or None, that `value` is, or raises `ValueError`."""
    for choice in choices:
        if isinstance(value, type(choice)) and value == choice:
            return choice
    listed = ", ".join(repr(choice) for choice in choices)
    raise ValueError(f"`{name}` must be one of {listed}. Received: {name}={value!r}")


def positive_number(name, value):
    """Returns `value` as a float, or raises `ValueError` when it is not finite and above 0."""
    number = _number(value)
    if not 0 < number < math.inf:
        raise ValueError(f"`{name}` must be a finite number above 0. Received: {name}={value!r}")
    return number


def non_negative_number(name, value):
    """Returns `value` as a float, or raises `ValueError` when it is not finite and at least 0."""
    number = _number(value)
    if not 0 <= number < math.inf:
        raise ValueError(
            f"`{name}` must be a finite number of at least 0. Received: {name}={value!r}"
        )
    return number


def number_within(name, value, least, most):
    """Returns `value` as a float, or raises `ValueError` unless it is from `least` to `most`."""
    number = _number(value)
    if not least <= number <= most:
        raise ValueError(
            f"`{name}` must be a number from {least:g} to {most:g}. Received: {name}={value!r}"
        )
    return number


def boolean(name, value):
    """Returns `value` as a bool, or raises `ValueError` when it is neither True nor False."""
    found = plain(value)
    if not isinstance(found, bool):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return found


def _integer(value):
    """An int of what Python takes as an index, booleans left out; None of anything else."""
    value = plain(value)
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _number(value):
    """A float of a number, booleans left out; NaN, which is within no bounds, of anything else."""
    value = plain(value)
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return float(value) if is_number else math.nan
