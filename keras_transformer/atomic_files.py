"""Files and directories that appear whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from os import PathLike


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Writes `data` to `path` so that a reader finds the old file or the whole new one."""
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
def new_directory(path: str | PathLike[str]) -> Iterator[str]:
    """Gives a scratch folder, which becomes `path` in one step when the block ends well.

    The folder is beside `path`, in the same file system, so the last step is one atomic rename.
    Its name is not a number, so no server loads it.

    Raises:
        ValueError: when something is at `path`.
    """
    path = os.path.abspath(os.fspath(path))
    if os.path.exists(path):
        raise ValueError(f"`path` must not exist yet. Received: path={path!r}")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=".export-", dir=os.path.dirname(path))
    try:
        written = os.path.join(scratch, "new")
        os.mkdir(written)
        yield written
        os.replace(written, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _ordinary_mode() -> int:
    # mkstemp makes a private file; a saved one gets the permissions `open` would have given.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
