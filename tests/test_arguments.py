"""The checks of arguments: Python's own types come out, and what is refused is shown as it was."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest

from keras_transformer import arguments

CHECKS = {
    "positive_integer": arguments.positive_integer,
    "non_negative_integer": arguments.non_negative_integer,
    "rate": arguments.rate,
    "positive_number": arguments.positive_number,
    "non_negative_number": arguments.non_negative_number,
    "number_within": lambda name, value: arguments.number_within(name, value, 0, 10),
    "boolean": arguments.boolean,
    "one_of": lambda name, value: arguments.one_of(name, value, (None, "add")),
    "integers": arguments.integers,
}


class Index:
    """An integer of some other library."""

    def __index__(self):
        return 3


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        ("positive_integer", np.int64(3), 3),
        ("positive_integer", np.array(3, "int8"), 3),
        ("positive_integer", Index(), 3),
        ("non_negative_integer", np.uint8(0), 0),
        ("rate", np.float32(0.25), 0.25),
        ("rate", np.array(0.25), 0.25),
        ("rate", np.int64(0), 0.0),
        ("positive_number", np.float16(0.5), 0.5),
        ("positive_number", Fraction(1, 2), 0.5),
        ("non_negative_number", np.float64(0.5), 0.5),
        ("number_within", np.int32(10), 10.0),
        ("boolean", np.bool_(True), True),
        ("boolean", np.array(False), False),
        ("one_of", np.str_("add"), "add"),
        ("one_of", None, None),
        ("integers", np.int64(-1), (-1,)),
        ("integers", np.array([1, 2]), (1, 2)),
        ("integers", [np.int64(1), 2], (1, 2)),
    ],
)
def test_values_of_other_libraries_become_those_of_python(check, value, expected):
    found = CHECKS[check]("option", value)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(found, tuple):
        assert {type(item) for item in found} == {int}


@pytest.mark.parametrize(
    ("check", "value"),
    [
        ("positive_integer", np.int64(0)),
        ("positive_integer", np.float64(2)),
        ("positive_integer", np.bool_(True)),
        ("positive_integer", np.array(True)),
        ("positive_integer", np.array([3])),
        ("non_negative_integer", np.int64(-1)),
        ("rate", np.float32(1)),
        ("rate", np.float32(math.nan)),
        ("rate", np.bool_(False)),
        ("positive_number", np.array([0.5])),
        ("non_negative_number", np.float64(math.inf)),
        ("number_within", np.float64(11)),
        ("boolean", np.int64(1)),
        ("boolean", np.array([True])),
        ("one_of", np.array(["add"])),
        ("one_of", ["add"]),
        ("integers", np.array([0.5])),
        ("integers", [1, True]),
        ("integers", None),
    ],
)
def test_what_is_refused_is_shown_as_it_was_given(check, value):
    with pytest.raises(ValueError, match=re.escape(f"Received: option={value!r}")):
        CHECKS[check]("option", value)


def test_none_may_stand_for_a_value_that_is_optional():
    assert arguments.optional(arguments.positive_integer, "option", None) is None
    with pytest.raises(ValueError, match="Received: option=0"):
        arguments.optional(arguments.positive_integer, "option", 0)
