"""Calls a function with one item after the other in several processes; any of them may die.

The processes are new ones, which import what the function needs; a `__main__` is not imported. A
new one takes the place of one that has died.
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
MOST_DEATHS = 10  # in a row, after which no process is started any more
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
    An item whose process dies has a `Died`, and a new process goes on with the next. When
    `MOST_DEATHS` processes in a row have died, no item is likely to be at fault: those that are
    left have a `Died` too. Each process has its share of the processors, and ends when this one
    has ended, killed or not.

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
    crew = Crew(function, workers, variables or {})

    def feed() -> None:
        """Gives items to a process, or to those that take its place, as long as there are some."""
        process: Any = None
        try:
            while True:
                with lock:
                    item = next(waiting, END)
                if item is END:
                    break
                process = crew.replace(process)
                if process is None:
                    answers.put((item, crew.tell_deaths()))
                    break
                answers.put((item, crew.ask(process, item, tell)))
        except BaseException as error:  # goes to the one who waits for answers
            answers.put(error)
        finally:
            answers.put(END)

    threads = [threading.Thread(target=feed) for _ in range(workers)]
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
        for item in waiting:
            yield item, crew.tell_deaths()
    finally:
        crew.kill()
        for thread in threads:
            thread.join()
        crew.close()


class Crew:
    """The processes of a call: a thread asks each of them, and has another one when it dies.

    Args:
        function: what they call.
        workers: how many there are at a time.
        variables: of their environment.
    """

    def __init__(self, function: Any, workers: int, variables: Mapping[str, str]) -> None:
        self.function, self.workers, self.variables = function, workers, variables
        self.lock = threading.Lock()
        self.processes: list[Any] = []
        self.is_ended = False
        self.deaths, self.last = 0, ""  # in a row, and how the last one ended

    def replace(self, process: Any) -> Any:
        """Returns a process that lives, a new one where there is none; None after many deaths."""
        if process is not None and process.poll() is None:
            return process
        if process is not None and process in self.processes:
            self.bury(process)  # it has died between two items
        with self.lock:
            if self.is_ended or self.deaths >= MOST_DEATHS:
                return None
            process = start(self.workers, self.variables)
            self.processes.append(process)
        with suppress(BrokenPipeError):  # it has died, as the first item will tell
            send(process.stdin, self.function)
        return process

    def ask(self, process: Any, item: Any, tell: Callable[[Any], None]) -> Any:
        """Returns the result of an item, or `Died`."""
        result = ask(process, item, tell)
        if isinstance(result, Died):
            self.bury(process)
        else:
            self.deaths = 0
        return result

    def bury(self, process: Any) -> None:
        """Counts a process that has died."""
        how = tell_end(process)
        with self.lock:
            self.deaths, self.last = self.deaths + 1, how
            self.processes.remove(process)
        close_pipes(process)

    def tell_deaths(self) -> Died:
        """Says why an item has no process."""
        return Died(f"{self.last}, as {self.deaths} in a row did")

    def kill(self) -> None:
        """Ends all processes, and starts none any more."""
        with self.lock:
            self.is_ended = True
            processes = list(self.processes)
        for process in processes:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Closes what led to the processes, when no thread asks them any more."""
        for process in self.processes:
            close_pipes(process)


def start(workers: int, variables: Mapping[str, str]) -> Any:
    """Starts a process that runs `answer_items`."""
    threads = str(max(1, count_processors() // workers))
    defaults = {**dict.fromkeys(THREADS, threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    defaults["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # they share a GPU
    path = os.pathsep.join(sys.path)
    environment = {**defaults, **os.environ, "PYTHONPATH": path, **variables}
    return subprocess.Popen(
        [sys.executable, "-P", __file__],  # without Keras, unless the function needs it
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )


def close_pipes(process: Any) -> None:
    """Closes what leads to a process that has ended."""
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()


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
