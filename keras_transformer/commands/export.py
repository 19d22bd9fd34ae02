"""Exports the model of a run: a SavedModel, or ONNX or LiteRT files.

A SavedModel takes strings and returns strings, with the search that is named here inside. ONNX and
LiteRT files hold the model alone, and read and write ids.
"""

import argparse
from pathlib import Path
from typing import Any

from keras_transformer.commands.program import (
    Program,
    add_search,
    check_is_there,
    examples,
    in_words,
    need,
    use_tensorflow,
)

FORMATS = ("saved-model", "onnx", "litert")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("run_directory", metavar="RUN", help="the directory of a run")
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="a new directory (default: the next number in RUN/export, or RUN/onnx, RUN/litert)",
    )
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0])
    parser.add_argument(
        "--int8", action="store_const", const=True, help="8-bit integers: a quarter of the size"
    )
    parser.add_argument(
        "--xla",
        action=argparse.BooleanOptionalAction,
        help="compile the search with XLA: faster, and TensorFlow Serving then needs a flag",
    )
    parser.add_argument(
        "--split-sentences",
        action=argparse.BooleanOptionalAction,
        help="translate each sentence of a text on its own",
    )
    add_search(parser)
    parser.epilog = examples(
        "export runs/en-de --beam-size 8 --length-penalty 1",
        "export runs/en-de --int8 --output exports/en-de-int8",
        "export runs/en-de --format onnx",
    )


def run(args: argparse.Namespace, program: Program) -> dict[str, Any]:
    """Writes the export, and says where it is and how large."""
    options = ("int8", "xla", "split_sentences", "beam_size", "length_penalty")
    given = [name for name in options if getattr(args, name) is not None]
    if args.format != FORMATS[0] and given:
        option = given[0].replace("_", "-")
        raise ValueError(f"--{option} needs --format saved-model: other files hold no search")
    check_is_there(args.run_directory)
    if args.format == "onnx":
        need("formats", "tf2onnx", "onnx")
    if args.format == "litert":
        need("formats", "ai_edge_litert")
    if args.output and Path(args.output).exists():
        raise ValueError(f"{args.output} exists. Give another --output")
    use_tensorflow()
    from keras_transformer.recipes.run_directory import RunDirectory
    from keras_transformer.recipes.runs import find_export, load_translator, read_card
    from keras_transformer.serving import export_litert, export_onnx
    from keras_transformer.serving.description import size_of
    from keras_transformer.serving.model_card import OWN_FIELDS

    output = Path(args.output or default_output(Path(args.run_directory), args.format))
    if output.exists():
        raise ValueError(f"{output} exists. Give --output")
    program.say(f"Loading {args.run_directory} ...")
    translator = load_translator(
        args.run_directory,
        beam_size=args.beam_size,
        length_penalty=args.length_penalty,
        jit_compile=args.xla,
        split_sentences=args.split_sentences,
        quantize="int8" if args.int8 else None,
    )
    program.say(f"Writing {output} ...")
    if args.format == "saved-model":
        output.parent.mkdir(parents=True, exist_ok=True)
        older = find_export(args.run_directory)
        if older:
            card = {n: v for n, v in read_card(older).items() if n not in OWN_FIELDS}
        else:  # trained without TensorFlow
            summary = Path(args.run_directory) / "summary.txt"
            scores = summary.read_text(encoding="utf-8").strip() if summary.exists() else ""
            card = RunDirectory(args.run_directory).card(scores)
        translator.export(output, card=card, verbose=False)
    else:
        {"onnx": export_onnx, "litert": export_litert}[args.format](translator, output)
    size = size_of(output)
    search = in_words(translator.search) if args.format == FORMATS[0] else "without a search"
    program.say(f"{output}: {size / 2**20:.1f} MiB, {search}")
    return {"output": str(output), "bytes": size, "search": search}


def default_output(run_directory: Path, format: str) -> Path:
    """Where an export goes when nothing is said."""
    if format != FORMATS[0]:
        return run_directory / format
    from keras_transformer.recipes.runs import export_numbers

    folder = run_directory / "export"
    return folder / str(max(export_numbers(folder), default=0) + 1)
