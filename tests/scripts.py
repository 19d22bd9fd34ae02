"""Loads Python files of no package: the scripts and hooks of docs/."""

import importlib.util
import sys


def load_script(path):
    """Runs a file as a module of its own, with the files beside it for imports; returns it."""
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
        for file in path.parent.glob("*.py"):  # another folder may have files of the same names
            if file.stem not in before:
                sys.modules.pop(file.stem, None)
    return module
