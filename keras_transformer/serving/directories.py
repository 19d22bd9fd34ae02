"""Directories that appear whole or not at all, and those that must hold a SavedModel."""

import contextlib
import os
import shutil
import tempfile

import tensorflow as tf


@contextlib.contextmanager
def new_directory(path):
    """Gives a scratch folder, which becomes `path` in one step when the block ends well.

    `ValueError` when something is there. The folder is beside `path`, in the same file system, so
    that the last step is one atomic rename; its name is no number, so no server takes it.
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


def saved_model_path(path):
    """`path` as a str, or `ValueError` when there is no SavedModel in it."""
    path = os.fspath(path)
    if not tf.saved_model.contains_saved_model(tensorflow_path(path)):
        raise ValueError(f"`path` must hold a SavedModel. Received: path={path!r}")
    return path


def tensorflow_path(path):
    """`path` as a str that TensorFlow, which writes names in UTF-8, gives the bytes of Python's."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")
