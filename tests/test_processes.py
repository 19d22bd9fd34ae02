"""Functions in other processes: results, what they tell and raise, and what dies."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keras_transformer import processes
from keras_transformer.processes import (
    Died,
    call_in_processes,
    count_processors,
    starting_quietly,
)
from tests.doubling import Double, Noisy, read_variable


def test_each_item_has_its_result_and_every_process_works():
    told = []
    found = dict(call_in_processes(Double(), iter(range(40)), 2, told.append))
    assert found == {item: 2 * item for item in range(40)}
    assert len(told) == 40
    assert len(set(told)) == 2
    assert os.getpid() not in told


def test_a_process_that_dies_costs_its_item_alone():
    expected = {item: 2 * item for item in range(20)}
    for workers, deadly in ((2, [3]), (1, [0]), (1, [0, 1, 2]), (2, [0, 1, 2, 17])):
        found = dict(call_in_processes(Double(deadly), range(20), workers, lambda value: None))
        died = dict.fromkeys(deadly, Died("by signal 9"))
        assert found == {**expected, **died}


def test_after_many_deaths_in_a_row_no_process_is_started(monkeypatch):
    monkeypatch.setattr(processes, "MOST_DEATHS", 3)
    told = []
    found = dict(call_in_processes(Double(range(20)), range(20), 1, told.append))
    assert found == {
        **dict.fromkeys(range(3), Died("by signal 9")),
        **dict.fromkeys(range(3, 20), Died("by signal 9, as 3 in a row did")),
    }
    assert len(told) == 3
    # With a result in between they are not in a row.
    found = dict(call_in_processes(Double([0, 1, 3, 4, 6, 7]), range(9), 1, told.append))
    assert [item for item, result in found.items() if result == 2 * item] == [2, 5, 8]
    assert all(found[item] == Died("by signal 9") for item in (0, 1, 3, 4, 6, 7))


def test_a_process_that_dies_between_two_items_costs_none(monkeypatch):
    """The processes die after their start, or after an item, and before they are given the next."""
    start, ask = processes.start, processes.ask

    def end(process):
        process.kill()
        process.wait()

    def start_dying(*given):
        process = start(*given)
        end(process)
        return process

    def ask_once(process, *given):
        answer = ask(process, *given)
        end(process)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(processes, "ask", ask_once)
        found = dict(call_in_processes(Double(), range(5), 2, lambda value: None))
    assert found == {item: 2 * item for item in range(5)}
    monkeypatch.setattr(processes, "MOST_DEATHS", 4)
    monkeypatch.setattr(processes, "start", start_dying)
    found = dict(call_in_processes(Double(), range(9), 2, print))
    assert found.keys() == set(range(9))
    hows = sorted(died.how for died in found.values())
    assert hows[:4] == ["by signal 9"] * 4
    assert all(how.startswith("by signal 9, as ") for how in hows[5:])


KILLED = """
from doubling import start_more
from processes import call_in_processes
list(call_in_processes(start_more, [2], 1, lambda pid: print(pid, flush=True)))
"""


def test_processes_end_with_the_one_that_is_killed(tmp_path):
    """One process has two of its own; all are busy, and none reads or sends when it is alone."""
    folders = Path(processes.__file__).parent, Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [sys.executable, "-P", "-c", KILLED]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as running:
        pids = [int(running.stdout.readline()) for _ in range(3)]
        assert all(map(is_running, pids))
        running.kill()
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid):
    """Whether a process lives; one that has ended may keep its number until somebody asks."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_is_raised_there_is_raised_here():
    with pytest.raises(EOFError, match="item 3 is bad"):
        dict(call_in_processes(Double(bad=3), range(20), 2, lambda value: None))


def test_what_the_items_raise_is_raised_and_no_process_is_left():
    def items():
        yield 1
        raise ValueError("no more")

    told = []
    with pytest.raises(ValueError, match="no more"):
        dict(call_in_processes(Double(), items(), 1, told.append))
    for pid in set(told):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_processes_share_the_processors_and_have_variables_of_their_own(monkeypatch):
    monkeypatch.setenv("CHANGED", "here")
    monkeypatch.setenv("KEPT", "here")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    items = ["CHANGED", "KEPT", "OMP_NUM_THREADS"]
    variables = {"CHANGED": "there"}
    found = dict(call_in_processes(read_variable, items, 2, print, variables))
    threads = str(max(1, count_processors() // 2))
    assert found == {"CHANGED": "there", "KEPT": "here", "OMP_NUM_THREADS": threads}


@pytest.mark.parametrize("level", ["3", "0"])
def test_what_libraries_write_at_the_start_is_shown_only_where_it_fails(capfd, monkeypatch, level):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    assert dict(call_in_processes(Noisy(), [1], 1, print)) == {1: 2}
    shown = "" if level == "3" else "a stray line\n"
    assert capfd.readouterr().err == f"{shown}a library prints this\n"
    found = dict(call_in_processes(Noisy(bad="no library"), [1], 1, print))
    assert found == {1: Died("with status 1")}
    err = capfd.readouterr().err
    assert err.startswith("a stray line\n")
    assert err.endswith("ImportError: no library\n")


def test_what_libraries_print_is_shown_where_an_import_fails(capfd, monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with starting_quietly():
        os.write(2, b"a stray line\n")
    assert capfd.readouterr().err == ""

    def fail():
        with starting_quietly():
            os.write(2, b"the reason\n")
            raise ImportError("no Keras")

    with pytest.raises(ImportError, match="no Keras"):
        fail()
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "the reason\nlater\n"
