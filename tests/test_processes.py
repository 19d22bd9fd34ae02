"""Functions in other processes: results, what they tell and raise, and what dies."""

import os

import pytest

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
    found = dict(call_in_processes(Double(deadly=3), range(20), 2, lambda value: None))
    assert found.pop(3) == Died("by signal 9")
    assert found == {item: 2 * item for item in range(20) if item != 3}
    found = dict(call_in_processes(Double(deadly=0), range(20), 1, lambda value: None))
    assert found == {0: Died("by signal 9")}


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
