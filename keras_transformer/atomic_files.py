"""Files and directories that appear whole or not at all, and files that one process has."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import IO, BinaryIO


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Writes `data` to `path` so that a reader finds the old file or the whole new one.

    Several processes may write the same file: the last one has its data there.
    """
    path = os.fspath(path)
    handle, temporary = tempfile.mkstemp(
        dir=os.path.dirname(path) or ".", prefix=f".{os.path.basename(path)}."
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _ordinary_mode())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextlib.contextmanager
def new_file(path: str | PathLike[str], anywhere: bool = False) -> Iterator[Path]:
    """Gives the path of a scratch file, which takes the place of `path` when the block ends well.

    A reader finds the old file or the whole new one, which is on disk by then. After an error the
    old one stays. The scratch file is `path` with a dot before its name. So the last step is one
    atomic rename, and the next writer replaces what a killed one has left. One process at a time
    may write the file.

    With `anywhere` the path may be any that a person chose. A link stays, and its target is
    written. The scratch file has a new name, which is none of that person's files.
    """
    path = Path(os.path.realpath(path) if anywhere else path)
    scratch = path.with_name(f".{path.name}")
    if anywhere:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        os.chmod(temporary, _ordinary_mode())
        scratch = Path(temporary)
    try:
        yield scratch
        with open(scratch, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_directory(path: str | PathLike[str]) -> Iterator[str]:
    """Gives a scratch folder, which becomes `path` in one step when the block ends well.

    The folder is beside `path`, in the same file system, so the last step is one atomic rename.
    Its name is that of `path` between a dot and a hyphen, and no number: so no server loads it.

    Raises:
        ValueError: when something is at `path`.
    """
    path = os.path.abspath(os.fspath(path))
    if os.path.exists(path):
        raise ValueError(f"`path` must not exist yet. Received: path={path!r}")
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=f".{name.lstrip('.')}-", dir=parent)
    try:
        written = os.path.join(scratch, "new")
        os.mkdir(written)
        yield written
        os.replace(written, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def lock(file: IO[bytes], wait: bool = False) -> bool:
    """Locks an open file until it is closed or its process dies; False where another has it.

    Args:
        file: the file. Processes that share it lock the same file.
        wait: whether to wait until no other process has it.

    Raises:
        OSError: when the file system has no locks.
    """
    import fcntl  # not on every system

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def claimed(path: str | PathLike[str]) -> Iterator[BinaryIO | None]:
    """Gives an empty file that no other process has; None where one has it.

    The system frees the file of a process that dies. What was not renamed is removed.
    """

    def without_emptying(name: str, flags: int) -> int:
        return os.open(name, os.O_RDWR | os.O_CREAT, 0o666)

    with open(path, "wb", opener=without_emptying) as stream:
        if not lock(stream):
            yield None
            return
        own = os.fstat(stream.fileno())
        try:  # the one who had it may have renamed it in between
            is_own = os.path.samestat(own, os.stat(path))
        except FileNotFoundError:
            is_own = False
        if not is_own:
            yield None
            return
        try:
            stream.truncate()
            os.utime(path)  # says when the file was begun
            yield stream
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _ordinary_mode() -> int:
    # mkstemp makes a private file; a saved one gets the permissions `open` would have given.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
