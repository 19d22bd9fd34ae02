"""Trains on a GPU or processor with JAX or PyTorch, where TensorFlow is not installed.

    KERAS_BACKEND=jax python examples/train_without_tensorflow.py --format inflection \\
        --train kat.train --validation kat.dev --test kat.gold --output runs/kat
    paste train.en train.de >train.tsv
    KERAS_BACKEND=jax python examples/train_without_tensorflow.py --format text --size tiny \\
        --train train.tsv --test test.tsv --output runs/multi30k

Formats and options are those of transduce.py, and `text`: two columns of text in subwords.
Stopped with Ctrl-C or by a crash, the same command goes on. At the end it prints how to write the
SavedModel of strings where TensorFlow is installed.
"""

import os
import sys
import time

STARTED = time.perf_counter()

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras

from installed import check_installed
from keras_transformer import BeamSearch, GreedySearch
from keras_transformer.batches import PairDataset
from keras_transformer.callbacks import ExactResume
from keras_transformer.recipes.run_directory import (
    RunDirectory,
    digest_of,
    in_utf8,
    run_program,
    say,
)
from plain_transducer import Transducer, how_to_export
from plain_vocabulary import FORMS, Subwords, Symbols
from symbol_pairs import READERS
from transduce_options import SETTINGS, check_arguments, make_parser
from transduce_results import summary_of, write_predictions
from transduce_training import compiled_model, read_corpus, train_model

RULES = (*FORMS, "nmt_nfkc", "nmt_nfkc_cf")
EXTRA_LENGTH = 50  # tokens that an output may have more than the longest text seen
SHORTEST = 16  # a Translator reads at least so many tokens


def main():
    """Runs the program; returns its exit status."""
    args = parse_arguments()
    return run_program(run, args, STARTED)


def parse_arguments():
    """Returns the command line's arguments, checked."""
    parser = make_parser(__doc__, formats=READERS)
    parser.add_argument("--vocab-size", type=int, help="subwords of `text`; 8000 when not given")
    parser.add_argument(
        "--lowercase", action="store_true", help="`text` without capitals, in BLEU too"
    )
    parser.add_argument(
        "--normalization",
        choices=RULES,
        help="what subwords replace in a `text`; nothing (identity) when not given",
    )
    parser.add_argument(
        "--length-penalty", type=float, help="above 0 favours long outputs; 0.6 when not given"
    )
    parser.add_argument(
        "--max-length", type=int, default=256, help="tokens; longer pairs are not trained on"
    )
    parser.add_argument(
        "--steps-per-execution",
        type=int,
        default=1,
        help="updates from one look at the loss to the next, for a GPU with JAX",
    )
    args = check_arguments(parser)
    if args.format == "text" and args.right_to_left:
        parser.error("--right-to-left needs another format than text")
    own = args.vocab_size is not None, args.lowercase, args.normalization is not None
    if args.format != "text" and any(own):
        parser.error("--vocab-size, --lowercase and --normalization need --format text")
    if args.beam == 1 and args.length_penalty is not None:
        parser.error("--length-penalty needs --beam above 1")
    args.normalization = args.normalization or "identity"
    args.vocab_size = 8000 if args.vocab_size is None else args.vocab_size
    args.length_penalty = 0.6 if args.length_penalty is None else args.length_penalty
    for name, least in (("vocab_size", 1), ("steps_per_execution", 1), ("max_length", SHORTEST)):
        if getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")
    if args.steps_per_execution > 1 and keras.backend.backend() == "torch":
        parser.error("--steps-per-execution above 1 needs JAX")
    try:
        search_of(args)
    except ValueError as error:
        parser.error(str(error))
    return args


def search_of(args):
    """The search that the best model is tested with."""
    return BeamSearch(args.beam, args.length_penalty) if args.beam > 1 else GreedySearch()


def run(args):
    """Reads, trains what is left to train, and tests."""
    keras.utils.set_random_seed(args.seed)
    directory = RunDirectory(args.output)
    if keras.backend.backend() == "tensorflow":
        sys.exit("error: with TensorFlow use transduce.py, or set KERAS_BACKEND to jax or torch")
    try:
        check_installed(
            *["sentencepiece", "sacrebleu"] * (args.format == "text"),
            extras=f"{keras.backend.backend()},plots,eval",
            more=" sentencepiece",
        )
        train, validation, test = read_corpus(args)
        settings = {name: getattr(args, name) for name in SETTINGS}
        settings |= {"backend": keras.backend.backend(), "max_length": args.max_length}
        if args.right_to_left:
            settings["right_to_left"] = True
        if args.format == "text":
            settings |= {"vocab_size": args.vocab_size, "lowercase": args.lowercase}
            if args.normalization != "identity":
                settings["normalization"] = args.normalization
        settings["pairs_digest"] = digest_of([*train, *validation])
        directory.open(in_utf8(settings))
        vocabularies = vocabularies_of(directory, train, args)
        train_ids, validation_ids = ids_of(train, vocabularies), ids_of(validation, vocabularies)
        rows = [row for ids in (train_ids, validation_ids) for side in ids for row in side]
        longest = min(args.max_length, 1 + max(map(len, rows)))
        resume = ExactResume(directory.path)
        options = {"tokens_per_batch": args.tokens_per_batch, "max_length": longest}
        datasets = [
            PairDataset(
                *train_ids,
                shuffle=True,
                seed=args.seed,
                first_epoch=resume.epoch,
                max_shapes=3,
                **options,
            ),
            PairDataset(*validation_ids, max_shapes=1, **options),
        ]
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    model = compiled_model(args, vocabularies[0].size, args.steps_per_execution)
    translate = transducer_of(model, vocabularies, GreedySearch(), longest, args)
    say(f"Running on {keras.backend.backend()}")
    train_model(directory, args, model, translate, *datasets, validation, resume)
    finish(directory, args, vocabularies, test, longest)


def vocabularies_of(directory, train, args):
    """Those of sources and targets, learnt from both sides of the training pairs."""
    kind, options = Symbols, {}
    if args.format == "text":
        kind = Subwords
        options = {"normalization": args.normalization, "lowercase": args.lowercase}
    file = directory.path / f"vocabulary{kind.suffix}"
    if not file.exists():
        texts = [text for side in zip(*train, strict=True) for text in side]
        size = [args.vocab_size] if kind is Subwords else []
        kind.train(texts, *size, **options).save(file)
    source = kind.load(file, **options)
    return source, kind.load(file, reverse=True) if args.right_to_left else source


def ids_of(pairs, vocabularies):
    """The ids of sources and of targets."""
    sides = zip(zip(*pairs, strict=True), vocabularies, strict=True)
    return [[vocabulary.encode(text) for text in side] for side, vocabulary in sides]


def transducer_of(model, vocabularies, search, longest, args, progress=False):
    """A `Transducer` whose outputs may be longer than every text seen."""
    length = longest + EXTRA_LENGTH
    return Transducer(model, vocabularies, search, length, args.tokens_per_batch, progress)


def finish(directory, args, vocabularies, test, longest):
    """Tests the best model; writes predictions, summary, and a picture where matplotlib is."""
    search = search_of(args)
    model = directory.load_model()
    sources, references = zip(*test, strict=True)
    say(f"Transducing {len(sources):,} test sources, beam {args.beam} ...")
    outputs = transducer_of(model, vocabularies, search, longest, args, progress=True)(sources)
    write_predictions(directory, sources, references, outputs)
    directory.draw_learning_curve()
    longest_source = max(len(vocabularies[0].encode(text)) for text in sources)
    say(
        how_to_export(
            directory.path,
            vocabularies[0],
            search,
            max_length=longest + EXTRA_LENGTH,
            max_source_length=max(SHORTEST, longest, 1 + longest_source),
            reverse=args.right_to_left,
        )
    )
    summary = summary_of(args.format, outputs, references)
    if args.format == "text":
        summary += f"\n{bleu_of(args, outputs, references)}"
    directory.write("summary.txt", f"{summary}\n")


def bleu_of(args, outputs, references):
    """The lines with chrF and BLEU of the test."""
    from sacrebleu.metrics import BLEU, CHRF

    lines = []
    metrics = {"chrF": CHRF(lowercase=args.lowercase), "BLEU": BLEU(lowercase=args.lowercase)}
    for name, metric in metrics.items():
        score = metric.corpus_score(outputs, [references]).score
        lines.append(f"{name}: {score:.2f} ({metric.get_signature()})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
