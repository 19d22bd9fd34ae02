"""Measures translations: BLEU, chrF, exact match, word and character error rate.

Takes a file of translations, or a model that translates the source texts first. Of a run alone it
measures the test that the training held out or was given. With --bootstrap
each figure has its 95 % interval. With --baseline a paired test says how likely so large a
difference is between two equal systems.
"""

import argparse
from pathlib import Path
from typing import Any

from keras_transformer.commands.program import (
    Program,
    add_search,
    check_files,
    check_is_there,
    examples,
    need,
    non_negative_integer,
    table,
    use_a_backend,
    use_tensorflow,
)

TOKENIZERS = ("13a", "intl", "zh", "char", "none")
NAMES = ("exact_match", "word_error_rate", "character_error_rate", "chrf", "bleu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="a run or an export")
    parser.add_argument("--source", metavar="FILE", help="the texts that MODEL translates")
    parser.add_argument("--translations", metavar="FILE", help="translations, in place of MODEL")
    parser.add_argument("--reference", metavar="FILE", help="right translations")
    parser.add_argument("--baseline", metavar="FILE", help="translations of another system")
    parser.add_argument(
        "--metrics", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME",
        help=f"of {', '.join(NAMES)} (default: all)",
    )  # fmt: skip
    parser.add_argument("--lowercase", action="store_true", help="case counts for nothing")
    parser.add_argument(
        "--tokenize",
        choices=TOKENIZERS,
        default="13a",
        help="sacreBLEU's tokenizer; zh for Chinese, char for Japanese, Korean and Thai",
    )
    parser.add_argument(
        "--bootstrap",
        type=non_negative_integer,
        default=0,
        metavar="N",
        help="samples of the interval (default: 0, no interval)",
    )
    add_search(parser)
    parser.epilog = examples(
        "evaluate runs/en-de",
        "evaluate runs/en-de --source test.en --reference test.de --bootstrap 1000",
        "evaluate --translations ours.de --baseline theirs.de --reference test.de",
    )


def run(args: argparse.Namespace, program: Program) -> dict[str, Any]:
    """Translates where that is asked for, and prints a line for each metric."""
    if (args.model is None) == (args.translations is None):
        raise ValueError("give either MODEL or --translations")
    if args.source and not args.model:
        raise ValueError("--source needs MODEL")
    of_run = args.model is not None and not (args.source or args.reference)
    if not of_run and not args.reference:
        raise ValueError("give --reference, the file of the right translations")
    if args.model and args.reference and not args.source:
        raise ValueError("MODEL with --reference needs --source, the texts to translate")
    if args.model is None and (args.beam_size is not None or args.length_penalty is not None):
        raise ValueError("--beam-size and --length-penalty need MODEL")
    if args.bootstrap == 1:
        raise ValueError("--bootstrap must be 0 or at least 2. Received: 1")
    if args.model is not None:
        check_is_there(args.model)
    check_files(args.source, args.translations, args.reference, args.baseline)
    if {"bleu", "chrf"}.intersection(args.metrics):
        need("eval", "sacrebleu")
    if args.source or (args.model and (args.beam_size or args.length_penalty is not None)):
        use_tensorflow()
    else:
        use_a_backend()
    from keras_transformer.recipes.evaluation import evaluate

    if of_run:
        translations, references = predicted_by_run(args, program)
    else:
        translations, references = read_texts(args, program)
    baseline = read_as_many(args.baseline, len(references)) if args.baseline else None
    scores = evaluate(
        translations,
        references,
        args.metrics,
        lowercase=args.lowercase,
        tokenize=args.tokenize,
        bootstrap=args.bootstrap,
        baseline=baseline,
    )
    rows = []
    for score in scores:
        interval = "" if score.interval is None else f"\u00b1 {score.interval:.2f}"
        other = "" if score.baseline is None else f"baseline {score.baseline:.2f}"
        p_value = "" if score.p_value is None else f"p = {score.p_value:.4f}"
        name = score.name.replace("_", " ")
        rows.append([name, f"{score.value:6.2f}", interval, other, p_value, score.signature])
    for line in table(rows):
        program.say(line)
    return {score.name: score._asdict() for score in scores}


def read_texts(args: argparse.Namespace, program: Program) -> tuple[list[str], list[str]]:
    """The translations, of a file or of the model, and their references."""
    from keras_transformer.recipes.parallel_text import read_lines

    references = read_lines(args.reference)
    if not references:
        raise ValueError(f"{args.reference}: the file is empty. Give a file with text")
    if args.model is None:
        return read_as_many(args.translations, len(references)), references
    from keras_transformer.recipes.pair_formats import decode_target, encode_source
    from keras_transformer.recipes.runs import read_format

    form = read_format(args.model)
    sources = [encode_source(line, form) for line in read_as_many(args.source, len(references))]
    found = translated(args, sources, program)
    return [decode_target(text, form) for text in found], references


def read_as_many(file: str, count: int) -> list[str]:
    """The lines of a file, which must be as many as the references."""
    from keras_transformer.recipes.parallel_text import read_lines

    lines = read_lines(file)
    if len(lines) != count:
        raise ValueError(
            f"{file} has {len(lines):,} lines, and there are {count:,} references. "
            "Give files of equal length"
        )
    return lines


def predicted_by_run(args: argparse.Namespace, program: Program) -> tuple[list[str], list[str]]:
    """The outputs of the run's own test, or of another search of it, and their references."""
    from keras_transformer.recipes.runs import SETTINGS, read_predictions
    from keras_transformer.recipes.settings import read_settings

    rows = read_predictions(args.model)
    settings = read_settings(Path(args.model) / SETTINGS)[0]
    if settings.get("lowercase") and not args.lowercase:
        args.lowercase = True
        program.say("The run folds the case of its texts: --lowercase")
    references = [row["reference"] for row in rows]
    if args.beam_size is None and args.length_penalty is None:
        return [row["output"] for row in rows], references
    return translated(args, [row["source"] for row in rows], program), references


def translated(args: argparse.Namespace, sources: list[str], program: Program) -> list[str]:
    """The translations of the sources by the model."""
    import tensorflow as tf

    from keras_transformer.recipes.runs import open_signatures

    signatures = open_signatures(
        args.model, beam_size=args.beam_size, length_penalty=args.length_penalty
    )
    found: list[str] = []
    too_long = 0
    starts = range(0, len(sources), 512)
    for start in program.progress(starts, len(starts), "translating"):
        answer = signatures["serving_default"](text=tf.constant(sources[start : start + 512]))
        found += [" ".join(text.decode().split("\n")) for text in answer["translation"]]
        too_long += int(answer["truncated"].sum())
    if too_long:
        program.say(f"{too_long:,} texts are too long for the model: their translations are empty")
    return found
