"""Calls a function with one item after the other in several processes; any of them may die.

The processes are new ones, which import what the function needs; a `__main__` is not imported.
"""

import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")

END = object()
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


class Died(NamedTuple):
    """Stands for the result of an item whose process died, and says how."""

    how: str


def call_in_processes(
    function: Callable[[Item, Callable[[Any], None]], Any],
    items: Iterable[Item],
    workers: int,
    tell: Callable[[Any], None],
    variables: Mapping[str, str] | None = None,
) -> Iterator[tuple[Item, Any]]:
    """Yields each item with `function(item, tell)`, in the order in which they are done.

    A process gets an item when it has answered the one before, so items may be made one by one.
    An item whose process dies has a `Died`; the other processes go on. Items that no process is
    left for have one too. Each process has its share of the processors, and ends when this one has
    ended, killed or not.

    Args:
        function: called in the processes; it and what it takes and returns can be pickled.
        items: read by threads of this process, one at a time.
        workers: how many processes.
        tell: called in this process with what `function` tells, by several threads.
        variables: of the environment, which the processes have other than this one.

    Raises:
        Exception: what `function` or the items raise. The processes are ended.
    """
    waiting, lock = iter(items), threading.Lock()
    answers: Any = queue.SimpleQueue()
    processes = [start(function, workers, variables or {}) for _ in range(workers)]

    def feed(process: Any) -> None:
        """Gives a process items as long as it lives."""
        try:
            while process.poll() is None:
                with lock:
                    item = next(waiting, END)
                if item is END:
                    break
                answers.put((item, ask(process, item, tell)))
        except BaseException as error:  # goes to the one who waits for answers
            answers.put(error)
        finally:
            answers.put(END)

    threads = [threading.Thread(target=feed, args=[process]) for process in processes]
    running = len(threads)
    try:
        for thread in threads:
            thread.start()
        while running:
            answer = answers.get()
            if answer is END:
                running -= 1
            elif isinstance(answer, BaseException):
                raise answer
            else:
                yield answer
        others = ", as all others" if workers > 1 else ""
        for item in waiting:  # all processes have died, at least one of them between two items
            yield item, Died(f"{tell_end(processes[-1])}{others}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for thread in threads:
            thread.join()
        for process in processes:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()


def start(function: Any, workers: int, variables: Mapping[str, str]) -> Any:
    """Starts a process that runs `answer_items`."""
    threads = str(max(1, count_processors() // workers))
    defaults = {**dict.fromkeys(THREADS, threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    defaults["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # they share a GPU
    path = os.pathsep.join(sys.path)
    environment = {**defaults, **os.environ, "PYTHONPATH": path, **variables}
    process = subprocess.Popen(
        [sys.executable, "-P", __file__],  # without Keras, unless the function needs it
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    with suppress(BrokenPipeError):  # it has died, as the first item will tell
        send(process.stdin, function)
    return process


def ask(process: Any, item: Any, tell: Callable[[Any], None]) -> Any:
    """Has a process call its function with an item; returns the result, or `Died`."""
    try:
        send(process.stdin, item)
        while True:
            kind, value = pickle.load(process.stdout)
            if kind == "raised":
                raise Raised(value)
            if kind == "done":
                return value
            tell(value)
    except Raised as raised:
        raise raised.args[0] from None
    except (BrokenPipeError, EOFError, pickle.UnpicklingError):
        return Died(tell_end(process))


def tell_end(process: Any) -> str:
    """Waits until a process has ended, and says how."""
    status = process.wait()
    return f"by signal {-status}" if status < 0 else f"with status {status}"


class Raised(Exception):
    """Holds what the function of a process has raised."""


def answer_items() -> None:
    """What a process does: reads a function and items, and answers each.

    It ends when there are no more, or at once when the one who started it has ended.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started it ends it
    threading.Thread(target=end_with_parent, args=[sys.stdin.fileno()], daemon=True).start()
    # What a library prints is not an answer.
    items, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(BrokenPipeError, EOFError):
        with starting_quietly():
            function = pickle.load(items)
        while True:
            item = pickle.load(items)
            try:
                answer = "done", function(item, lambda value: send(answers, ("told", value)))
            except BrokenPipeError:
                raise
            except Exception as error:
                answer = "raised", error
            send(answers, answer)


def end_with_parent(pipe: int) -> None:
    """Ends this process when nobody can write to the pipe any more, whatever it does then."""
    poll = select.poll()
    poll.register(pipe, 0)  # of no event but that end
    poll.poll()
    os._exit(1)


@contextmanager
def starting_quietly() -> Iterator[None]:
    """Shows what is written to the standard error, by libraries in C too, only on an exception.

    TensorFlow writes lines at its start that TF_CPP_MIN_LOG_LEVEL does not stop. With another
    value than 3, all is shown.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") != "3":
        yield
        return
    sys.stderr.flush()
    own = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            sys.stderr.flush()
            held.seek(0)
            os.write(own, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(own, 2)
            os.close(own)


def send(stream: Any, value: Any) -> None:
    """Writes an object at once."""
    pickle.dump(value, stream)
    stream.flush()


def count_processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


if __name__ == "__main__":
    answer_items()
