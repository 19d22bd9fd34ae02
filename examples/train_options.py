"""The command line of train_translator.py: sizes, options, defaults and their checks."""

import argparse
import math
from pathlib import Path

from positions import POSITIONS

# "peak" is the learning rate at the end of the warm-up; None is the paper's own. At the rate of
# "tiny" a post-norm encoder collapsed to one vector for all positions; a pre-norm one trains.
# fmt: off
SIZES = {
    # For the dates.
    "mini": dict(layers=2, d_model=128, heads=4, d_ff=256, dropout=0.1, pre_norm=True, peak=0.002, warmup=300),  # noqa: E501
    # The widths of Wu et al. 2021, "Good for Misconceived Reasons", for corpora like Multi30K.
    "tiny": dict(layers=4, d_model=128, heads=4, d_ff=256, dropout=0.3, pre_norm=True, peak=0.004, warmup=1000),  # noqa: E501
    "small": dict(layers=6, d_model=512, heads=4, d_ff=1024, dropout=0.3, pre_norm=True, peak=0.001, warmup=4000),  # noqa: E501
    # Vaswani et al. 2017, table 3.
    "base": dict(layers=6, d_model=512, heads=8, d_ff=2048, dropout=0.1, pre_norm=False, peak=None, warmup=4000),  # noqa: E501
    "big": dict(layers=6, d_model=1024, heads=16, d_ff=4096, dropout=0.3, pre_norm=False, peak=None, warmup=4000),  # noqa: E501
}
# fmt: on

# Recurrent models whose LSTM with additive attention has as many parameters as the Transformer of
# that name, within 3 % at the default vocabulary; a GRU has a fifth fewer. The rest is as above.
RECURRENT_SIZES = {
    "mini": dict(layers=1, d_model=176),
    "tiny": dict(layers=1, d_model=200),
    "small": dict(layers=2, d_model=896),
    "base": dict(layers=2, d_model=1056),
    "big": dict(layers=4, d_model=1600),
}
SIMILARITY_NAMES = ("additive", "general", "dot", "scaled_dot", "cosine", "none")
# What an option may put in place of the size's own.
RECIPE = ("peak", "warmup", "dropout", "pre_norm")
# What is no part of a size's recipe: none unless given.
ADDITIONS = ("r_drop", "subword_dropout", "both_directions", "start_from")
# The options of the recurrent model alone.
RECURRENT = dict(similarity="additive", cell="lstm", scheduled_sampling=0.0)

FORMS = ("identity", "nfc", "nfkc")  # normalizations that any vocabulary can have

# Nothing is uncertain about a date in another language: smoothed labels only blur it.
DATES = dict(size="mini", vocab_size=600, epochs=8, tokens_per_batch=2048, label_smoothing=0.0)
FILES = dict(size="tiny", vocab_size=8000, epochs=30, tokens_per_batch=4096, label_smoothing=0.1)
LEAST = dict(vocab_size=1, epochs=1, tokens_per_batch=1, accumulate=1, max_length=16, seed=0)
LEAST |= dict(batches_per_epoch=1, average=0, bleu_every=0, beam_size=1, length_penalty=0)
LEAST |= dict(both_directions=0)


def parse_arguments(description):
    """Returns the command line's arguments, checked, with the defaults of the task filled in."""
    parser = make_parser(description)
    args = parser.parse_args()
    for first, second in (
        ("source", "target"),
        ("validation_source", "validation_target"),
        ("test_source", "test_target"),
    ):
        if (getattr(args, first) is None) != (getattr(args, second) is None):
            names = " and ".join(f"--{name.replace('_', '-')}" for name in (first, second))
            parser.error(f"give both {names}, or neither")
    dates = args.source is None
    if dates and (args.validation_source or args.test_source):
        parser.error("validation and test files need --source and --target")
    for name, value in (DATES if dates else FILES).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    fill_recurrent(parser, args)
    fill_recipe(parser, args)
    for name, least in LEAST.items():
        if getattr(args, name) is not None and getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")
    if dates and args.lowercase:
        parser.error("--lowercase needs --source and --target")
    fill_normalization(parser, args)
    if (args.batches_per_epoch or 0) % args.accumulate:
        parser.error("--batches-per-epoch must be a multiple of --accumulate")
    if args.seed >= 2**32:
        parser.error("--seed must be below 2**32")
    if args.both_directions and args.separate_vocabularies:
        parser.error("--both-directions needs one vocabulary, not --separate-vocabularies")
    if args.accumulate > 1 and args.precision == "mixed_float16":
        # Its loss scaling leaves out batches that overflow, and the updates lose count.
        parser.error("--accumulate goes with float32 or mixed_bfloat16")
    if not args.minutes > 0:
        parser.error("--minutes must be above 0")
    if not 0 <= args.label_smoothing < 1:
        parser.error("--label-smoothing must be at least 0 and below 1")
    if args.output is None:
        name = (
            f"dates-{args.source_locale}-{args.target_locale}"
            if dates
            else run_name(args.source, args.target, args.size)
        )
        own = [args.model, args.cell, args.similarity] if args.model == "recurrent" else []
        args.output = str(Path("runs") / "-".join([name, *own]))
    return args


def fill_normalization(parser, args):
    """Fills in the rule of the sources, or refuses one that a vocabulary of both cannot have."""
    if args.source is None and (args.normalization != "identity" or args.source_normalization):
        parser.error("--normalization and --source-normalization need --source and --target")
    args.source_normalization = args.source_normalization or args.normalization
    differ = args.source_normalization != args.normalization
    if differ and not args.separate_vocabularies and args.source_normalization not in FORMS:
        parser.error(
            f"--source-normalization must be one of {', '.join(FORMS)}, or as --normalization, "
            "without --separate-vocabularies"
        )


def fill_recurrent(parser, args):
    """Fills in the options of the recurrent model, or refuses them for another one."""
    for name, value in RECURRENT.items():
        if getattr(args, name) is None and args.model == "recurrent":
            setattr(args, name, value)
        elif getattr(args, name) is not None and args.model != "recurrent":
            parser.error(f"--{name.replace('_', '-')} needs --model recurrent")
    if not 0 <= (args.scheduled_sampling or 0) < 1:
        parser.error("--scheduled-sampling must be at least 0 and below 1")


def fill_recipe(parser, args):
    """Fills in the parts of the size's recipe that are not given; notes those that are."""
    if args.pre_norm is not None and args.model == "recurrent":
        parser.error("--pre-norm and --post-norm need --model transformer")
    if args.r_drop and args.model == "recurrent":
        parser.error("--r-drop needs --model transformer")
    if args.position and args.model == "recurrent":
        parser.error("--position needs --model transformer")
    if args.remat and args.model == "recurrent":
        parser.error("--remat needs --model transformer")
    args.position = args.position or "sinusoidal"
    if not 0 <= args.r_drop < math.inf:
        parser.error("--r-drop must be at least 0")
    rates = args.subword_dropout
    if len(rates) > 2:
        parser.error("--subword-dropout takes one rate, or two: of sources and of targets")
    args.subword_dropout = rates[0] if len(set(rates)) == 1 else rates
    for name, values in (("dropout", [args.dropout or 0]), ("subword-dropout", rates)):
        if not all(0 <= value < 1 for value in values):
            parser.error(f"--{name} must be at least 0 and below 1")
    for name in ("peak", "warmup"):
        if getattr(args, name) is not None and not 0 < getattr(args, name) < math.inf:
            parser.error(f"--{name} must be a number above 0")
    args.own_recipe = {name: getattr(args, name) for name in ADDITIONS if getattr(args, name)}
    if args.position != "sinusoidal":
        args.own_recipe["position"] = args.position
    for name in RECIPE:
        default = SIZES[args.size][name]
        if getattr(args, name) is None:
            setattr(args, name, default)
        elif getattr(args, name) != default:
            args.own_recipe[name] = getattr(args, name)


def run_name(source, target, size):
    """A name for the run of two files: train.en and train.de.gz give train-en-de-SIZE."""
    source, target = (Path(str(path).removesuffix(".gz")) for path in (source, target))
    return f"{source.stem}-{source.suffix[1:]}-{target.suffix[1:]}-{size}"


def default_of(name):
    """What the help says of an option whose default depends on the task."""
    return f"default: {FILES[name]}, {DATES[name]} for the dates"


def make_parser(description):
    """Returns the parser; a default that depends on the task is None here."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    files = parser.add_argument_group("texts (without them: dates, times and numbers from CLDR)")
    for side in ("source", "target"):
        files.add_argument(f"--{side}", metavar="FILE", help=f"training {side}, plain or gzip")
    for part in ("validation", "test"):
        for side in ("source", "target"):
            files.add_argument(f"--{part}-{side}", metavar="FILE", help="held out when not given")
    files.add_argument("--source-locale", default="en", help="of the dates (default: en)")
    files.add_argument("--target-locale", default="fr", help="of the dates (default: fr)")
    model = parser.add_argument_group("model and training")
    model.add_argument("--model", choices=["transformer", "recurrent"], default="transformer")
    model.add_argument("--size", choices=SIZES, help=default_of("size"))
    model.add_argument("--vocab-size", type=int, help=default_of("vocab_size"))
    model.add_argument("--separate-vocabularies", action="store_true")
    model.add_argument("--epochs", type=int, help=default_of("epochs"))
    model.add_argument("--minutes", type=float, default=math.inf, help="stop training after these")
    model.add_argument("--tokens-per-batch", type=int, help=default_of("tokens_per_batch"))
    model.add_argument("--batches-per-epoch", type=int, metavar="N", help="default: all pairs once")
    model.add_argument("--max-length", type=int, default=128, help="longest sentence, in tokens")
    model.add_argument("--label-smoothing", type=float, help=default_of("label_smoothing"))
    model.add_argument("--dropout", type=float, help="default: the size's own, as the next three")
    model.add_argument("--peak", type=float, metavar="RATE", help="the largest learning rate")
    model.add_argument("--warmup", type=int, metavar="N", help="updates up to the peak")
    model.add_argument(
        "--r-drop",
        type=float,
        default=0.0,
        metavar="WEIGHT",
        help="bring the predictions of two draws of the dropout together (default: 0, one draw)",
    )
    model.add_argument(
        "--subword-dropout",
        type=float,
        nargs="+",
        default=[0.0],
        metavar="RATE",
        help="split the training texts anew for each epoch, without this share of the merges; "
        "two rates are of sources and of targets",
    )
    model.add_argument(
        "--both-directions",
        type=int,
        default=0,
        metavar="EPOCHS",
        help="train on the pairs turned round too for the first EPOCHS epochs",
    )
    model.add_argument(
        "--start-from",
        metavar="RUN",
        help="begin with the model and the vocabularies of another run",
    )
    for name, is_pre, help in (
        ("--pre-norm", True, "normalise before each sub-layer"),
        ("--post-norm", False, "normalise after each, as the paper"),
    ):
        model.add_argument(name, dest="pre_norm", action="store_const", const=is_pre, help=help)
    model.add_argument(
        "--position",
        choices=POSITIONS,
        help="how positions are told apart (default: sinusoidal, as the paper)",
    )
    model.add_argument(
        "--remat",
        action="store_true",
        help="keep one tensor a layer and compute the rest again: less memory, longer steps",
    )
    model.add_argument("--lowercase", action="store_true", help="fold the case of all texts")
    model.add_argument(
        "--normalization",
        default="identity",
        metavar="RULE",
        help="what the vocabulary replaces: identity (nothing, the default), nfc, nfkc, nmt_nfkc, "
        "nmt_nfkc_cf, or a file of rules of sentencepiece (.tsv)",
    )
    model.add_argument(
        "--source-normalization", metavar="RULE", help="of the sources, where it is another"
    )
    model.add_argument(
        "--accumulate", type=int, default=1, metavar="N", help="batches of an update (default: 1)"
    )
    model.add_argument(
        "--precision",
        default="float32",
        choices=["float32", "mixed_bfloat16", "mixed_float16"],
        help="default: float32",
    )
    model.add_argument("--seed", type=int, default=1)
    model.add_argument("--tensorboard", action="store_true", help="write OUTPUT/tensorboard too")
    recurrent = parser.add_argument_group("--model recurrent")
    recurrent.add_argument(
        "--similarity",
        choices=SIMILARITY_NAMES,
        help="of the attention; general is bilinear, none is no attention (default: additive)",
    )
    recurrent.add_argument("--cell", choices=["lstm", "gru"], help="default: lstm")
    recurrent.add_argument(
        "--scheduled-sampling",
        type=float,
        metavar="SHARE",
        help="share of the target given as the model would have written it (default: 0)",
    )
    choice = parser.add_argument_group("which model is kept (default: the best validation loss)")
    choice.add_argument(
        "--average", type=int, default=0, metavar="N", help="the mean of the last N epochs"
    )
    choice.add_argument(
        "--bleu-every",
        type=int,
        default=0,
        metavar="N",
        help="the best BLEU on the validation texts, greedy, measured every N epochs and the first",
    )
    search = parser.add_argument_group("search and output")
    search.add_argument("--beam", "--beam-size", dest="beam_size", type=int, default=4)
    search.add_argument("--length-penalty", type=float, default=0.6)
    search.add_argument(
        "--bleu-tokenize",
        default="13a",
        choices=["13a", "intl", "zh", "char"],
        help="sacreBLEU's tokenizer; zh for Chinese, char for Japanese, Korean and Thai",
    )
    search.add_argument(
        "--no-xla-export",
        dest="xla_export",
        action="store_false",
        help="export for TensorFlow Serving without --xla_cpu_compilation_enabled, slower",
    )
    search.add_argument(
        "--split-sentences",
        action=argparse.BooleanOptionalAction,
        help="export a translator that reads each sentence of a text on its own (default: where "
        "hardly any source of the training has several)",
    )
    search.add_argument("--output", metavar="DIR", help="default: runs/NAME")
    return parser
