"""`train` in several processes: one run, the figures of one process, and what a fault does."""

import csv
import importlib.util
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tests.backends import quick_compilation
from tests.commands.train_processes import COMMAND, REPOSITORY, SMALL, start, weights, write_words

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed"),
]
DEVICES = "--xla_force_host_platform_device_count"
MINUTE = 60  # in which the other processes end


@pytest.fixture
def environment(tmp_path):
    """Of a process on JAX with a number of devices."""

    folder = tmp_path / "modules"
    folder.mkdir()
    for name in ("tensorflow", "tensorflow_text"):  # it would print
        (folder / f"{name}.py").write_text("raise ImportError('not here')", encoding="utf-8")

    def make(devices, has_tensorflow=False):
        quick = quick_compilation(tmp_path / "compiled")
        flags = f"{quick.pop('XLA_FLAGS')} {DEVICES}={devices}"
        paths = os.pathsep.join([str(folder)] * (not has_tensorflow) + [str(REPOSITORY)])
        return dict(quick, KERAS_BACKEND="jax", XLA_FLAGS=flags, PYTHONPATH=paths)

    return make


def free_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def start_both(environment):
    """Starts two processes of two devices; ends those that a failed test leaves."""
    started = []

    def both(*job, **options):
        own = ("--processes", 2, "--coordinator", free_address())
        given = environment(2, **options)
        ours = [start(*job, *own, "--process-id", k, **given) for k in range(2)]
        started.extend(ours)
        return ours

    yield both
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def printed_by(processes, seconds=300):
    """What each process has printed when all have ended, and their statuses."""
    printed = [process.communicate(timeout=seconds)[0] for process in processes]
    return printed, [process.returncode for process in processes]


def history(output, name):
    with open(output / "history.csv", newline="", encoding="utf-8") as file:
        return [float(row[name]) for row in csv.DictReader(file)]


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


LONG = pytest.mark.long


@pytest.mark.parametrize("parts", [pytest.param((4, 1), marks=LONG), (2, 2)])
def test_two_processes_train_the_run_of_one(tmp_path, environment, start_both, parts):
    """With dropout, accumulated gradients, averaged epochs, and translations measured."""
    job = [*write_words(tmp_path, 240), *SMALL, "--dropout", 0.1, "--accumulate", 2, "--epochs", 3]
    job += ["--average", 2, "--data-parallel", parts[0], "--model-parallel", parts[1]]
    (one,), statuses = printed_by([start(*job, "--output", tmp_path / "one", **environment(4))])
    assert statuses == [0], one
    (first, second), statuses = printed_by(start_both(*job, "--output", tmp_path / "two"))
    assert statuses == [0, 0], first + second
    assert second == ""
    assert first.splitlines()[-1] == one.splitlines()[-1]
    for name in ("loss", "val_loss", "tokens"):
        ours, theirs = history(tmp_path / "two", name), history(tmp_path / "one", name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, err_msg=name)
    assert len(ours) == 3
    for name, values in weights(tmp_path / "one").items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(weights(tmp_path / "two")[name], values, atol=1e-3)
    assert names(tmp_path / "two") == names(tmp_path / "one")
    if parts == (2, 2):  # each run goes on in one process
        losses = []
        for name in ("one", "two"):
            more = ["--output", tmp_path / name, "--epochs", 4]
            (printed,), statuses = printed_by([start(*job, *more, **environment(4))])
            assert statuses == [0], printed
            assert "Going on from epoch 3" in printed
            losses.append(history(tmp_path / name, "val_loss"))
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
        assert len(losses[0]) == 4
    texts = ["a b c", "d a"]
    (tmp_path / "texts").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    done = subprocess.run(
        [*COMMAND, "translate", tmp_path / "two", tmp_path / "texts"],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_files_on_disk_train_the_run_of_lists(tmp_path, environment, start_both):
    """The first process filters and tokenizes for both, with TensorFlow in processes of its own."""
    pytest.importorskip("tensorflow_text")
    draws = np.random.default_rng(0)
    for name, count in (("train", 300), ("valid", 30)):
        rows = [draws.choice(list("abcdefgh"), draws.integers(1, 7)) for _ in range(count)]
        for side, turn in (("a", 1), ("b", -1)):
            lines = [" ".join(row[::turn]) + "\n" for row in rows]
            (tmp_path / f"{name}.{side}").write_text("".join(lines), encoding="utf-8")
    job = [*SMALL, "--vocab-size", 30, "--epochs", 2, "--dropout", 0.1, "--data-parallel", 4]
    for option, name in (("train", "train"), ("validation", "valid"), ("test", "valid")):
        job += [f"--{option}", tmp_path / f"{name}.a", tmp_path / f"{name}.b"]
    lists = start(*job, "--output", tmp_path / "lists", **environment(4))
    (printed,), statuses = printed_by([lists])
    assert statuses == [0], printed
    for side in "ab":
        with open(tmp_path / f"train.{side}", "a", encoding="utf-8") as file:
            file.write("\u03b1 \u03b2\n" * 2)
    job += ["--source-scripts", "Latin"]
    one = start(*job, "--output", tmp_path / "one", **environment(4, has_tensorflow=True))
    (printed,), statuses = printed_by([one])
    assert statuses == [0], printed
    ours, theirs = weights(tmp_path / "one"), weights(tmp_path / "lists")
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    both = start_both(*job, "--output", tmp_path / "two", has_tensorflow=True)
    (first, second), statuses = printed_by(both)
    assert statuses == [0, 0], first + second
    assert "corpus: 300 of 302 pairs; left out 2 of another script" in first
    assert "corpus: " not in second
    for name in ("loss", "val_loss"):
        ours, theirs = history(tmp_path / "two", name), history(tmp_path / "lists", name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, err_msg=name)
    for output in ("one", "two"):
        assert len(list((tmp_path / output / "corpora").glob("*/corpus.json"))) == 1


SLURM = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
OPEN_MPI = {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:1", "OMPI_COMM_WORLD_SIZE": "2"}
LAUNCHERS = {  # what all processes are told, and the names of what each is told of itself
    "a GPU for each task of Slurm": (SLURM, "SLURM_PROCID", "SLURM_LOCALID"),
    "a machine for each": ({**SLURM, "SLURM_STEP_NUM_NODES": "2"}, "SLURM_PROCID", "SLURM_LOCALID"),
    "Open MPI 4": (OPEN_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
}


@pytest.mark.parametrize(
    "launcher",
    [next(iter(LAUNCHERS)), *(pytest.param(name, marks=LONG) for name in list(LAUNCHERS)[1:])],
)
def test_a_launcher_says_which_process_it_is(tmp_path, environment, launcher):
    told, *numbers = LAUNCHERS[launcher]
    port = free_address().rpartition(":")[2]
    job = [*write_words(tmp_path, 120), *SMALL, "--epochs", 1, "--data-parallel", 4]
    job += ["--output", tmp_path / "run", "--processes", 2]
    processes = [
        start(
            *job,
            **{**environment(2), **told, "JAX_COORDINATOR_PORT": port},
            **dict.fromkeys(numbers, str(k)),
        )
        for k in range(2)
    ]
    printed, statuses = printed_by(processes)
    assert statuses == [0, 0], printed
    assert printed[0].splitlines()[-1].startswith("Exact match: ")
    assert printed[1] == ""


def wait_for_epoch(output, processes):
    """Waits until another epoch is saved."""
    state = output / "state.npz"
    before = state.stat().st_mtime_ns if state.exists() else None
    deadline = time.monotonic() + 200
    while not state.exists() or state.stat().st_mtime_ns == before:
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes), printed_by(processes)
        time.sleep(0.02)


# Epochs of three batches end within a pass, which has eight.
@pytest.mark.parametrize(
    ("parts", "victims", "options"),
    [
        ((4, 1), (1, 0), ["--batches-per-epoch", 3]),
        pytest.param((2, 2), (0,), [], marks=LONG),
    ],
)
def test_one_is_killed_the_others_say_so_and_all_go_on_to_the_same_bits(
    tmp_path, start_both, parts, victims, options
):
    job = [*write_words(tmp_path, 300), *SMALL, "--measure-every", 3, "--epochs", 9, *options]
    job += ["--dropout", 0.1, "--data-parallel", parts[0], "--model-parallel", parts[1]]
    printed, statuses = printed_by(start_both(*job, "--output", tmp_path / "whole"))
    assert statuses == [0, 0], printed
    for victim in victims:
        processes = start_both(*job, "--output", tmp_path / "run")
        wait_for_epoch(tmp_path / "run", processes)
        killed = time.monotonic()
        processes[victim].send_signal(signal.SIGKILL)
        printed, statuses = printed_by(processes)
        assert time.monotonic() - killed < MINUTE, printed
        assert statuses[victim] == -signal.SIGKILL
        said = printed[1 - victim]
        assert statuses[1 - victim] == 1, said
        assert re.search("error: the processes cannot go on together: .* Start all of them", said)
        assert "Traceback" not in said
    printed, statuses = printed_by(start_both(*job, "--output", tmp_path / "run"))
    assert statuses == [0, 0], printed
    assert re.search(f"Going on from epoch [{len(victims)}-9]", printed[0])
    ours, theirs = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_signal_ends_both_and_a_process_that_is_silent_too(tmp_path, start_both):
    job = [*write_words(tmp_path, 300), *SMALL, "--epochs", 900, "--data-parallel", 4]
    job += ["--output", tmp_path / "run"]
    processes = start_both(*job)
    wait_for_epoch(tmp_path / "run", processes)
    for process in processes:
        process.send_signal(signal.SIGTERM)
    printed, statuses = printed_by(processes)
    assert set(statuses) <= {130, 1}, printed
    assert "Interrupted." in printed[0] + printed[1]
    assert "Traceback" not in printed[0] + printed[1]
    processes = start_both(*job)
    wait_for_epoch(tmp_path / "run", processes)
    pid = processes[1].pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    stopped = time.monotonic()
    os.kill(int(child), signal.SIGSTOP)  # as a machine that is gone: no connection is closed
    said = processes[0].communicate(timeout=300)[0]
    assert time.monotonic() - stopped < MINUTE, said
    assert processes[0].returncode == 1, said
    assert "error: the processes cannot go on together: another one has ended, or " in said
    os.kill(int(child), signal.SIGKILL)
    processes[1].communicate()
    assert processes[1].returncode == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--processes", 2], "--process-id and --coordinator must be given where neither Slurm"),
        (
            ["--processes", 2, "--process-id", 2, "--coordinator", "localhost:1"],
            "--process-id must be below --processes, 2. Received: process_id=2",
        ),
        (["--process-id", 0], "--process-id and --coordinator need --processes above 1"),
        (  # in the third task of Slurm
            ["--processes", 2, "--coordinator", "localhost:1"],
            "--processes must be the number of processes that were started. JAX cannot join them:",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_line(tmp_path, environment, given, said):
    job = [*write_words(tmp_path, 60), *SMALL, "--output", tmp_path / "run", *given]
    third = dict(SLURM, SLURM_PROCID="2", SLURM_LOCALID="2") if "JAX" in said else {}
    (printed,), statuses = printed_by([start(*job, **environment(1), **third)])
    assert statuses == [1]
    assert printed.startswith(f"error: {said}")
    assert printed.count("\n") == 1


def test_devices_without_work_are_refused(tmp_path, start_both):
    """In a line of each process, unless one comes so late that JAX has ended it."""
    job = [*write_words(tmp_path, 60), *SMALL, "--output", tmp_path / "run"]
    printed, statuses = printed_by(start_both(*job, "--data-parallel", 2))
    assert statuses == [1, 1]
    refusal = "--data-parallel * --model-parallel the number of all devices, 4"
    assert any(line.startswith("error: ") and line.count("\n") == 1 for line in printed)
    assert any(refusal in line for line in printed)
    for line in printed:
        assert "Traceback" not in line
        assert refusal in line or "error: the processes cannot go on together: " in line
