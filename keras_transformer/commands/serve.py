"""Serves a model on this machine: TensorFlow Serving's REST form, and a page to try it.

Of a run, or of a directory of exports, it serves the newest export.
Requests that come together are translated together; /metrics is for Prometheus. Ctrl-C finishes
what was begun and stops. For production use TensorFlow Serving.
"""

import argparse
import re
from typing import Any

from keras_transformer.commands.program import (
    Program,
    add_model,
    examples,
    need,
    non_negative_number,
    positive_integer,
    positive_number,
    use_tensorflow,
    whole_number,
)
from keras_transformer.recipes.run_files import check_model, find_export


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_model(parser)
    options: list[tuple[str, Any, Any, str, str]] = [
        ("--name", str, "translator", "NAME", "name of the model in the addresses"),
        ("--host", str, "127.0.0.1", "ADDRESS", "address to listen at; 0.0.0.0 for other machines"),
        ("--port", whole_number, 8501, "N", "port to listen at; 0 for any that is free"),
        ("--batch-size", positive_integer, 64, "N", "texts translated at once"),
        ("--wait", non_negative_number, 0.002, "SECONDS", "for other requests to join"),
        ("--queue", positive_integer, 256, "N", "requests that may wait; more are refused"),
        ("--max-bytes", positive_integer, 2**20, "N", "largest request"),
        ("--max-texts", positive_integer, 256, "N", "most texts of a request"),
        ("--timeout", positive_number, 60.0, "SECONDS", "until a request is given up"),
    ]
    for name, kind, default, metavar, what in options:
        told = f"{what} (default: {default})"
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=told)
    parser.add_argument(
        "--replay",
        action="store_true",
        help="first run the export's warm-up requests, as TensorFlow Serving does: a minute or "
        "two, and nothing is compiled later",
    )
    parser.add_argument(
        "--no-warm-up",
        dest="warm_up",
        action="store_false",
        help="do not compile for short texts first: the first requests are slower",
    )
    parser.epilog = examples(
        "serve runs/en-de",
        "serve runs/en-de/export --port 8600 --name en-de",
        "serve runs/en-de/export/2 --host 0.0.0.0 --replay",
    )


def run(args: argparse.Namespace, program: Program) -> None:
    """Serves until a signal."""
    if not re.fullmatch(r"[\w.-]+", args.name):
        rule = "be of letters, digits, points, dashes and underscores"
        raise ValueError(f"--name must {rule}. Received: {args.name}")
    if not 0 <= args.port < 65536:
        raise ValueError(f"--port must be from 0 to 65535. Received: {args.port}")
    export = find_export(args.model)
    if export is None:
        check_model(args.model)
        raise ValueError(
            f"{args.model} has no SavedModel to serve. Write one: "
            f"`keras-transformer export {args.model}`"
        )
    need("serving", "fastapi", "uvicorn", "prometheus_client")
    if args.replay:
        need("serving", "tensorflow_serving")
    use_tensorflow()
    from keras_transformer.serving.local_server import ServerOptions, serve

    options = ServerOptions(**{name: getattr(args, name) for name in ServerOptions._fields})
    version = export.name if export.name.isdigit() else "1"
    if serve(str(export), version, options, program.say):
        raise OSError(f"the server could not start on {args.host}:{args.port}")
