from pathlib import Path

import pytest

from tests.other_backends import LEFT_OUT_ON_JAX, reason_to_leave_out
from tests.selection import spread


def test_each_value_is_tried_and_the_other_combinations_are_slow():
    cases = spread("abcde", [0, 1, 2])
    assert len({case.values for case in cases}) == 15
    tried = [case.values for case in cases if not case.marks]
    assert tried == [("a", 0), ("b", 1), ("c", 2), ("d", 0), ("e", 1)]


BEGINNINGS = [beginning for reason in LEFT_OUT_ON_JAX.values() for beginning in reason]


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_what_is_left_out_on_jax_is_there(beginning):
    file, _, name = beginning.partition("::")
    path = Path(__file__).resolve().parents[1] / file
    assert path.exists()
    assert not name or f"def {name.partition('[')[0]}" in path.read_text(encoding="utf-8")
    assert reason_to_leave_out(f"{beginning}x", "jax")
    assert reason_to_leave_out(f"{beginning}x", "tensorflow") is None
