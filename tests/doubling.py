"""What tests call in other processes; it imports nothing that takes long."""

import os
import signal
import time


class Double:
    """Doubles an item, tells its process, dies for some items and raises an error for one."""

    def __init__(self, deadly=(), bad=None):
        self.deadly, self.bad = deadly, bad

    def __call__(self, item, tell):
        print("a library prints this")
        tell(os.getpid())
        if item in self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if item == self.bad:
            raise EOFError(f"item {item} is bad")
        return 2 * item


class Noisy(Double):
    """Writes a line past Python when it is read in a process, where it may then fail."""

    def __setstate__(self, state):
        self.__dict__ = state
        os.write(2, b"a stray line\n")
        if self.bad:
            raise ImportError(self.bad)


def sleep_long(item, tell):
    """Tells its process and does nothing for a minute, as long as it lives."""
    tell(os.getpid())
    time.sleep(60)


def start_more(item, tell):
    """Sleeps in as many processes of its own."""
    from processes import call_in_processes  # by its own name: the package would import Keras

    tell(os.getpid())
    list(call_in_processes(sleep_long, range(item), item, tell))


def read_variable(item, tell):
    """Returns a variable of the environment."""
    return os.environ.get(item)
