"""Exports the model of a run: a SavedModel, or ONNX or LiteRT files.

A SavedModel takes strings and returns strings, with the search inside. ONNX and LiteRT files hold
the model alone, and read and write ids. What is not given is as in the settings of the run.
RUN/README.txt says how to use the newest SavedModel in RUN/export.
"""

import argparse
from pathlib import Path
from typing import Any

from keras_transformer.commands.program import (
    Program,
    add_search,
    examples,
    in_words,
    need,
    use_tensorflow,
)
from keras_transformer.recipes.run_files import (
    change_search,
    check_run,
    export_numbers,
    read_run,
)

FORMATS = ("saved-model", "onnx", "litert")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("run_directory", metavar="RUN", help="a run, the --output of train")
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="a new directory (default: the next number in RUN/export, or RUN/onnx, RUN/litert)",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help="default: saved-model"
    )
    parser.add_argument(
        "--int8", action="store_const", const=True, help="8-bit integers: a quarter of the size"
    )
    parser.add_argument(
        "--xla",
        action=argparse.BooleanOptionalAction,
        help="compile the search with XLA: faster, and TensorFlow Serving then needs a flag "
        "(default: yes)",
    )
    parser.add_argument(
        "--split-sentences",
        action=argparse.BooleanOptionalAction,
        help="translate each sentence of a text on its own (default: as the training texts are)",
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
    check_run(args.run_directory)
    change_search(read_run(args.run_directory)[0], args.beam_size, args.length_penalty)
    if args.format == "onnx":
        need("formats", "tf2onnx", "onnx")
    if args.format == "litert":
        need("formats", "ai_edge_litert")
    output = Path(args.output or default_output(Path(args.run_directory), args.format))
    if output.exists():
        raise ValueError(f"{output} exists. Give another --output")
    if not next(folder for folder in output.absolute().parents if folder.exists()).is_dir():
        raise ValueError(f"--output must be in a directory. Received: {output}, below a file")
    use_tensorflow()
    from keras_transformer.recipes.run_directory import RunDirectory
    from keras_transformer.recipes.runs import load_translator
    from keras_transformer.serving import export_litert, export_onnx
    from keras_transformer.serving.description import size_of

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
        directory = RunDirectory(args.run_directory)
        scores = directory.summary()
        translator.export(output, card=directory.card(scores), verbose=False)
        if scores and output.parent.resolve() == (directory.path / "export").resolve():
            directory.write_readme()
    else:
        {"onnx": export_onnx, "litert": export_litert}[args.format](translator, output)
    size = size_of(output)
    search = in_words(translator.search) if args.format == FORMATS[0] else "without a search"
    how = ", each sentence on its own" if translator.split_sentences else ""
    program.say(f"{output}: {size / 2**20:.1f} MiB, {search}{how}")
    return {"output": str(output), "bytes": size, "search": search}


def default_output(run_directory: Path, format: str) -> Path:
    """Where an export goes when nothing is said."""
    if format != FORMATS[0]:
        return run_directory / format
    folder = run_directory / "export"
    return folder / str(max(export_numbers(folder), default=0) + 1)
