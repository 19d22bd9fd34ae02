"""Learns to turn sequences of symbols into others: inflection, pronunciation, commands.

    python examples/transduce.py --format inflection --train kat.train --validation kat.dev \\
        --test kat.gold --output runs/kat

Formats: `inflection` (lemma, form, tags in columns), `g2p` (word, phones), `scan` (IN: command
OUT: actions) and `pairs` (any two columns, character by character). The mean weights of ten epochs
are kept, of those ten that have the best greedy accuracy on the validation pairs; without such a
file some training pairs are held out.
Stopped with Ctrl-C or by a crash, the same command goes on.
"""

import os
import sys
import time

STARTED = time.perf_counter()

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"  # texts and the export need it

import keras

from installed import check_installed
from keras_transformer import BeamSearch, GreedySearch
from keras_transformer.callbacks import (
    AverageCheckpoints,
    ExactResume,
    MeasuredTensorBoard,
    TrainingLog,
    TranslationQuality,
)
from keras_transformer.serving import Translator
from keras_transformer.text import SymbolTokenizer, load_tokenizer, translation_dataset
from parallel_text import hold_out
from run_directory import CheckLoss, KeepHistory, RunDirectory, say
from symbol_pairs import read_pairs
from transduce_model import compiled_model
from transduce_options import METRIC, SETTINGS, parse_arguments
from transduce_results import summary_of, write_predictions

SHORTEST = 16  # a Translator reads at least so many symbols


def main():
    """Runs the program; returns its exit status."""
    args = parse_arguments(__doc__)
    try:
        run(args)
    except KeyboardInterrupt:
        print(f"\nInterrupted. Run the same command to go on in {args.output}.", file=sys.stderr)
        return 130
    print(f"Took {(time.perf_counter() - STARTED) / 60:.1f} minutes.")
    print((RunDirectory(args.output).path / "summary.txt").read_text(encoding="utf-8"), end="")
    return 0


def run(args):
    """Reads, trains what is left to train, tests, and writes the export."""
    keras.utils.set_random_seed(args.seed)
    directory = RunDirectory(args.output)
    try:
        check_installed(*["tensorboard"] * args.tensorboard)
        train, test = read_pairs(args.train, args.format), read_pairs(args.test, args.format)
        if args.validation:
            validation = read_pairs(args.validation, args.format)
        else:
            train, validation = hold_out(train, share=0.05, seed=args.seed)
        say(
            f"{len(train):,} pairs to train, {len(validation):,} to validate, {len(test):,} to test"
        )
        settings = {name: getattr(args, name) for name in SETTINGS}
        if args.right_to_left:  # of a run without it nothing is said
            settings["right_to_left"] = True
        directory.open(settings)
        tokenizers = tokenizers_of(directory, train, args.right_to_left)
        longest = longest_of(train, validation)
        resume = ExactResume(directory.path)
        datasets = [
            translation_dataset(
                *zip(*pairs, strict=True),
                *tokenizers,
                tokens_per_batch=args.tokens_per_batch,
                max_length=longest,
                **more,
            )
            for pairs, more in (
                (train, dict(shuffle=True, seed=args.seed, first_epoch=resume.epoch, max_shapes=3)),
                (validation, dict(max_shapes=1)),
            )
        ]
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    train_model(directory, args, tokenizers, *datasets, validation, longest, resume)
    finish(directory, args, tokenizers, test, longest)


def tokenizers_of(directory, train, right_to_left):
    """Those of sources and targets, of the symbols of the training pairs, both sides together."""
    file = directory.path / "source.tokenizer"
    if not file.exists():
        SymbolTokenizer.train([text for pair in train for text in pair]).save(file)
    source = target = load_tokenizer(file)
    if right_to_left:
        target = SymbolTokenizer(source.symbols, reverse=True)
        target.save(directory.path / "target.tokenizer")
    return source, target


def longest_of(*parts):
    """The most symbols of a side, its special one included."""
    return 1 + max(len(text.split()) for pairs in parts for pair in pairs for text in pair)


def translator_of(model, tokenizers, search, sources, longest, args):
    """A translator that reads `sources` whole.

    Its outputs may have 50 symbols more than `longest`, the longest side of the pairs seen.
    """
    return Translator(
        model,
        *tokenizers,
        search=search,
        max_length=longest + 50,
        max_source_length=max(SHORTEST, longest, *(1 + len(text.split()) for text in sources)),
        max_batch_tokens=args.tokens_per_batch,
    )


def train_model(
    directory, args, tokenizers, train_data, validation_data, validation, longest, resume
):
    """Trains up to `args.epochs` epochs or `args.minutes`."""
    history = directory.read_history(resume.epoch)
    minutes = sum(row["seconds"] for row in history) / 60
    is_trained = resume.epoch >= args.epochs or minutes >= args.minutes
    model = compiled_model(args, tokenizers[0].vocab_size)
    average = None
    if args.average:
        average = AverageCheckpoints(directory.path / "epochs", last=args.average, at_end=False)
    sources, references = zip(*validation, strict=True)
    quality = TranslationQuality(
        translator_of(model, tokenizers, GreedySearch(), sources, longest, args),
        sources,
        references,
        metrics=[METRIC.get(args.format, "exact_match")],
        every=args.validate_every,
        filepath=directory.path / "model.keras",
        average=average,
    )
    # Stopped while the accuracy of the last epoch was measured, a run measures it now.
    if is_trained and quality.last_measured >= resume.epoch:
        say(f"Already trained: {resume.epoch} epochs, {minutes:.1f} minutes.")
        return
    if resume.epoch:
        say(f"Going on from epoch {resume.epoch}")
    say(f"Training {model.count_params():,} parameters, {len(train_data):,} updates an epoch ...")
    log = []
    if args.tensorboard:
        log = [MeasuredTensorBoard(str(directory.path / "tensorboard"))]
    model.fit(
        train_data,
        validation_data=validation_data,
        initial_epoch=resume.epoch,
        epochs=resume.epoch if is_trained else args.epochs,
        shuffle=False,  # the dataset does it
        verbose=2,
        callbacks=[
            CheckLoss(),
            TrainingLog(every=200),
            *[average] * bool(average),
            quality,
            *log,
            KeepHistory(directory, history, args.minutes),
            resume,
        ],
    )


def finish(directory, args, tokenizers, test, longest):
    """Tests the best model and writes predictions, summary and export."""
    search = BeamSearch(args.beam) if args.beam > 1 else GreedySearch()
    model = directory.load_model()
    sources, references = zip(*test, strict=True)
    translator = translator_of(model, tokenizers, search, sources, longest, args)
    say(f"Transducing {len(sources):,} test sources, beam {args.beam} ...")
    outputs = translator(list(sources), progress=True)
    write_predictions(directory, sources, references, outputs)
    directory.draw_learning_curve()
    summary = summary_of(args.format, outputs, references)
    directory.export(translator, summary)
    directory.write("summary.txt", f"{summary}\n")


if __name__ == "__main__":
    sys.exit(main())
