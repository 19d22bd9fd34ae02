"""Writes one HTML file that shows where a model looks, and how its search decides.

Open the file in a browser; it needs no server and no network. Point at a word to see where each
head of each layer looks. Step through the decoding to see the hypotheses of the beam, what might
follow each, and which go on. The weights and the steps are the model's and the search's own.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from keras_transformer.commands.program import (
    Program,
    check_output,
    examples,
    in_words,
    length_penalty,
    positive_integer,
    use_tensorflow,
)
from keras_transformer.recipes.pair_formats import decode_target, encode_sources
from keras_transformer.recipes.run_files import check_run, read_format

LARGE = 10  # megabytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("run_directory", metavar="RUN", help="a run, the --output of train")
    parser.add_argument("sentence", metavar="SENTENCE", help="what to translate")
    parser.add_argument(
        "--output", default="attention.html", metavar="FILE", help="default: attention.html"
    )
    parser.add_argument(
        "--beam-size", type=positive_integer, metavar="N", help="default: the run's"
    )
    parser.add_argument(
        "--length-penalty", type=length_penalty, metavar="NUMBER", help="default: the run's"
    )
    parser.epilog = examples(
        'explore runs/en-de "A man in an orange hat."',
        'explore runs/en-de "Two dogs run." --output dogs.html',
        'explore runs/dates "Friday, November 20, 2026" --beam-size 2',
    )


def run(args: argparse.Namespace, program: Program) -> dict[str, Any]:
    """Translates the sentence and writes the page."""
    check_run(args.run_directory)
    check_output(args.output)
    if not args.sentence.strip():
        raise ValueError("SENTENCE must have at least one word. Received: an empty one")
    form = read_format(args.run_directory)
    (sentence,) = encode_sources([args.sentence], form, "SENTENCE")
    use_tensorflow()
    from keras_transformer.recipes.attention_explorer import explore, write_page
    from keras_transformer.recipes.runs import load_translator

    program.say(f"Loading {args.run_directory} ...")
    translator = load_translator(
        args.run_directory, beam_size=args.beam_size, length_penalty=args.length_penalty
    )
    program.say(
        f"Translating, {in_words(translator.search)}, and reading every layer's weights ..."
    )
    data = explore(translator, sentence)
    write_page(Path(args.output), data)
    size = os.path.getsize(args.output)
    steps, hypotheses = len(data["steps"]) - 1, len(data["nodes"]) - 1
    program.say(f"{steps} steps, {hypotheses} hypotheses, a page of {size / 1e3:,.0f} kB")
    if size > LARGE * 1e6:
        program.say("A smaller --beam-size or a shorter sentence gives a smaller page.")
    translation = decode_target(data["translation"], form)
    program.say(f"{args.output}: {translation}")
    return {"output": args.output, "bytes": size, "translation": translation}
