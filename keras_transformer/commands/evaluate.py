"""Measures translations: BLEU, chrF, exact match, word and character error rate.

Three ways: MODEL alone measures the test that a run held out or was given. MODEL, --source and
--reference translate texts first. --translations and --reference compare two files.
With --bootstrap each figure has its 95 % interval. With --baseline a paired test says how likely so
large a difference is between two equal systems.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.commands.program import (
    Program,
    add_model,
    add_search,
    check_files,
    examples,
    need,
    non_negative_integer,
    table,
    use_a_backend,
    use_tensorflow,
)
from keras_transformer.recipes.pair_formats import decode_target, encode_sources
from keras_transformer.recipes.parallel_text import read_lines
from keras_transformer.recipes.run_files import check_model, read_format, read_predictions
from keras_transformer.recipes.settings import SETTINGS, read_settings

TOKENIZERS = ("13a", "intl", "zh", "char", "none")
BATCH_SIZE = 512  # texts translated at once
NAMES = ("exact_match", "word_error_rate", "character_error_rate", "chrf", "bleu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_model(parser, nargs="?")
    parser.add_argument("--source", metavar="FILE", help="texts for MODEL to translate")
    parser.add_argument("--translations", metavar="FILE", help="translations, in place of MODEL")
    parser.add_argument("--reference", metavar="FILE", help="right translations, line by line")
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
        help="sacreBLEU's tokenizer; zh for Chinese, char for Japanese, Korean and Thai "
        "(default: 13a)",
    )
    parser.add_argument(
        "--bootstrap",
        type=non_negative_integer,
        default=0,
        metavar="N",
        help="samples of the interval, for example 1000 (default: 0, no interval)",
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
        check_model(args.model, args.beam_size, args.length_penalty)
    check_files(args.source, args.translations, args.reference, args.baseline)
    if {"bleu", "chrf"}.intersection(args.metrics):
        need("eval", "sacrebleu")
    texts = predicted_by_run(args, program) if of_run else read_texts(args)
    baseline = read_as_many(args.baseline, len(texts.references)) if args.baseline else None
    outputs = texts.outputs
    if outputs is None:
        use_tensorflow()
        outputs = translate(args, texts, program)
    else:
        use_a_backend()
    from keras_transformer.recipes.evaluation import evaluate

    scores = evaluate(
        outputs,
        texts.references,
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


class Texts(NamedTuple):
    """The texts of a test; `outputs` is None until the model has translated `sources`."""

    sources: list[str]
    references: list[str]
    outputs: list[str] | None
    format: str = "text"


def read_texts(args: argparse.Namespace) -> Texts:
    """The texts of the files."""
    references = read_lines(args.reference)
    if not references:
        raise ValueError(f"{args.reference}: the file is empty. Give a file with text")
    if args.model is None:
        return Texts([], references, read_as_many(args.translations, len(references)))
    form = read_format(args.model)
    sources = read_as_many(args.source, len(references))
    return Texts(encode_sources(sources, form, args.source), references, None, form)


def read_as_many(file: str, count: int) -> list[str]:
    """The lines of a file, which must be as many as the references."""
    lines = read_lines(file)
    if len(lines) != count:
        raise ValueError(
            f"{file} has {len(lines):,} lines, and there are {count:,} references. "
            "Give files of equal length"
        )
    return lines


def predicted_by_run(args: argparse.Namespace, program: Program) -> Texts:
    """The run's own test, with its outputs unless another search is asked for."""
    rows = read_predictions(args.model)
    settings = read_settings(Path(args.model) / SETTINGS)[0]
    if settings.get("lowercase") and not args.lowercase:
        args.lowercase = True
        program.say("The run folds the case of its texts: --lowercase")
    sources, references, outputs = (
        [row[name] for row in rows] for name in ("source", "reference", "output")
    )
    has_search = args.beam_size is None and args.length_penalty is None
    return Texts(sources, references, outputs if has_search else None)


def translate(args: argparse.Namespace, texts: Texts, program: Program) -> list[str]:
    """The translations of the sources by the model."""
    import tensorflow as tf

    from keras_transformer.recipes.runs import open_signatures

    signatures = open_signatures(
        args.model, beam_size=args.beam_size, length_penalty=args.length_penalty
    )
    found: list[str] = []
    too_long = 0
    starts = range(0, len(texts.sources), BATCH_SIZE)
    for start in program.progress(starts, len(starts), "translating"):
        lines = texts.sources[start : start + BATCH_SIZE]
        answer = signatures["serving_default"](text=tf.constant(lines))
        found += [" ".join(text.decode().split("\n")) for text in answer["translation"]]
        too_long += int(answer["truncated"].sum())
    if too_long:
        program.say(f"{too_long:,} texts are too long for the model: their translations are empty")
    return [decode_target(text, texts.format) for text in found]
