import itertools
import types
from pathlib import Path

import pytest

from tests.other_backends import LEFT_OUT, reason_to_leave_out
from tests.selection import LONGEST_FILES, covering, processes_for, spread


def test_a_folder_has_two_processes_and_files_alone_none():
    folder, file = Path(__file__).parent, Path(__file__)
    assert processes_for([folder]) == processes_for([file, folder]) == 2
    assert processes_for([file]) == processes_for([file, file]) == 0


def test_pytest_runs_what_it_is_given_in_so_many_processes(pytestconfig):
    if not pytestconfig.pluginmanager.hasplugin("xdist"):
        pytest.skip("needs pytest-xdist")
    place = types.SimpleNamespace(dir=Path(__file__).parents[1])
    for arguments, number in [
        (["tests"], 2),
        (["tests/layers", "tests/test_masking.py"], 2),
        (["tests/test_masking.py"], 0),
        (["tests/test_masking.py::test_a", "tests/test_losses.py::test_b[x::y]"], 0),
    ]:
        config = types.SimpleNamespace(args=arguments, invocation_params=place)
        assert pytestconfig.hook.pytest_xdist_auto_num_workers(config=config) == number


def test_one_process_runs_all_files_of_the_trained_translator(pytestconfig):
    if not pytestconfig.pluginmanager.hasplugin("xdist"):
        pytest.skip("needs pytest-xdist")

    def scheduler(dist):
        config = types.SimpleNamespace(
            rootpath=Path(__file__).parents[1],
            option=types.SimpleNamespace(dist=dist),
            getvalue=lambda name: ["popen", "popen"],  # of `tx`, the processes
        )
        return pytestconfig.hook.pytest_xdist_make_scheduler(config=config, log=None)

    files = ("serving/test_translator.py", "commands/test_translate.py", "test_losses.py")
    scopes = [scheduler("loadfile")._split_scope(f"tests/{file}::test_a[b]") for file in files]
    assert scopes == ["trained", "trained", "tests/test_losses.py"]
    assert scheduler("load") is None


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


CASES = [
    (backend, beginning)
    for backend, reasons in LEFT_OUT.items()
    for beginnings in reasons.values()
    for beginning in beginnings
]


@pytest.mark.parametrize(("backend", "beginning"), CASES)
def test_what_a_backend_leaves_out_is_there(backend, beginning):
    file, _, name = beginning.partition("::")
    path = Path(__file__).resolve().parents[1] / file
    assert path.exists()
    assert not name or f"def {name.partition('[')[0]}" in path.read_text(encoding="utf-8")
    assert reason_to_leave_out(f"{beginning}x", backend)
    assert reason_to_leave_out(f"{beginning}x", "tensorflow") is None
