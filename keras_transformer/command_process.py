"""Tells whether this process is the command line, which answers before Keras is imported."""

import os
import re
import sys


def is_command() -> bool:
    """Whether this process is `keras-transformer` or `python -m keras_transformer`.

    Then the package imports nothing by itself: `--help` and a wrong option are answered at once.
    """
    path = [*getattr(sys, "argv", []), ""][0]
    folder, program = os.path.split(path)
    if program == "-m":  # so Python calls a program while it looks for the module to run
        module = re.search(r" -[a-zA-Z]*m ?(\S+)", " ".join(sys.orig_argv))
        return module is not None and module[1] == "keras_transformer"
    if program == "__main__.py":
        return os.path.basename(folder) == "keras_transformer"
    return program in ("keras-transformer", "keras-transformer.exe")
