"""Scores given translations: log-probability and perplexity of each pair.

Line n of TARGET is a translation of line n of SOURCE. Each pair has a line of three columns with
tabs between them: log-probability, tokens, perplexity. The last line is the perplexity of all.
"""

import argparse
import math
from typing import Any

from keras_transformer.commands.program import (
    Program,
    add_model,
    check_files,
    examples,
    positive_integer,
    use_tensorflow,
)
from keras_transformer.recipes.pair_formats import encode_sources, encode_target
from keras_transformer.recipes.parallel_text import read_pairs
from keras_transformer.recipes.run_files import check_model, read_format


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_model(parser)
    parser.add_argument("source", metavar="SOURCE", help="a file of texts, plain or gzip")
    parser.add_argument("target", metavar="TARGET", help="a file of their translations")
    parser.add_argument("--total", action="store_true", help="print the last line alone")
    parser.add_argument(
        "--batch-size",
        type=positive_integer,
        default=512,
        metavar="N",
        help="lines at a time (default: 512)",
    )
    parser.epilog = examples(
        "score runs/en-de test.en test.de",
        "score runs/en-de test.en test.de --total",
        "score runs/en-de/export/1 test.en.gz test.de.gz --json",
    )


def run(args: argparse.Namespace, program: Program) -> dict[str, Any]:
    """Scores the pairs; the last line is the perplexity of all."""
    check_model(args.model)
    check_files(args.source, args.target)
    form = read_format(args.model)
    sources, targets = zip(*read_pairs(args.source, args.target), strict=True)
    encoded = encode_sources(sources, form, args.source)
    pairs = list(zip(encoded, [encode_target(line, form) for line in targets], strict=True))
    use_tensorflow()
    import tensorflow as tf

    from keras_transformer.recipes.runs import open_signatures

    score = open_signatures(args.model)["score"]
    total, tokens, too_long = 0.0, 0, 0
    scores: list[dict[str, float] | None] = []
    starts = range(0, len(pairs), args.batch_size)
    for start in program.progress(starts, len(starts), "scoring"):
        sources, targets = zip(*pairs[start : start + args.batch_size], strict=True)
        found = score(source=tf.constant(sources), target=tf.constant(targets))
        columns = (found[name].tolist() for name in ("log_prob", "num_tokens", "truncated"))
        for log_prob, count, is_too_long in zip(*columns, strict=True):
            is_read = not is_too_long
            scores.append({"log_prob": log_prob, "tokens": count} if is_read else None)
            line = "too long"
            if is_read:
                total, tokens = total + log_prob, tokens + count
                line = f"{log_prob:.4f}\t{count}\t{perplexity(log_prob, count):.4f}"
            too_long += not is_read
            if not args.total:
                program.say(line)
    if too_long:
        program.say(f"Too long for the model, not counted: {too_long:,} of {len(pairs):,} pairs")
    if not tokens:
        raise ValueError("no pair is short enough for the model")
    figures = {
        "pairs": len(pairs),
        "too_long": too_long,
        "tokens": tokens,
        "log_prob": total,
        "perplexity": perplexity(total, tokens),
        "scores": [] if args.total else scores,
    }
    program.say(f"Perplexity {figures['perplexity']:.4f} over {tokens:,} tokens")
    return figures


def perplexity(log_prob: float, tokens: int) -> float:
    """`exp(-log_prob / tokens)`; infinite where that is too large."""
    exponent = -log_prob / tokens
    return math.exp(exponent) if exponent < 700 else math.inf
