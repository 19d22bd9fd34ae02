"""A command that runs as one of several processes: what it prints, and how it ends with them."""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn

from keras_transformer.commands.program import INTERRUPTED, REFUSALS, Program
from keras_transformer.processes import end_with_parent

LOST = "the processes cannot go on together"
MOMENT = 2  # seconds in which the others say the same refusal: JAX ends them when one has left


def go_on_in_child(advice: str) -> None:
    """Returns in a new process, whose end this one waits for and tells.

    JAX ends a process at once when another one is dead, and nothing in it can say so in a line.

    Args:
        advice: what to do then.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(reader)
        raise SystemExit(wait_for(child, advice))
    os.close(writer)
    threading.Thread(target=end_with_parent, args=(reader,), daemon=True).start()


def wait_for(child: int, advice: str) -> int:
    """Waits for a process, to which signals are passed on; returns its exit status."""
    while True:
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            break
        except KeyboardInterrupt:
            os.kill(child, signal.SIGTERM)
    if status >= 0:
        return status
    how = f"this one ended by {signal.Signals(-status).name}"
    if status == -signal.SIGABRT:
        how = "another one has ended, or gives no sign of life"
    print(f"error: {LOST}: {how}. {advice}", file=sys.stderr, flush=True)
    return 1


def print_own_lines(program: Program, prints: bool) -> None:
    """Lets a process print its own lines alone, or nothing but errors.

    What libraries print, past `sys.stdout`, would stand between the lines of JSON.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    own = os.dup(sys.stdout.fileno() if prints else nowhere)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    encoding = sys.stdout.encoding
    sys.stdout = open(own, "w", 1, encoding, "replace")  # noqa: SIM115  (until the end)
    program.notes = sys.stderr if prints and program.as_json else sys.stdout


@contextlib.contextmanager
def ending_at_once(advice: str, say: Callable[[str], str]) -> Iterator[None]:
    """Ends a process that fails now: an exit as usual would wait for the others, which wait for it.

    Args:
        advice: what to do when another process has ended.
        say: turns a refusal into what is printed.
    """
    try:
        yield
    except KeyboardInterrupt:
        leave("Interrupted.", INTERRUPTED)
    except REFUSALS as error:
        leave(f"error: {say(str(error))}", 1, MOMENT)
    except RuntimeError as error:  # of JAX, when a connection is closed
        leave(f"error: {LOST}: {str(error) or type(error).__name__}. {advice}", 1)
    except BaseException:
        traceback.print_exc()
        leave("error: this process has failed", 1)


def leave(line: str, status: int, seconds: float = 0) -> NoReturn:
    """Prints a line, the last one, and ends the process, now or so many seconds later.

    Threads of JAX may still write what the end of another process means to them. Their standard
    error leads nowhere before the line is written.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stderr.flush()
    own, nowhere = os.dup(sys.stderr.fileno()), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.write(own, f"{' '.join(line.split())}\n".encode(errors="replace"))
    time.sleep(seconds)
    os._exit(status)
