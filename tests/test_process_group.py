"""Several processes: what is refused, and what one process alone does; the rest trains for real.

The training runs are in tests/commands/test_train_processes.py.
"""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer import process_group
from tests.backends import on_jax


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(processes=0), "`processes` must be a positive integer"),
        (dict(processes=2, process_id=-1), "`process_id` must be an integer of at least 0"),
        (dict(processes=2, process_id=2), "must be below `processes`, 2. Received: process_id=2"),
        (dict(processes=2, coordinator="host"), "must be HOST:PORT. Received: coordinator='host'"),
        (dict(processes=2, coordinator=":1"), "must be HOST:PORT"),
        (dict(processes=2, coordinator="host:a"), "must be HOST:PORT"),
    ],
)
def test_a_bad_argument_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        process_group.join_processes(**given)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX joins processes")
def test_other_backends_than_jax_are_refused():
    with pytest.raises(ValueError, match="must run on JAX.* Received: backend="):
        process_group.join_processes(2, 0, "localhost:9876")


@on_jax
def test_numbers_of_numpy_are_taken(monkeypatch):
    given = []
    monkeypatch.setattr("jax.distributed.initialize", lambda *args, **_: given.extend(args))
    process_group.join_processes(np.int64(3), np.int32(2), "localhost:9876")
    assert given == ["localhost:9876", 3, 2]
    assert [type(value) for value in given] == [str, int, int]


# What JAX says, and what a user reads.
SAID_BY_JAX = [
    (
        "The process id of the current process must be defined.",
        "`process_id` and `coordinator` must be given where",
    ),
    ("coordinator_address should be defined.", "`process_id` and `coordinator` must be given"),
    (
        "process_id < num_processes. Got 20 and 16.",
        "JAX cannot join them: .* Got 20 and 16. Received: processes=16, process_id=None, coord",
    ),
]


@on_jax
@pytest.mark.parametrize(("said", "told"), SAID_BY_JAX)
def test_what_jax_refuses_is_told_with_its_reason(monkeypatch, said, told):
    def refuse(*given, **options):
        raise ValueError(said)

    monkeypatch.setattr("jax.distributed.initialize", refuse)
    with pytest.raises(ValueError, match=told):
        process_group.join_processes(16)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"SLURM_STEP_NUM_NODES": "4"}, []),  # a task on each of four machines: all GPUs there
        ({"SLURM_STEP_NUM_NODES": "1"}, None),  # four tasks on a machine: JAX gives each its own
        ({"SLURM_STEP_NUM_NODES": "4", "JAX_LOCAL_DEVICE_IDS": "0,1"}, None),
    ],
)
def test_a_task_alone_on_its_machine_has_all_devices(monkeypatch, environment, expected):
    for name in ("SLURM_STEP_NUM_NODES", "JAX_LOCAL_DEVICE_IDS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert process_group.choose_devices(4) == expected


@on_jax
def test_jax_takes_no_devices_named_for_all(monkeypatch):
    """Under Slurm JAX would else choose the device of the number that the task has."""
    from jax._src.clusters import ClusterEnv

    slurm = dict(JOB_ID=1, STEP_NODELIST="a", NTASKS=2, PROCID=0, LOCALID=0)
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    for given, chosen in ((None, [0]), ([], [])):
        found = ClusterEnv.auto_detect_unset_distributed_params(None, 2, None, given, None, None)
        assert found[1:] == (2, 0, chosen)


def test_a_process_alone_is_the_first_and_hears_itself():
    assert process_group.own_process() == (0, 1)
    assert process_group.is_first()
    told = process_group.tell_others([1.5, 2.0**-40])
    assert told.tolist() == [1.5, 2.0**-40]
    assert process_group.first_alone(lambda: "made") == "made"
    process_group.check_equal("all", object())
    with process_group.alone():
        assert keras.distribution.distribution() is None


def on_two_devices(*places):
    """A value (4, 3) of two processes, with some rows on devices of this one."""
    whole = np.arange(12.0).reshape(4, 3)
    indices = [(slice(start, stop), slice(None)) for start, stop in places]
    shards = [SimpleNamespace(index=index, data=whole[index]) for index in indices]
    apart = dict(is_fully_addressable=False, is_fully_replicated=False)
    return SimpleNamespace(shape=(4, 3), dtype="float32", addressable_shards=shards, **apart)


def test_an_array_is_assembled_of_its_parts_when_all_are_here(monkeypatch):
    monkeypatch.setattr(process_group, "own_process", lambda: (0, 2))
    for places in ([(0, 2), (2, 4)], [(2, 4), (0, 2), (2, 4), (0, 2)]):
        whole = process_group.whole_array(on_two_devices(*places))
        assert whole.tolist() == np.arange(12.0).reshape(4, 3).tolist()
    # As many values as there are, and fewer; rows 2 and 3 are in the other process.
    for places in ([(0, 2), (0, 2)], [(0, 2)]):
        with pytest.raises(ValueError, match=r"6 of 12 values of a weight of shape \(4, 3\)"):
            process_group.whole_array(on_two_devices(*places))
