"""The command line of transduce.py: sizes, options, defaults and their checks."""

import argparse
import math

from positions import POSITIONS
from symbol_pairs import FORMATS

# An epoch of 7,000 words takes "small" 10 seconds of one core and "paper" a minute.
SIZES = {
    "small": dict(num_layers=2, d_model=128, num_heads=4, d_ff=512),
    # Wu et al. 2021, "Applying the Transformer to Character-level Transduction"; its recipe:
    # --peak 0.001 --warmup 4000 --tokens-per-batch 8192 --inner-dropout 0.3 --average 0
    # --position sinusoidal
    "paper": dict(num_layers=4, d_model=256, num_heads=4, d_ff=1024),
    # Wu et al. 2021, "Good for Misconceived Reasons", for corpora like Multi30K.
    "tiny": dict(num_layers=4, d_model=128, num_heads=4, d_ff=256),
}
METRIC = {"g2p": "word_error_rate", "text": "bleu"}  # of the other formats: exact match
# What makes a run the run it is.
SETTINGS = ("format", "train", "validation", "size", "dropout", "warmup", "peak", "seed")
SETTINGS += ("tokens_per_batch", "label_smoothing", "norm_first", "inner_dropout", "r_drop")
SETTINGS += ("average", "position")


class Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows each option's default, and the description as it is written."""


def parse_arguments(description):
    """Returns the command line's arguments, checked."""
    parser = make_parser(description)
    parser.add_argument("--tensorboard", action="store_true", help="write OUTPUT/tensorboard too")
    return check_arguments(parser)


def make_parser(description, formats=FORMATS):
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=Formatter)
    parser.add_argument("--format", choices=formats, required=True)
    for part in ("train", "test"):
        parser.add_argument(f"--{part}", metavar="FILE", required=True)
    parser.add_argument("--validation", metavar="FILE", help="held out when not given")
    parser.add_argument("--output", metavar="DIR", required=True)
    parser.add_argument("--size", choices=SIZES, default="small", help="of the model")
    parser.add_argument(
        "--position", choices=POSITIONS, default="rotary", help="how positions are told apart"
    )
    parser.add_argument(
        "--right-to-left",
        action="store_true",
        help="write the last symbol first: where endings depend on less than what is before them",
    )
    parser.add_argument("--dropout", type=float, default=0.3, help="of embeddings and sub-layers")
    parser.add_argument(
        "--inner-dropout", type=float, default=0.1, help="of attention and inner layers"
    )
    parser.add_argument("--label-smoothing", type=float, default=0.1, help="share of the target")
    parser.add_argument(
        "--r-drop", type=float, default=0.0, metavar="WEIGHT", help="of two draws of the dropout"
    )
    parser.add_argument(
        "--post-norm", dest="norm_first", action="store_false", help="normalise after sub-layers"
    )
    parser.add_argument("--peak", type=float, default=0.003, help="largest learning rate")
    parser.add_argument("--warmup", type=int, default=1000, help="updates up to it")
    parser.add_argument("--tokens-per-batch", type=int, default=2048, help="padding included")
    parser.add_argument("--epochs", type=int, default=1000, help="stop after these")
    parser.add_argument("--minutes", type=float, default=60.0, help="of training, then stop")
    parser.add_argument(
        "--validate-every", type=int, default=5, metavar="EPOCHS", help="to the next"
    )
    parser.add_argument(
        "--average",
        type=int,
        default=10,
        metavar="N",
        help="the mean of the last N epochs; 0: none",
    )
    parser.add_argument("--beam", type=int, default=1, help="of the test; 1 is greedy")
    parser.add_argument("--seed", type=int, default=1, help="of weights, batches and dropout")
    return parser


def check_arguments(parser):
    """Returns the parsed arguments, or ends with what is wrong."""
    args = parser.parse_args()
    for name in (
        "warmup",
        "tokens_per_batch",
        "epochs",
        "minutes",
        "validate_every",
        "beam",
        "peak",
    ):
        if not getattr(args, name) > 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    if args.average < 0:
        parser.error("--average must be at least 0")
    if not args.peak < math.inf:
        parser.error("--peak must be a number")
    if not 0 <= args.r_drop < math.inf:
        parser.error("--r-drop must be at least 0")
    if not 0 <= args.seed < 2**32:
        parser.error("--seed must be at least 0 and below 2**32")
    for name in ("dropout", "inner_dropout", "label_smoothing"):
        if not 0 <= getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 0 and below 1")
    return args
