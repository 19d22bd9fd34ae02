"""Trains a translator with model.fit, tests it, and writes it as a SavedModel of strings.

Without arguments it learns to write English dates, times and numbers in French, from CLDR, in a
few minutes. With --source and --target it learns from any two line-aligned text files:

    python examples/train_translator.py --source train.en --target train.de --size tiny

With --model recurrent it trains the encoder-decoder of LSTMs or GRUs that came before the
Transformer, about as large, with attention by the --similarity that you name or with none.

Stopped with Ctrl-C or by a crash, the same command goes on from the last finished epoch.
"""

import collections
import os
import sys
import time
import unicodedata
from pathlib import Path

STARTED = time.perf_counter()  # importing TensorFlow is part of what a user waits for

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"  # texts and the export need it

import keras
import numpy as np

from installed import check_installed
from keras_transformer import BeamSearch, plots
from keras_transformer.recipes.dates import date_pairs, split_pairs
from keras_transformer.recipes.parallel_text import hold_out, read_pairs, without_empty
from keras_transformer.recipes.run_directory import (
    RunDirectory,
    digest_of,
    in_utf8,
    run_program,
    say,
)
from keras_transformer.serving import Translator
from keras_transformer.serving.sentences import find_sentences
from keras_transformer.text import SentencePieceTokenizer, load_tokenizer
from train_options import RECURRENT, parse_arguments
from translator_models import describe, picture_title
from translator_training import make_datasets, train_model

NUM_DATE_PAIRS = 30_000
# What a run must have in common with the one that it starts from.
START = ("model", "size", "pre_norm", "position", "similarity", "cell")
START += ("vocab_size", "separate_vocabularies", "lowercase", "normalization")
START += ("source_normalization",)
FEW_TEXTS = 0.1  # of several sentences, with which a model is one of single sentences
READABLE_LENGTH = 12  # tokens of the sentence whose attention is drawn


def main():
    """Runs the program; returns its exit status."""
    args = parse_arguments(__doc__)
    return run_program(run, args, STARTED)


def run(args):
    """Goes through the stages, leaving out those that an earlier run has finished."""
    keras.utils.set_random_seed(args.seed)
    keras.config.set_dtype_policy(args.precision)
    directory = RunDirectory(args.output)
    try:
        check_installed(
            "matplotlib",
            *["sacrebleu"] * bool(args.source or args.bleu_every),
            *["tensorboard"] * args.tensorboard,
        )
        search = BeamSearch(args.beam_size, args.length_penalty)
        say("Reading the texts ...")
        train, validation, test = read_corpus(args)
        counts = f"{len(train):,} pairs to train, {len(validation):,} to validate"
        say(f"  {counts}, {len(test):,} to test")
        settings = run_settings(args, train, validation)
        if args.start_from and not directory.epochs_done():  # then it needs the other no more
            RunDirectory(args.start_from).check_start(settings, START)
        directory.open(settings)
        source_tokenizer, target_tokenizer = tokenizers(directory, args, train)
        datasets = make_datasets(
            directory, args, train, validation, source_tokenizer, target_tokenizer
        )
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    train_model(directory, args, *datasets, validation, source_tokenizer, target_tokenizer)

    model = directory.load_model()
    translator = Translator(
        model,
        source_tokenizer,
        target_tokenizer,
        search=search,
        max_source_length=args.max_length,
        jit_compile=args.xla_export,
        split_sentences=reads_single_sentences(args, train),
    )
    say(f"Translating {len(test):,} test sentences, beam {args.beam_size} ...")
    sources, references = [source for source, _ in test], [target for _, target in test]
    hypotheses = translator(sources, progress=True)
    directory.write("translations.txt", "".join(f"{flat(text)}\n" for text in hypotheses))
    summary = evaluate(args, hypotheses, references)
    directory.export(translator, summary)
    directory.draw_learning_curve()
    if args.similarity != "none":
        both = source_tokenizer, target_tokenizer
        draw_attention(directory, args, model, *both, sources, hypotheses)
    directory.write("summary.txt", f"{summary}\n")
    title = "A translator trained with keras_transformer."
    directory.write_readme(title, describe(args), summary, test[0])
    say(f"Wrote {args.output}: see README.txt there.")


def reads_single_sentences(args, train):
    """Whether the export divides texts into sentences: as asked, or as the training texts are."""
    if args.split_sentences is not None or args.source is None:
        return bool(args.split_sentences)
    texts = [source for source, _ in train]
    count = collections.Counter(find_sentences(texts).texts.numpy().tolist())
    share = sum(number > 1 for number in count.values()) / len(texts)
    split = share < FEW_TEXTS
    say(
        f"{share:.1%} of the sources have several sentences: the export reads "
        f"{'each sentence on its own' if split else 'texts whole'}"
    )
    return split


def read_corpus(args):
    """Returns training, validation and test pairs."""
    if args.source is None:
        pairs = date_pairs(NUM_DATE_PAIRS, args.source_locale, args.target_locale, seed=args.seed)
        return split_pairs(pairs, num_validation=1000, num_test=2000, seed=args.seed)
    train, num_empty = without_empty(read_pairs(args.source, args.target))
    if num_empty:
        say(f"  {num_empty:,} training pairs have an empty line and are left out")
    if not train:
        raise ValueError(f"{args.source}: no pair has text on both sides. Check both files.")
    if args.test_source:
        test = read_pairs(args.test_source, args.test_target)
    else:
        train, test = hold_out(train, seed=args.seed)
        say("  no test files: held out some training pairs")
    if args.validation_source:
        validation = read_pairs(args.validation_source, args.validation_target)
        validation, num_empty = without_empty(validation)
        if num_empty:
            say(f"  {num_empty:,} validation pairs have an empty line and are left out")
        if not validation:
            raise ValueError(
                f"{args.validation_source}: no pair has text on both sides. Check both files."
            )
    else:
        train, validation = hold_out(train, seed=args.seed + 1)
        say("  no validation files: held out some training pairs")
    return train, validation, test


def run_settings(args, train, validation):
    """What makes a run the run it is; a later command must agree to go on with it."""
    names = ("source", "target", "validation_source", "validation_target", "size", "vocab_size")
    names += ("tokens_per_batch", "max_length", "label_smoothing", "separate_vocabularies", "seed")
    names += ("lowercase", "accumulate", "precision", "average", "bleu_every")
    settings = {name: getattr(args, name) for name in names}
    if args.batches_per_epoch:
        settings["batches_per_epoch"] = args.batches_per_epoch
    if args.bleu_every and args.bleu_tokenize != "13a":
        settings["bleu_tokenize"] = args.bleu_tokenize
    for name in ("normalization", "source_normalization"):
        if getattr(args, name) != "identity":
            settings[name] = getattr(args, name)
    if args.source is None:
        settings |= {"source_locale": args.source_locale, "target_locale": args.target_locale}
    if args.model == "recurrent":
        settings |= {name: getattr(args, name) for name in ("model", *RECURRENT)}
    settings |= {"training_pairs": len(train), "pairs_digest": digest_of([*train, *validation])}
    return in_utf8(settings | args.own_recipe)


def tokenizers(directory, args, train):
    """Returns the run's source and target tokenizers, learnt from the training pairs."""
    files = [directory.path / "source.tokenizer", directory.path / "target.tokenizer"]
    rules = [args.source_normalization, args.normalization]
    texts = [[source for source, _ in train], [target for _, target in train]]
    if not args.separate_vocabularies:
        if rules[0] == rules[1]:
            files = files[:1]
        elif rules[0] != "identity":
            texts[0] = [unicodedata.normalize(rules[0].upper(), text) for text in texts[0]]
        texts = [texts[0] + texts[1]]
    if args.start_from:
        for file in files:
            if not file.exists():
                load_tokenizer(Path(args.start_from) / file.name).save(file)
    for file, side, rule in zip(files[-len(texts) :], texts, rules[-len(texts) :], strict=True):
        if not file.exists():
            learn(file, side, rule, args)
    if not files[0].exists():  # the pieces of the targets, and more that is replaced
        pieces = load_tokenizer(files[1]).model
        SentencePieceTokenizer(pieces, normalization=rules[0], lowercase=args.lowercase).save(
            files[0]
        )
    learnt = [load_tokenizer(file) for file in files]
    for tokenizer in learnt[: len(texts)]:
        if tokenizer.vocab_size < args.vocab_size:
            say(
                f"  the texts allow {tokenizer.vocab_size:,} pieces, fewer than "
                f"--vocab-size {args.vocab_size:,}: going on with these"
            )
    return learnt[0], learnt[-1]


def learn(file, texts, rule, args):
    """Learns a vocabulary and saves it."""
    say(f"Learning a vocabulary of {args.vocab_size:,} pieces from {len(texts):,} texts ...")
    options = {"lowercase": args.lowercase, "normalization": rule}
    if args.source is None:
        options = {"lossless": True, "split_digits": True}
    SentencePieceTokenizer.train(texts, args.vocab_size, shrink_to_fit=True, **options).save(file)


def evaluate(args, hypotheses, references):
    """Returns the lines that say how good the translations are; the main figure comes last."""
    fold = str.lower if args.lowercase else str  # such a model writes no capitals
    pairs = zip(hypotheses, references, strict=True)
    matches = np.mean([fold(ours) == fold(theirs) for ours, theirs in pairs])
    exact = f"Exact match: {matches:.2%} of {len(references):,} held-out pairs."
    if args.source is None:
        return exact
    from sacrebleu.metrics import BLEU, CHRF

    lines = [exact]
    tokenize = args.bleu_tokenize
    metrics = {
        "chrF": CHRF(lowercase=args.lowercase),
        "BLEU": BLEU(tokenize=tokenize),
        "lower-cased BLEU": BLEU(tokenize=tokenize, lowercase=True),
    }
    for name, metric in metrics.items():
        score = metric.corpus_score(hypotheses, [references])
        lines.append(f"{name}: {score.score:.2f}  ({metric.get_signature()})")
    return "\n".join(lines)


def draw_attention(directory, args, model, source_tokenizer, target_tokenizer, sources, hypotheses):
    """Draws the attention for one sentence of readable length."""
    lengths = source_tokenizer.tokenize(sources).row_lengths().numpy()
    chosen = int(np.argmin(np.abs(lengths - READABLE_LENGTH)))
    source_ids = source_tokenizer.tokenize([sources[chosen]])[0].numpy()
    source_ids = [*source_ids, source_tokenizer.eos_id]
    output_ids = [*target_tokenizer.tokenize([hypotheses[chosen]])[0].numpy()]
    target_ids = [target_tokenizer.bos_id, *output_ids]
    weights = model.attention_weights(np.array([source_ids]), np.array([target_ids]))[-1]
    # The row of an input token is where the model looks while it writes the next token.
    figure = plots.attention_heads(
        keras.ops.convert_to_numpy(weights)[0],
        target_tokenizer.pieces([*output_ids, target_tokenizer.eos_id]),
        source_tokenizer.pieces(source_ids),
        title=picture_title(args),
    )
    figure.savefig(directory.path / "attention.png", dpi=120)


def flat(text):
    """A translation on one line."""
    return " ".join(text.split("\n"))


if __name__ == "__main__":
    sys.exit(main())
