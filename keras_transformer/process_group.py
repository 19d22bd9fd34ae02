"""Several processes that train one model on JAX: the first one writes, and tells the others."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import keras
import numpy as np

from keras_transformer import arguments

__all__ = ["join_processes", "own_process", "whole_copy"]

Result = TypeVar("Result")

SILENCE = 30  # seconds without a sign of life, after which a process counts as dead
PATIENCE = 7 * 24 * 3600  # seconds that the others wait at their end for the first, which tests


def join_processes(
    processes: int, process_id: int | None = None, coordinator: str | None = None
) -> None:
    """Makes this process one of several, whose devices then train one model. Waits for all.

    It does what `keras.distribution.initialize` does. In addition the processes notice within
    half a minute that another one has died, and SIGTERM ends a process. Call it before anything
    uses JAX, then give all processes one seed: `keras.utils.set_random_seed`.

    Args:
        processes: number of processes.
        process_id: which of them this one is, from 0 on. None where Slurm or Open MPI 4 starts
            them.
        coordinator: HOST:PORT of process 0, where that one listens. None as above.

    Under Slurm and Open MPI 4, process k of a machine has GPU k alone. A single Slurm process on
    each machine has all GPUs there. `JAX_LOCAL_DEVICE_IDS=0,1` in the environment gives others.

    Raises:
        ValueError: for a bad argument, or when neither an argument nor the environment says what
            is needed. When JAX cannot join the processes, or Keras does not run on JAX.

    Example:

    >>> join_processes(2, process_id=2, coordinator="localhost:9876")
    Traceback (most recent call last):
        ...
    ValueError: `process_id` must be below `processes`, 2. Received: process_id=2
    """
    processes = arguments.positive_integer("processes", processes)
    process_id = arguments.optional(arguments.non_negative_integer, "process_id", process_id)
    if process_id is not None and process_id >= processes:
        raise ValueError(
            f"`process_id` must be below `processes`, {processes}. "
            f"Received: process_id={process_id}"
        )
    host, _, port = (coordinator or "host:1").rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"`coordinator` must be HOST:PORT. Received: coordinator={coordinator!r}")
    if keras.backend.backend() != "jax":
        raise ValueError(
            "`processes` above 1 must run on JAX: set KERAS_BACKEND=jax. "
            f"Received: backend={keras.backend.backend()!r}"
        )
    import jax

    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process_id,
            local_device_ids=choose_devices(processes),
            heartbeat_timeout_seconds=SILENCE,
            shutdown_timeout_seconds=PATIENCE,
        )
    except ValueError as error:
        received = f"process_id={process_id}, coordinator={coordinator!r}"
        if str(error).endswith(" be defined."):  # by neither an argument nor the environment
            raise ValueError(
                "`process_id` and `coordinator` must be given where neither Slurm nor Open MPI 4 "
                f"starts the processes. Received: {received}"
            ) from None
        raise ValueError(
            "`processes` must be the number of processes that were started. JAX cannot join them: "
            f"{error} Received: processes={processes}, {received}"
        ) from error


def choose_devices(processes: int) -> list[int] | None:
    """Returns JAX's `local_device_ids`: [] for all of the machine, None for JAX's own choice.

    That is one GPU under Slurm, where JAX takes each task for one of several on its machine.
    """
    has_machine = os.environ.get("SLURM_STEP_NUM_NODES") == str(processes)
    return [] if has_machine and not os.environ.get("JAX_LOCAL_DEVICE_IDS") else None


def own_process() -> tuple[int, int]:
    """Returns (k, n) in process k of n; (0, 1) where one process trains alone.

    Example:

    >>> own_process()
    (0, 1)
    """
    if keras.backend.backend() != "jax":
        return 0, 1
    import jax

    # Asking for the number would start JAX, and `join_processes` must come before that.
    if not jax.distributed.is_initialized():
        return 0, 1
    return jax.process_index(), jax.process_count()


def is_first() -> bool:
    """Whether this process is the one that writes files."""
    return own_process()[0] == 0


def whole_copy(model: keras.Model, into: keras.Model | None = None) -> keras.Model:
    """Returns a copy of a model that this process has whole, for itself: it can translate and save.

    A model that several processes train computes only when all of them do. The copy has its
    weights of now, on the first device of this process, and neither optimizer nor loss. Where one
    process trains, it is the model itself.

    Args:
        model: the model.
        into: an earlier copy, which gets the weights and is returned.

    Example:

    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> whole_copy(model) is model
    True
    """
    if own_process()[1] == 1:
        return model
    with alone():
        if into is None:
            config = keras.saving.serialize_keras_object(model)
            into = keras.saving.deserialize_keras_object({**config, "compile_config": None})
        into.set_weights([whole_array(weight.value) for weight in model.weights])
    return into


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Within it one of several processes makes and runs models by itself."""
    distribution = keras.distribution.distribution()
    if own_process()[1] > 1:
        keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


def whole_array(value: Any) -> np.ndarray:
    """Returns the value of a variable whose parts are all on devices of this process.

    Raises:
        ValueError: when a part is on devices of other processes alone.
    """
    if own_process()[1] == 1 or value.is_fully_addressable or value.is_fully_replicated:
        return keras.ops.convert_to_numpy(value)
    whole = np.empty(value.shape, value.dtype)
    sizes = {}  # of the parts: they do not overlap, but may be on several devices
    for shard in value.addressable_shards:
        whole[shard.index] = shard.data
        sizes[tuple((part.start, part.stop) for part in shard.index)] = shard.data.size
    if (found := sum(sizes.values())) != whole.size:
        raise ValueError(
            "each process must hold all parts of a weight: make `data_parallel` a multiple of the "
            f"number of processes. Received: {found:,} of {whole.size:,} values of a weight of "
            f"shape {tuple(value.shape)}"
        )
    return whole


def tell_others(values: Any) -> np.ndarray:
    """Returns the array of the first process in every process: the others wait for it.

    Args:
        values: numbers, in all processes of one shape and dtype.
    """
    array = np.asarray(values)
    if own_process()[1] == 1:
        return array
    from jax.experimental import multihost_utils

    # Bytes: JAX has no float64.
    data = np.frombuffer(array.tobytes(), "uint8")
    told = np.asarray(multihost_utils.broadcast_one_to_all(data))
    return np.frombuffer(told.tobytes(), array.dtype).reshape(array.shape)


def first_alone(make: Callable[[], Result]) -> Result | None:
    """Returns what a function returns in the first process; the others wait, and get None."""
    tell_others(0)  # processors connect at the first exchange, where they wait half a minute alone
    made = make() if is_first() else None
    tell_others(0)
    return made


def check_equal(what: str, value: Any) -> None:
    """Raises `ValueError` in every process unless all have the same value.

    Args:
        what: a name for the value.
        value: anything whose `repr` tells it from others.
    """
    if own_process()[1] == 1:
        return
    from jax.experimental import multihost_utils

    digest = np.frombuffer(hashlib.sha256(repr(value).encode()).digest(), "uint8")
    digests = np.asarray(multihost_utils.process_allgather(digest))  # -> (process, byte)
    others = [number for number, row in enumerate(digests) if (row != digests[0]).any()]
    if others:
        raise ValueError(
            f"{what} must be the same in all processes: give all the same files and options, and "
            f"an --output that all see. Received: others in process {', '.join(map(str, others))}"
        )
