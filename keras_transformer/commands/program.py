"""What all commands share: how they are parsed, what they print, and what they ask for."""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from keras_transformer.processes import starting_quietly

if TYPE_CHECKING:
    from keras_transformer.decoding import Search

Item = TypeVar("Item")
INTERRUPTED = 130
REFUSALS = (ImportError, OSError, ValueError)  # and the errors of TensorFlow
BACKENDS = ("tensorflow", "jax", "torch")  # Keras's, the first that is installed


class Parser(argparse.ArgumentParser):
    """Shows descriptions as they are written, and refuses in one line with the status 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, "allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Says what is wrong, and ends."""
        self.exit(1, f"error: {message}. `{self.prog} --help` shows the options.\n")


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps line ends, and leaves room for the names of options."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)


class Program:
    """What a command prints: answers on the standard output, and what it does beside them.

    Args:
        as_json: whether the answer is JSON. All else then goes to the standard error.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.notes = sys.stderr if as_json else sys.stdout

    def say(self, line: str) -> None:
        """Prints a line of what the command does, at once."""
        print(line, file=self.notes, flush=True)

    def tell_figures(self, figures: dict[str, Any] | None) -> None:
        """Prints the figures of a command as JSON, where that is asked for."""
        if self.as_json and figures is not None:
            print(json.dumps(finite(figures), ensure_ascii=False, indent=2, allow_nan=False))

    def progress(self, items: Iterable[Item], total: int | None, what: str) -> Iterator[Item]:
        """Yields the items, with a bar on the standard error where that is a terminal."""
        if not sys.stderr.isatty():
            yield from items
            return
        from rich.console import Console
        from rich.progress import track

        yield from track(items, what, total, console=Console(stderr=True), transient=True)

    def give_up_output(self) -> None:
        """Sends what is still to be printed nowhere: Python would complain at its end."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def finite(figures: Any) -> Any:
    """The figures as JSON can have them: None for what is not a finite number."""
    if isinstance(figures, dict):
        return {name: finite(value) for name, value in figures.items()}
    if isinstance(figures, (list, tuple)):
        return [finite(value) for value in figures]
    return None if isinstance(figures, float) and not math.isfinite(figures) else figures


def need(extra: str, *modules: str) -> None:
    """Raises `ImportError` unless the modules of an extra are installed."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"{name} is not installed. Install it with "
                f'`pip install "keras-transformer-components[{extra}]"`'
            )


def use_tensorflow() -> None:
    """Imports Keras on TensorFlow, for a command that needs texts in the graph."""
    need("tensorflow", "tensorflow", "tensorflow_text")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import_keras()


def use_a_backend() -> None:
    """Imports Keras on a backend that is installed, for a command that any one can run."""
    installed = [name for name in BACKENDS if importlib.util.find_spec(name)]
    if installed:
        os.environ["KERAS_BACKEND"] = installed[0]
        import_keras()


def import_keras() -> None:
    """Imports Keras and its backend without the lines that TensorFlow writes then.

    On every backend Keras imports TensorFlow when it sets a seed, where that is installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with starting_quietly():
        importlib.import_module("keras")
        with contextlib.suppress(ImportError):
            importlib.import_module("tensorflow")


def check_files(*paths: str | None) -> None:
    """Raises `ValueError` unless the files that are given exist, before anything is imported."""
    for path in paths:
        if path is not None and os.path.isdir(path):
            raise ValueError(f"{path}: is a directory. Give a file")
        if path is not None and "://" in path:
            raise ValueError(f"{path}: is an address. Download it, and give the file")
        if path is not None and not os.path.exists(path):
            raise ValueError(f"{path}: there is no such file. Check the path")


def check_output(path: str | None) -> None:
    """Raises `ValueError` unless a file can be made there, before anything is imported."""
    if path is None:
        return
    if os.path.isdir(path):
        raise ValueError(f"--output must be a file. Received: {path}, a directory")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise ValueError(f"--output must be in a directory that exists. Make it: mkdir -p {folder}")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise ValueError(f"--output must be a file that you may write. Received: {path}")


def check_new_directory(path: str | os.PathLike[str]) -> None:
    """Raises `ValueError` unless a directory can be made there, before anything is imported."""
    output = Path(path)
    if output.exists():
        raise ValueError(f"{output} exists. Give another --output")
    if not next(folder for folder in output.absolute().parents if folder.exists()).is_dir():
        raise ValueError(f"--output must be in a directory. Received: {output}, below a file")


def in_words(search: "Search") -> str:
    """A search in a few words."""
    if search.length_penalty is None:
        return type(search).__name__
    return f"beam {search.rows_per_sentence}, length penalty {search.length_penalty:g}"


def positive_integer(text: str) -> int:
    """A whole number of at least 1 of the command line."""
    return _number(text, int, lambda number: number >= 1, "a whole number of at least 1")


def non_negative_integer(text: str) -> int:
    """A whole number of at least 0 of the command line."""
    return _number(text, int, lambda number: number >= 0, "a whole number of at least 0")


def positive_number(text: str) -> float:
    """A number above 0 of the command line."""
    return _number(text, float, lambda number: 0 < number < math.inf, "a number above 0")


def non_negative_number(text: str) -> float:
    """A number of at least 0 of the command line."""
    return _number(text, float, lambda number: 0 <= number < math.inf, "a number of at least 0")


def whole_number(text: str) -> int:
    """A whole number of the command line."""
    return _number(text, int, lambda number: True, "a whole number")


def any_number(text: str) -> float:
    """A number of the command line."""
    return _number(text, float, lambda number: True, "a number")


def length_penalty(text: str) -> float:
    """A length penalty of the command line."""
    return _number(text, float, lambda number: 0 <= number <= 10, "a number from 0 to 10")


def _number(text: str, kind: Any, is_right: Any, rule: str) -> Any:
    try:
        number = kind(text)
    except ValueError:
        number = None
    if number is None or not is_right(number):
        raise argparse.ArgumentTypeError(f"must be {rule}. Received: {text}")
    return number


def examples(*lines: str) -> str:
    """The end of a command's help: lines that a user may copy."""
    return "\n".join(["examples:", *(f"  keras-transformer {line}" for line in lines)])


def add_model(parser: argparse.ArgumentParser, **options: Any) -> None:
    """Adds what a command takes the model from."""
    what = "a run, the --output of train; or an export, or a directory of exports"
    parser.add_argument("model", metavar="MODEL", help=what, **options)


def add_search(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the search."""
    group = parser.add_argument_group(
        "search", "What is not given is as in the settings of the run. An export keeps its own."
    )
    group.add_argument(
        "--beam-size", type=positive_integer, metavar="N", help="hypotheses; 1 is greedy search"
    )
    group.add_argument(
        "--length-penalty",
        type=length_penalty,
        metavar="NUMBER",
        help="from 0 to 10; the larger, the longer the translations",
    )


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns as wide as their widest entries."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)) for row in rows]
    return [line.rstrip() for line in lines]
