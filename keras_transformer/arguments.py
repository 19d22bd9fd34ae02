"""Checks of constructor arguments, with the one form of error message used everywhere."""

import math
import numbers


def positive_integer(name, value):
    """Returns `value`, or raises `ValueError` when it is not a positive integer."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value <= 0:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return int(value)


def non_negative_integer(name, value):
    """Returns `value`, or raises `ValueError` when it is not an integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 0:
        raise ValueError(f"`{name}` must be an integer of at least 0. Received: {name}={value!r}")
    return int(value)


def rate(name, value):
    """Returns `value`, or raises `ValueError` when it is not in [0, 1)."""
    if not _is_number(value) or not 0 <= value < 1:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={value!r}")
    return float(value)


def one_of(name, value, choices):
    """Returns `value`, or raises `ValueError` when it is none of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}. Received: {name}={value!r}")
    return value


def positive_number(name, value):
    """Returns `value`, or raises `ValueError` when it is not a finite number above 0."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"`{name}` must be a finite number above 0. Received: {name}={value!r}")
    return float(value)


def non_negative_number(name, value):
    """Returns `value`, or raises `ValueError` when it is not a finite number of at least 0."""
    if not _is_number(value) or not 0 <= value < math.inf:
        raise ValueError(
            f"`{name}` must be a finite number of at least 0. Received: {name}={value!r}"
        )
    return float(value)


def number_within(name, value, least, most):
    """Returns `value`, or raises `ValueError` when it is not a number from `least` to `most`."""
    if not _is_number(value) or not least <= value <= most:
        raise ValueError(
            f"`{name}` must be a number from {least:g} to {most:g}. Received: {name}={value!r}"
        )
    return float(value)


def boolean(name, value):
    """Returns `value`, or raises `ValueError` when it is neither True nor False."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return value


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
