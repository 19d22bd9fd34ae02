"""Serves a model on this machine: TensorFlow Serving's REST form, and a page to try it.

Requests that come together are translated together; /metrics is for Prometheus. Ctrl-C finishes
what was begun and stops. For production use TensorFlow Serving.
"""

import argparse
import re

from keras_transformer.commands.program import (
    Program,
    check_is_there,
    examples,
    need,
    non_negative_number,
    positive_integer,
    positive_number,
    use_tensorflow,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("model", metavar="MODEL", help="a run, an export or a directory of exports")
    parser.add_argument("--name", default="translator", help="the model's (default: translator)")
    parser.add_argument("--host", default="127.0.0.1", help="default: this machine alone")
    parser.add_argument("--port", type=int, default=8501, help="default: 8501")
    parser.add_argument(
        "--batch-size", type=positive_integer, default=64, help="texts at once (default: 64)"
    )
    parser.add_argument(
        "--wait", type=non_negative_number, default=0.002,
        help="seconds for others to join (default: 0.002)",
    )  # fmt: skip
    parser.add_argument(
        "--queue", type=positive_integer, default=256, help="requests waiting (default: 256)"
    )
    parser.add_argument(
        "--max-bytes", type=positive_integer, default=2**20, help="of a request (default: 1 MiB)"
    )
    parser.add_argument(
        "--max-texts", type=positive_integer, default=256, help="of a request (default: 256)"
    )
    parser.add_argument(
        "--timeout", type=positive_number, default=60.0, help="seconds (default: 60)"
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="first run the export's warm-up requests, as TensorFlow Serving does: a minute or "
        "two, and nothing is compiled later",
    )
    parser.add_argument("--no-warm-up", dest="warm_up", action="store_false")
    parser.epilog = examples(
        "serve runs/en-de",
        "serve runs/en-de/export --port 8600 --name en-de",
        "serve runs/en-de/export/2 --host 0.0.0.0 --replay",
    )


def run(args: argparse.Namespace, program: Program) -> None:
    """Serves until a signal."""
    if not re.fullmatch(r"[\w.-]+", args.name):
        raise ValueError("--name must be of letters, digits, points, dashes and underscores")
    if not 0 <= args.port < 65536:
        raise ValueError(f"--port must be from 0 to 65535. Received: {args.port}")
    check_is_there(args.model)
    need("serving", "fastapi", "uvicorn", "prometheus_client")
    if args.replay:
        need("serving", "tensorflow_serving")
    use_tensorflow()
    from keras_transformer.recipes.runs import find_export

    export = find_export(args.model)
    if export is None:
        raise ValueError(
            f"{args.model} holds no SavedModel, nor do numbered directories in it. "
            "`keras-transformer export` writes one"
        )
    from keras_transformer.serving.local_server import ServerOptions, serve

    options = ServerOptions(**{name: getattr(args, name) for name in ServerOptions._fields})
    version = export.name if export.name.isdigit() else "1"
    if serve(str(export), version, options, program.say):
        raise OSError(f"the server could not start on {args.host}:{args.port}")
