import itertools
from pathlib import Path

import pytest

from tests.other_backends import LEFT_OUT_ON_JAX, reason_to_leave_out
from tests.selection import LONGEST_FILES, covering, spread


def test_each_value_is_tried_and_the_other_combinations_are_slow():
    cases = spread("abcde", [0, 1, 2])
    assert len({case.values for case in cases}) == 15
    tried = [case.values for case in cases if not case.marks]
    assert tried == [("a", 0), ("b", 1), ("c", 2), ("d", 0), ("e", 1)]


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_any_few_values_occur_together(strength):
    axes = ["abc", [0, 1], [False, True], "xyzw"]
    cases = covering(*axes, strength=strength)
    for some in itertools.combinations(range(4), strength):
        together = {tuple(case[axis] for axis in some) for case in cases}
        assert together == set(itertools.product(*(axes[axis] for axis in some)))
    assert len(set(cases)) == len(cases) <= {1: 4, 2: 13, 3: 27}[strength]


def test_the_longest_files_are_there():
    assert all((Path(__file__).parent / file).is_file() for file in LONGEST_FILES)


BEGINNINGS = [beginning for reason in LEFT_OUT_ON_JAX.values() for beginning in reason]


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_what_is_left_out_on_jax_is_there(beginning):
    file, _, name = beginning.partition("::")
    path = Path(__file__).resolve().parents[1] / file
    assert path.exists()
    assert not name or f"def {name.partition('[')[0]}" in path.read_text(encoding="utf-8")
    assert reason_to_leave_out(f"{beginning}x", "jax")
    assert reason_to_leave_out(f"{beginning}x", "tensorflow") is None
