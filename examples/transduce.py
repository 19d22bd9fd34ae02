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
from keras_transformer.callbacks import ExactResume, MeasuredTensorBoard
from keras_transformer.recipes.run_directory import (
    RunDirectory,
    digest_of,
    in_utf8,
    run_program,
    say,
)
from keras_transformer.serving import Translator
from keras_transformer.text import SymbolTokenizer, load_tokenizer, translation_dataset
from transduce_options import SETTINGS, parse_arguments
from transduce_results import summary_of, write_predictions
from transduce_training import compiled_model, read_corpus, train_model

SHORTEST = 16  # a Translator reads at least so many symbols


def main():
    """Runs the program; returns its exit status."""
    args = parse_arguments(__doc__)
    return run_program(run, args, STARTED)


def run(args):
    """Reads, trains what is left to train, tests, and writes the export."""
    keras.utils.set_random_seed(args.seed)
    directory = RunDirectory(args.output)
    try:
        check_installed(*["tensorboard"] * args.tensorboard)
        train, validation, test = read_corpus(args)
        settings = {name: getattr(args, name) for name in SETTINGS}
        if args.right_to_left:  # of a run without it nothing is said
            settings["right_to_left"] = True
        settings["pairs_digest"] = digest_of([*train, *validation])
        directory.open(in_utf8(settings))
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
    model = compiled_model(args, tokenizers[0].vocab_size)
    sources = [source for source, _ in validation]
    translate = translator_of(model, tokenizers, GreedySearch(), sources, longest, args)
    log = []
    if args.tensorboard:
        log = [MeasuredTensorBoard(str(directory.path / "tensorboard"))]
    train_model(directory, args, model, translate, *datasets, validation, resume, log)
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
    title = f"Learnt from pairs of the format {args.format!r} with keras_transformer."
    directory.write_readme(title, f"Transformer, size {args.size}", summary, test[0])
    say(f"Wrote {args.output}: see README.txt there.")


if __name__ == "__main__":
    sys.exit(main())
