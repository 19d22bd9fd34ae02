"""Reads the command line and runs one command."""

import importlib
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from keras_transformer.commands.program import INTERRUPTED, REFUSALS, Parser, Program

# Each is a module of this folder, which imports Keras only when it runs.
COMMANDS = (
    *("train", "distill", "import", "translate", "evaluate", "score", "export", "serve"),
    *("explore", "info"),
)
MODULES = {"import": "import_model"}  # where Python reserves the name


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the arguments name; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a locale lacks letters
    args, unknown = make_parser().parse_known_args(arguments)
    if unknown:
        args.refuse(f"unrecognized arguments: {' '.join(unknown)}")
    program = Program(getattr(args, "json", False))
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, interrupt) if in_main_thread else None
    try:
        program.tell_figures(args.run(args, program))
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has seen enough
        program.give_up_output()
    except Exception as error:
        if not isinstance(error, REFUSALS) and not type(error).__module__.startswith("tensorflow."):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)
    return 0


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="keras-transformer",
        description="Trains Transformers on pairs of texts, and uses what it trained.\n\n"
        "train makes a run: a directory with the model, its settings, its test and its export.\n"
        "The other commands take that directory.",
        epilog="keras-transformer COMMAND --help shows the options of a command and examples.",
    )
    version = importlib.import_module("keras_transformer").__version__
    parser.add_argument("--version", action="version", version=f"{parser.prog} {version}")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name in COMMANDS:
        module: Any = importlib.import_module(
            f"keras_transformer.commands.{MODULES.get(name, name)}"
        )
        summary, _, description = module.__doc__.partition("\n\n")
        own = commands.add_parser(
            name, help=summary.rstrip("."), description=f"{summary}\n\n{description}".rstrip()
        )
        module.add_arguments(own)
        if name != "serve":  # it has no figures
            what = "a JSON object for each line" if name == "translate" else "the figures as JSON"
            own.add_argument("--json", action="store_true", help=f"print {what}")
        own.set_defaults(run=module.run, refuse=own.error)
    return parser


def interrupt(*_: Any) -> NoReturn:
    """Ends a command that is told to terminate as Ctrl-C does."""
    raise KeyboardInterrupt
