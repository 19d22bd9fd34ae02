"""Exports the model of a run: a SavedModel, or a form of other systems.

A SavedModel takes strings and returns strings, with the search inside. An ONNX file has the search
inside too. LiteRT files hold the model alone. Both read and write ids; a program that is written
beside them turns texts into ids and back. `--strings` writes an ONNX file of texts, too. Hugging
Face and CTranslate2 open the directories that are written for them. What is not given is as in the
settings of the run. RUN/README.txt says how to use the newest SavedModel in RUN/export.
"""

import argparse
import itertools
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_transformer.commands.program import (
    Program,
    add_search,
    check_new_directory,
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

if TYPE_CHECKING:
    from keras_transformer.serving import Translator

FORMATS = ("saved-model", "onnx", "litert", "hugging-face", "ctranslate2")
# The options that each format takes. Where there is no beam size, there is no search inside.
OPTIONS = {
    "saved-model": (
        *("int8", "xla", "layout", "split_sentences", "source_tag", "target_tag"),
        *("beam_size", "length_penalty", "shortlist"),
    ),
    "onnx": ("int8", "strings", "source_tag", "target_tag", "beam_size", "length_penalty"),
    "hugging-face": ("beam_size", "length_penalty"),
    "ctranslate2": ("int8",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("run_directory", metavar="RUN", help="a run, the --output of train")
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="a new directory (default: the next number in RUN/export, or RUN/onnx and so on)",
    )
    parser.add_argument(
        "--to", choices=FORMATS, default=FORMATS[0], help="the form (default: saved-model)"
    )
    parser.add_argument(
        "--int8", action="store_const", const=True, help="8-bit integers: a quarter of the size"
    )
    parser.add_argument(
        "--strings",
        action="store_const",
        const=True,
        help="also an ONNX file that takes texts and returns texts, each text as one sentence; "
        "onnxruntime-extensions runs it",
    )
    parser.add_argument(
        "--xla",
        action=argparse.BooleanOptionalAction,
        help="compile the search with XLA: faster, and TensorFlow Serving then needs a flag "
        "(default: yes)",
    )
    parser.add_argument(
        "--layout",
        choices=("rows", "columns"),
        help="how matrices are stored; columns are faster on processors with AVX2 and without "
        "AVX-512, and on newer ones of Intel (default: as suits this processor)",
    )
    parser.add_argument(
        "--split-sentences",
        action=argparse.BooleanOptionalAction,
        help="translate each sentence of a text on its own (default: as the training texts are)",
    )
    parser.add_argument(
        "--shortlist",
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="compute the logits of likely pieces alone, learned from the lines of two files: "
        "faster for few texts with a large vocabulary",
    )
    for side, where in (("source", "before every text"), ("target", "before every translation")):
        parser.add_argument(
            f"--{side}-tag", metavar="TAG", help=f"a language code of the vocabulary, {where}"
        )
    add_search(parser)
    parser.epilog = examples(
        "export runs/en-de --beam-size 8 --length-penalty 1",
        "export runs/en-de --to onnx --beam-size 1",
        "export runs/en-de --to ctranslate2 --int8 --output en-de-int8",
    )


def run(args: argparse.Namespace, program: Program) -> dict[str, Any]:
    """Writes the export, and says where it is and how large."""
    check_options(args)
    output = Path(args.output or default_output(Path(args.run_directory), args.to))
    check_new_directory(output)
    use_tensorflow()
    from keras_transformer.recipes.run_directory import RunDirectory
    from keras_transformer.recipes.runs import load_translator
    from keras_transformer.serving.description import count_bytes

    shortlist = None
    if args.shortlist:
        from keras_transformer.recipes.shortlists import learn_shortlist

        program.say(f"Learning a shortlist from {' and '.join(args.shortlist)} ...")
        shortlist = learn_shortlist(args.run_directory, *args.shortlist)
    program.say(f"Loading {args.run_directory} ...")
    translator = load_translator(
        args.run_directory,
        beam_size=args.beam_size,
        length_penalty=args.length_penalty,
        jit_compile=args.xla,
        layout=args.layout,
        shortlist=shortlist,
        split_sentences=False if args.strings else args.split_sentences,
        source_tag=args.source_tag,
        target_tag=args.target_tag,
        quantize="int8" if args.int8 and args.to == FORMATS[0] else None,
    )
    program.say(f"Writing {output} ...")
    directory = RunDirectory(args.run_directory)
    scores = directory.summary()
    if args.to == "saved-model":
        output.parent.mkdir(parents=True, exist_ok=True)
        translator.export(output, card=directory.card(scores), verbose=False)
        if scores and output.parent.resolve() == (directory.path / "export").resolve():
            directory.write_readme()
    else:
        write_other_form(args, translator, output, directory.card(scores), program)
    size = count_bytes(output)
    holds_search = "beam_size" in OPTIONS.get(args.to, ())
    search = in_words(translator.search) if holds_search else "without a search"
    divides = translator.split_sentences and args.to == "saved-model"
    how = ", each sentence on its own" if divides else ""
    program.say(f"{output}: {size / 2**20:.1f} MiB, {search}{how}")
    return {"output": str(output), "bytes": size, "search": search}


def check_options(args: argparse.Namespace) -> None:
    """Refuses options of another form, a run that is none, and a form whose packages are absent."""
    for name in dict.fromkeys(itertools.chain(*OPTIONS.values())):
        if getattr(args, name) is not None and name not in OPTIONS.get(args.to, ()):
            takers = " or ".join(form for form, names in OPTIONS.items() if name in names)
            raise ValueError(f"--{name.replace('_', '-')} needs --to {takers}")
    check_run(args.run_directory)
    change_search(read_run(args.run_directory)[0], args.beam_size, args.length_penalty)
    if args.to == "onnx":
        need("formats", *["onnx", "onnxruntime"][: 2 if args.int8 else 1])
    if args.to == "litert":
        need("formats", "ai_edge_litert")
    if args.to == "ctranslate2":
        need("interop", "ctranslate2")


def write_other_form(
    args: argparse.Namespace,
    translator: "Translator",
    output: Path,
    card: dict[str, Any],
    program: Program,
) -> None:
    """Writes another form than a SavedModel, and says what the other system does otherwise."""
    from keras_transformer.interop import save_ctranslate2, save_hugging_face
    from keras_transformer.serving import export_litert, export_onnx

    quantization: Any = "int8" if args.int8 else None
    of_onnx = {"quantization": quantization, "strings": bool(args.strings), "card": card}
    writers: dict[str, Any] = {
        "onnx": partial(export_onnx, **of_onnx),
        "litert": export_litert,
        "hugging-face": save_hugging_face,
        "ctranslate2": partial(save_ctranslate2, quantization=quantization),
    }
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", module="keras_transformer")
        writers[args.to](translator, output)
    for warning in found:
        program.say(f"note: {warning.message}")
    is_said = any("split_sentences" in str(warning.message) for warning in found)
    if translator.split_sentences and not is_said:
        program.say("note: a text is not divided there. Give it one sentence at a time.")


def default_output(run_directory: Path, format: str) -> Path:
    """Where an export goes when nothing is said."""
    if format != FORMATS[0]:
        return run_directory / format
    folder = run_directory / "export"
    return folder / str(max(export_numbers(folder), default=0) + 1)
