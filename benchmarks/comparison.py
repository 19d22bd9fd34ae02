"""Compares recurrent models without and with attention, and the Transformer, by one budget.

    python -m benchmarks.comparison [--updates 600] [--seeds 1 2] [--models NAME ...]
    python -m benchmarks.comparison --source train.en --target train.de \\
        --test-source test.en --test-target test.de --vocab-size 8000 --updates 20000

Without files the texts are dates in English and French, and the quality is exact match; with files
it is chrF of each sentence. All models see the same batches. Results stay in --results: stopped, or
with more seeds or models, the same command goes on with what is missing. Where nothing is, it reads
no text and trains nothing; the tables of docs/lab/comparison.md and their picture come from

    python -m benchmarks.comparison --results benchmarks/results/comparison.jsonl

A result is found by every setting of its data, model and training; of a file by its name and that
of its folder. One thread, TensorFlow without XLA; seconds are given beside those of the processor,
which other work disturbs less.
"""

import argparse
import functools
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from benchmarks import experiments
from benchmarks.comparison_report import draw, print_tables
from keras_transformer import GreedySearch, RecurrentSeq2Seq, Transformer
from keras_transformer.recipes.dates import date_pairs, split_pairs
from keras_transformer.recipes.parallel_text import read_pairs, without_empty
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer, translation_dataset

MODELS = {
    "no attention": None,
    "dot": "dot",
    "scaled dot": "scaled_dot",
    "cosine": "cosine",
    "general": "general",
    "additive": "additive",
    "Transformer": "transformer",
}
# About 0.2 million parameters each with 600 pieces.
TRANSFORMER = dict(num_layers=2, d_model=64, num_heads=4, d_ff=128, norm_first=True)
RECURRENT = dict(num_layers=1, d_model=88)
RECIPE = dict(dropout=0.1, peak=0.004, warmup=100, max_length=128, max_shapes=2)
DATES = dict(pairs=30_000, validation=1000, test=2000, seed=1)
DATES_TOKENIZER = dict(lossless=True, split_digits=True)
WARM_BATCHES = 20  # the first ones trace, and are left out of the time
NUM_ALONE = 20  # sentences that are translated one by one
FILES = ("source", "target", "test_source", "test_target")
SETTINGS = ("vocab_size", "tokens_per_batch", "updates", "num_test")


def main():
    """Trains what is missing, then prints the table and draws the picture."""
    args = parse_arguments()
    experiments.one_thread()
    results = experiments.Results(args.results)
    texts = functools.cache(lambda: Texts(args))  # read when something is missing
    for seed in args.seeds:
        for name in args.models:
            key = make_key(args, name, seed)
            if not results.find(key):
                results.add(key, train_and_test(name, seed, args, texts()))
                keras.utils.clear_session()
    rows = {
        name: [results.find(make_key(args, name, seed)) for seed in args.seeds]
        for name in args.models
    }
    print_tables(rows, quality_name(args))
    draw(rows, quality_name(args), args.picture)


def parse_arguments():
    """Returns the arguments, checked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("source", "target", "test-source", "test-target"):
        parser.add_argument(f"--{name}", metavar="FILE", help="dates when not given")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--updates", type=int, default=600, help="batches to train on")
    parser.add_argument("--tokens-per-batch", type=int, default=1024)
    parser.add_argument("--vocab-size", type=int, default=600)
    parser.add_argument("--num-test", type=int, default=1000, help="sentences to test on")
    parser.add_argument("--results", default="runs/comparison.jsonl", metavar="FILE")
    parser.add_argument("--picture", default="docs/pictures/comparison.png", metavar="FILE")
    args = parser.parse_args()
    files = [args.source, args.target, args.test_source, args.test_target]
    if any(files) and not all(files):
        parser.error("give --source, --target, --test-source and --test-target, or none of them")
    if args.updates <= WARM_BATCHES:
        parser.error(f"--updates must be above {WARM_BATCHES}")
    return args


def make_key(args, name, seed):
    """What a result is found by: every setting of the data, the model and its training."""
    settings = {setting: getattr(args, setting) for setting in SETTINGS}
    return {
        "model": name,
        "seed": seed,
        **settings,
        "recipe": {**describe_data(args), **describe_model(name)},
    }


def describe_data(args):
    """The settings of the texts: those of the dates, or the last two parts of each file's path."""
    if args.source is None:
        return {"dates": DATES, "tokenizer": DATES_TOKENIZER}
    return {file: "/".join(Path(getattr(args, file)).parts[-2:]) for file in FILES}


def describe_model(name):
    """The settings of a model and of its training."""
    sizes = TRANSFORMER if name == "Transformer" else {"attention": MODELS[name], **RECURRENT}
    return {**sizes, **RECIPE, **experiments.ADAM}


def quality_name(args):
    """How a translation is judged."""
    return "exact match" if args.source is None else "chrF"


class Texts:
    """The texts, their tokenizer, and how a translation is judged."""

    def __init__(self, args):
        self.args = args
        if args.source is None:
            pairs = date_pairs(DATES["pairs"], seed=DATES["seed"])
            self.train, _, test = split_pairs(
                pairs, DATES["validation"], DATES["test"], seed=DATES["seed"]
            )
            options = DATES_TOKENIZER
        else:
            self.train, _ = without_empty(read_pairs(args.source, args.target))
            test, _ = without_empty(read_pairs(args.test_source, args.test_target))
            options = {}
        self.sources, self.references = zip(*test[: args.num_test], strict=True)
        sides = [text for pair in self.train for text in pair]
        self.tokenizer = SentencePieceTokenizer.train(
            sides, args.vocab_size, shrink_to_fit=True, **options
        )
        self.lengths = self.tokenizer.tokenize(list(self.sources)).row_lengths().numpy()
        self.batches_of_a_pass = len(self.dataset(seed=1))

    def dataset(self, seed, num_batches=None):
        """The batches of the budget, in an order that only the seed decides; None is one pass."""
        return translation_dataset(
            *zip(*self.train, strict=True),
            self.tokenizer,
            tokens_per_batch=self.args.tokens_per_batch,
            max_length=RECIPE["max_length"],
            max_shapes=RECIPE["max_shapes"],
            shuffle=True,
            seed=seed,
            batches_per_epoch=num_batches,
            verbose=False,
        )

    def quality(self, translations):
        """The quality of each translation, from 0 to 100."""
        pairs = zip(translations, self.references, strict=True)
        if quality_name(self.args) == "exact match":
            return [100 * (ours == theirs) for ours, theirs in pairs]
        from sacrebleu.metrics import CHRF

        chrf = CHRF()
        return [round(chrf.sentence_score(ours, [theirs]).score, 2) for ours, theirs in pairs]


def train_and_test(name, seed, args, texts):
    """Trains one model, and returns its quality on each test sentence and its times."""
    keras.utils.set_random_seed(seed)
    model = new_model(name, texts.tokenizer.vocab_size)
    experiments.compiled(model, TRANSFORMER["d_model"], RECIPE["peak"], RECIPE["warmup"])
    batches = BatchClock(args.updates)
    data = texts.dataset(seed, args.updates)
    began = experiments.clock()
    model.fit(data, shuffle=False, verbose=0, callbacks=[batches])
    training = experiments.clock() - began
    search = GreedySearch()
    longest = {"max_source_length": RECIPE["max_length"]}
    translator = Translator(model, texts.tokenizer, search=search, jit_compile=False, **longest)
    qualities = texts.quality(translator(list(texts.sources)))
    a_pass = texts.batches_of_a_pass * batches.of_one
    return {
        "parameters": model.count_params(),
        "mean_quality": round(float(np.mean(qualities)), 2),
        "training_cpu_seconds": round(training[1], 1),
        "epoch_seconds": round(a_pass[0], 1),
        "epoch_cpu_seconds": round(a_pass[1], 1),
        **measure_times(translator, texts),
        "lengths": texts.lengths.tolist(),
        "qualities": qualities,
    }


def new_model(name, vocab_size):
    """A model of `MODELS`, built."""
    dropout = RECIPE["dropout"]
    if name == "Transformer":
        model = Transformer(vocab_size, dropout=dropout, **TRANSFORMER)
    else:
        model = RecurrentSeq2Seq(vocab_size, attention=MODELS[name], dropout=dropout, **RECURRENT)
    model.build()
    return model


def measure_times(translator, texts):
    """Milliseconds a sentence of a compiled search, alone and among all, by both clocks."""
    alone, among = list(texts.sources[:NUM_ALONE]), list(texts.sources)
    translator(alone[:1])
    began = experiments.clock()
    for text in alone:
        translator([text])
    middle = experiments.clock()
    translator(among)
    one, many = middle - began, experiments.clock() - middle
    times = [*(1000 * one / len(alone)), *(1000 * many / len(among))]
    names = ("alone_ms", "alone_cpu_ms", "among_ms", "among_cpu_ms")
    return {name: round(float(time), 2) for name, time in zip(names, times, strict=True)}


class BatchClock(keras.callbacks.Callback):
    """Times a batch of the training, without the first ones."""

    def __init__(self, updates):
        super().__init__()
        self.updates = updates

    def on_train_batch_end(self, batch, logs=None):
        """Reads the clock after the first batches and after the last."""
        if batch + 1 == WARM_BATCHES:
            self.began = experiments.clock()
        if batch + 1 == self.updates:
            self.of_one = (experiments.clock() - self.began) / (self.updates - WARM_BATCHES)


if __name__ == "__main__":
    main()
