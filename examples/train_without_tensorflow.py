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

import csv
import os
import sys
import time

STARTED = time.perf_counter()

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

from installed import check_installed
from keras_transformer import BeamSearch, GreedySearch
from keras_transformer.batches import PairDataset
from keras_transformer.callbacks import (
    AverageCheckpoints,
    ExactResume,
    TrainingLog,
    TranslationQuality,
)
from parallel_text import hold_out
from plain_vocabulary import BOS_ID, EOS_ID, PAD_ID, Subwords, Symbols
from run_directory import CheckLoss, KeepHistory, RunDirectory, say
from symbol_pairs import FORMATS, read_pairs
from transduce_model import compiled_model
from transduce_options import METRIC, SETTINGS, check_arguments, make_parser

EXTRA_LENGTH = 50  # tokens that an output may have more than the longest text seen
EXPORT = """\
To serve it, where TensorFlow is installed:
    import keras
    from keras_transformer import {search_class}
    from keras_transformer.serving import Translator
    from keras_transformer.text import {tokenizer}
    model = keras.saving.load_model("{path}/model.keras")
    with open("{path}/{file}", {mode}) as file:
        source = {tokenizer}({read})
    translator = Translator(
        model, source{target}, search={search}, max_length={length}
    )
    translator.export("{path}/export/1")
"""


def main():
    """Runs the program; returns its exit status."""
    args = parse_arguments()
    try:
        run(args)
    except KeyboardInterrupt:
        print(f"\nInterrupted. Run the same command to go on in {args.output}.", file=sys.stderr)
        return 130
    print(f"Took {(time.perf_counter() - STARTED) / 60:.1f} minutes.")
    print((RunDirectory(args.output).path / "summary.txt").read_text(encoding="utf-8"), end="")
    return 0


def parse_arguments():
    """Returns the command line's arguments, checked."""
    parser = make_parser(__doc__, formats=[*FORMATS, "text"])
    parser.add_argument("--vocab-size", type=int, default=8000, help="subwords of `text`")
    parser.add_argument(
        "--lowercase", action="store_true", help="`text` without capitals, in BLEU too"
    )
    parser.add_argument(
        "--length-penalty", type=float, default=0.6, help="of a beam: above 0 favours long outputs"
    )
    parser.add_argument(
        "--steps-per-execution",
        type=int,
        default=1,
        help="updates from one look at the loss to the next: a GPU waits less with 8",
    )
    args = check_arguments(parser)
    for name in ("vocab_size", "steps_per_execution"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    if args.length_penalty < 0:
        parser.error("--length-penalty must be at least 0")
    if args.format == "text" and args.right_to_left:
        parser.error("--right-to-left needs another format than text")
    return args


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
        train, test = read_pairs(args.train, args.format), read_pairs(args.test, args.format)
        if args.validation:
            validation = read_pairs(args.validation, args.format)
        else:
            train, validation = hold_out(train, share=0.05, seed=args.seed)
        say(
            f"{len(train):,} pairs to train, {len(validation):,} to validate, {len(test):,} to "
            f"test; on {keras.backend.backend()}"
        )
        settings = {name: getattr(args, name) for name in SETTINGS}
        if args.right_to_left:
            settings["right_to_left"] = True
        if args.format == "text":
            settings |= {"vocab_size": args.vocab_size, "lowercase": args.lowercase}
        directory.open(settings)
        vocabularies = vocabularies_of(directory, train, args)
        train_ids, validation_ids = ids_of(train, vocabularies), ids_of(validation, vocabularies)
        longest = 1 + max(map(len, [*train_ids[0], *train_ids[1], *validation_ids[0]]))
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
    train_model(directory, args, vocabularies, *datasets, validation, longest, resume)
    finish(directory, args, vocabularies, test, longest)


def vocabularies_of(directory, train, args):
    """Those of sources and targets, learnt from both sides of the training pairs."""
    kind = Subwords if args.format == "text" else Symbols
    file = directory.path / f"vocabulary{kind.suffix}"
    if not file.exists():
        options = {"vocab_size": args.vocab_size, "lowercase": args.lowercase}
        texts = [text for side in zip(*train, strict=True) for text in side]
        kind.train(texts, **options if kind is Subwords else {}).save(file)
    source = kind.load(file)
    return source, kind.load(file, reverse=True) if args.right_to_left else source


def ids_of(pairs, vocabularies):
    """The ids of sources and of targets."""
    sides = zip(zip(*pairs, strict=True), vocabularies, strict=True)
    return [[vocabulary.encode(text) for text in side] for side, vocabulary in sides]


class Generator(keras.Model):
    """Gives the best output of each source: `predict` compiles the search once for a shape."""

    def __init__(self, model, search, max_length):
        super().__init__()
        self.model, self.search, self.max_length = model, search, max_length

    def call(self, source_ids):
        """Returns ids (batch, max_length)."""
        return self.model.generate(source_ids, self.search, self.max_length).ids[:, 0]


class Transducer:
    """Texts in, texts out, in batches of one shape.

    Args:
        model: a `Transformer`.
        vocabularies: of sources and targets.
        search: a search of the package.
        max_length: the most tokens of an output.
        tokens_per_batch: source tokens at once.
    """

    def __init__(self, model, vocabularies, search, max_length, tokens_per_batch):
        self.generator = Generator(model, search, max_length)
        self.source, self.target = vocabularies
        self.tokens_per_batch = tokens_per_batch

    def __call__(self, texts):
        rows = [[*self.source.encode(text), EOS_ID] for text in texts]
        longest = max(map(len, rows))
        batch_size = min(len(rows), max(1, self.tokens_per_batch // longest))
        num_rows = -(-len(rows) // batch_size) * batch_size  # a last batch is filled with padding
        source_ids = np.full((num_rows, longest), PAD_ID, "int32")
        for place, row in zip(source_ids, rows, strict=False):
            place[: len(row)] = row
        outputs = self.generator.predict(source_ids, batch_size=batch_size, verbose=0)
        return [self.text_of(row.tolist()) for row in outputs[: len(rows)]]

    def text_of(self, ids):
        """The text of an output, without what follows its end."""
        ids = ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids
        return self.target.decode([number for number in ids if number not in (PAD_ID, BOS_ID)])


def train_model(
    directory, args, vocabularies, train_data, validation_data, validation, longest, resume
):
    """Trains up to `args.epochs` epochs or `args.minutes`."""
    history = directory.read_history(resume.epoch)
    minutes = sum(row["seconds"] for row in history) / 60
    is_trained = resume.epoch >= args.epochs or minutes >= args.minutes
    model = compiled_model(args, vocabularies[0].size, args.steps_per_execution)
    average = None
    if args.average:
        average = AverageCheckpoints(directory.path / "epochs", last=args.average, at_end=False)
    quality = TranslationQuality(
        transducer_of(model, vocabularies, GreedySearch(), longest, args),
        *zip(*validation, strict=True),
        metrics=[metric_of(args)],
        every=args.validate_every,
        filepath=directory.path / "model.keras",
        average=average,
        lowercase=args.lowercase,
    )
    # Stopped while the quality of the last epoch was measured, a run measures it now.
    if is_trained and quality.last_measured >= resume.epoch:
        say(f"Already trained: {resume.epoch} epochs, {minutes:.1f} minutes.")
        return
    if resume.epoch:
        say(f"Going on from epoch {resume.epoch}")
    say(f"Training {model.count_params():,} parameters, {len(train_data):,} updates an epoch ...")
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
            KeepHistory(directory, history, args.minutes),
            resume,
        ],
    )


def transducer_of(model, vocabularies, search, longest, args):
    """A `Transducer` whose outputs may be longer than every text seen."""
    length = longest + EXTRA_LENGTH
    return Transducer(model, vocabularies, search, length, args.tokens_per_batch)


def metric_of(args):
    """The name of the metric that chooses the best model."""
    return "bleu" if args.format == "text" else METRIC.get(args.format, "exact_match")


def finish(directory, args, vocabularies, test, longest):
    """Tests the best model; writes predictions, summary, and a picture where matplotlib is."""
    search = BeamSearch(args.beam, args.length_penalty) if args.beam > 1 else GreedySearch()
    model = directory.load_model()
    sources, references = zip(*test, strict=True)
    say(f"Transducing {len(sources):,} test sources, beam {args.beam} ...")
    outputs = transducer_of(model, vocabularies, search, longest, args)(sources)
    scratch = directory.path / ".predictions.tsv"
    with open(scratch, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["source", "reference", "output"])
        writer.writerows(zip(sources, references, outputs, strict=True))
    os.replace(scratch, directory.path / "predictions.tsv")
    directory.draw_learning_curve()
    say(how_to_export(args, longest + EXTRA_LENGTH))
    directory.write("summary.txt", f"{summary_of(args, outputs, references)}\n")


def summary_of(args, outputs, references):
    """The line with the figure of the test."""
    if args.format == "text":
        from sacrebleu.metrics import BLEU

        bleu = BLEU(lowercase=args.lowercase)
        score = bleu.corpus_score(outputs, [references]).score
        return f"BLEU: {score:.2f} ({bleu.get_signature()})."
    right = sum(map(str.__eq__, references, outputs))
    name, share = "Exact match", right / len(references)
    if metric_of(args) == "word_error_rate":
        name, share = "Word error rate", 1 - share
    return f"{name}: {share:.2%} ({right:,} of {len(references):,} test pairs are right)."


def how_to_export(args, length):
    """The lines of Python that write the SavedModel."""
    if args.format == "text":
        names = dict(tokenizer="SentencePieceTokenizer", mode='"rb"', read="file.read()")
    else:
        names = dict(tokenizer="SymbolTokenizer", mode='encoding="utf-8"')
        names["read"] = "file.read().split()"
    target = ", SymbolTokenizer(source.symbols, reverse=True)" if args.right_to_left else ""
    kind = Subwords if args.format == "text" else Symbols
    names |= dict(search_class="GreedySearch", search="GreedySearch()")
    if args.beam > 1:
        search = f"BeamSearch({args.beam}, {args.length_penalty})"
        names |= dict(search_class="BeamSearch", search=search)
    file = f"vocabulary{kind.suffix}"
    return EXPORT.format(
        path=args.output, file=file, target=target, length=length, **names
    ).rstrip()


if __name__ == "__main__":
    sys.exit(main())
