"""Trains a translator with model.fit, tests it, and writes it as a SavedModel of strings.

Without arguments it learns to write English dates, times and numbers in French, from CLDR, in a
few minutes. With --source and --target it learns from any two line-aligned text files:

    python examples/train_translator.py --source train.en --target train.de --size tiny

With --model recurrent it trains the encoder-decoder of LSTMs or GRUs that came before the
Transformer, about as large, with attention by the --similarity that you name or with none.

Stopped with Ctrl-C or by a crash, the same command goes on from the last finished epoch.
"""

import importlib.util
import math
import os
import sys
import time
from pathlib import Path

STARTED = time.perf_counter()  # importing TensorFlow is part of what a user waits for

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"  # texts and the export need it

import keras
import numpy as np
import tensorflow as tf

from date_pairs import make_pairs, split_pairs
from keras_transformer import (
    BeamSearch,
    FusedAdam,
    GreedySearch,
    MaskedCrossentropy,
    PaddingRatio,
    Perplexity,
    TokenCount,
    UpdateSchedule,
    WarmupSchedule,
    plots,
)
from keras_transformer.callbacks import (
    AverageCheckpoints,
    ExactResume,
    MeasuredTensorBoard,
    TrainingLog,
    TranslationQuality,
)
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer, load_tokenizer, translation_dataset
from parallel_text import hold_out, read_pairs, without_empty
from run_directory import CheckLoss, KeepHistory, RunDirectory, say
from train_options import RECURRENT, SIZES, parse_arguments
from translator_models import describe, new_model, picture_title

NUM_DATE_PAIRS = 30_000
NUM_SAMPLES = 3
# What a run must have in common with the one that it starts from.
START = ("model", "size", "pre_norm", "position", "similarity", "cell")
START += ("vocab_size", "separate_vocabularies", "lowercase")
READABLE_LENGTH = 12  # tokens of the sentence whose attention is drawn


def main():
    """Runs the program; returns its exit status."""
    args = parse_arguments(__doc__)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a sample must not stop a training
    try:
        run(args)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted. What was finished is in {args.output}; run the same command to go on.",
            file=sys.stderr,
        )
        return 130
    print(f"Took {(time.perf_counter() - STARTED) / 60:.1f} minutes.")
    print((RunDirectory(args.output).path / "summary.txt").read_text(encoding="utf-8"), end="")
    return 0


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
        settings = run_settings(args, train)
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
    )
    say(f"Translating {len(test):,} test sentences, beam {args.beam_size} ...")
    sources, references = [source for source, _ in test], [target for _, target in test]
    hypotheses = translator(sources, progress=True)
    directory.write("translations.txt", "".join(f"{flat(text)}\n" for text in hypotheses))
    summary = evaluate(args, hypotheses, references)
    directory.write_readme(describe(args), summary, sources[0])
    directory.export(translator, summary)
    draw_learning(directory)
    if args.similarity != "none":
        both = source_tokenizer, target_tokenizer
        draw_attention(directory, args, model, *both, sources, hypotheses)
    directory.write("summary.txt", f"{summary}\n")
    say(f"Wrote {args.output}: see README.txt there.")


def read_corpus(args):
    """Returns training, validation and test pairs."""
    if args.source is None:
        pairs = make_pairs(NUM_DATE_PAIRS, args.source_locale, args.target_locale, seed=args.seed)
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


def run_settings(args, train):
    """What makes a run the run it is; a later command must agree to go on with it."""
    names = ("source", "target", "validation_source", "validation_target", "size", "vocab_size")
    names += ("tokens_per_batch", "max_length", "label_smoothing", "separate_vocabularies", "seed")
    names += ("lowercase", "accumulate", "precision", "average", "bleu_every")
    settings = {name: getattr(args, name) for name in names}
    if args.batches_per_epoch:
        settings["batches_per_epoch"] = args.batches_per_epoch
    if args.bleu_every and args.bleu_tokenize != "13a":
        settings["bleu_tokenize"] = args.bleu_tokenize
    if args.source is None:
        settings |= {"source_locale": args.source_locale, "target_locale": args.target_locale}
    if args.model == "recurrent":
        settings |= {name: getattr(args, name) for name in ("model", *RECURRENT)}
    return settings | args.own_recipe | {"training_pairs": len(train)}


def tokenizers(directory, args, train):
    """Returns the run's source and target tokenizers, learnt from the training pairs."""
    files = [directory.path / "source.tokenizer", directory.path / "target.tokenizer"]
    texts = [[source for source, _ in train], [target for _, target in train]]
    if not args.separate_vocabularies:
        files, texts = files[:1], [texts[0] + texts[1]]
    learnt = []
    for file, side in zip(files, texts, strict=True):
        if args.start_from and not file.exists():
            load_tokenizer(Path(args.start_from) / file.name).save(file)
        if not file.exists():
            say(f"Learning a vocabulary of {args.vocab_size:,} pieces from {len(side):,} texts ...")
            options = {"lowercase": args.lowercase}
            if args.source is None:
                options = {"lossless": True, "split_digits": True}
            SentencePieceTokenizer.train(side, args.vocab_size, shrink_to_fit=True, **options).save(
                file
            )
        learnt.append(load_tokenizer(file))
        if learnt[-1].vocab_size < args.vocab_size:
            say(
                f"  the texts allow {learnt[-1].vocab_size:,} pieces, fewer than "
                f"--vocab-size {args.vocab_size:,}: going on with these"
            )
    return learnt[0], learnt[-1]


def make_datasets(directory, args, train, validation, source_tokenizer, target_tokenizer):
    """Returns the stages still to do, each its last epoch and its data, and the validation data."""
    # A shape costs a compilation, which a short run does not earn back.
    max_shapes = 2 if args.size == "mini" else 6
    done = directory.epochs_done()

    def dataset(pairs, **options):
        return translation_dataset(
            *zip(*pairs, strict=True),
            source_tokenizer,
            target_tokenizer,
            tokens_per_batch=args.tokens_per_batch,
            max_length=args.max_length,
            **options,
        )

    stages = [(args.epochs, args.both_directions, train)]
    if done < args.both_directions:
        both = train + [(target, source) for source, target in train]
        stages = [(min(args.both_directions, args.epochs), 0, both), *stages]
    return [
        (
            last,
            dataset(
                pairs,
                shuffle=True,
                seed=args.seed,
                first_epoch=max(first, done),
                batches_per_update=args.accumulate,
                subword_dropout=args.subword_dropout,
                batches_per_epoch=args.batches_per_epoch,
                max_shapes=max_shapes,
            ),
        )
        for last, first, pairs in stages
    ], dataset(validation, max_shapes=max_shapes // 2)


def train_model(
    directory, args, stages, validation_data, validation, source_tokenizer, target_tokenizer
):
    """Trains up to `args.epochs` epochs or `args.minutes`, from the last checkpoint if any."""
    epochs_done = directory.epochs_done()
    history = directory.read_history(epochs_done)
    minutes_done = sum(row["seconds"] for row in history) / 60
    model = build_model(args, source_tokenizer, target_tokenizer)
    average = None
    if args.average:
        average = AverageCheckpoints(directory.path / "epochs", last=args.average, at_end=False)
        average.set_model(model)
    is_trained = epochs_done >= args.epochs or minutes_done >= args.minutes
    by_quality = bool(args.bleu_every)
    sampler = Translator(
        model,
        source_tokenizer,
        target_tokenizer,
        search=GreedySearch(),
        max_source_length=args.max_length,
    )
    quality = None
    if by_quality:
        quality = TranslationQuality(
            sampler,
            *zip(*validation, strict=True),
            every=args.bleu_every,
            filepath=directory.path / "model.keras",
            average=average,
            lowercase=args.lowercase,
            tokenize=args.bleu_tokenize,
        )
    # Stopped while the quality of the last epoch was measured, a run measures it now.
    if is_trained and (quality is None or quality.last_measured >= epochs_done):
        say(f"Already trained: {epochs_done} epochs, {minutes_done:.1f} minutes.")
        keep_average(directory, args, model, average)
        return
    if epochs_done:
        say(f"Going on from epoch {epochs_done} in {args.output}")
    elif args.start_from:
        model.set_weights(RunDirectory(args.start_from).load_model().get_weights())
        say(f"Starting from the model of {args.start_from}")
    num_shapes = sum(len(data.report.shapes) for data in (stages[0][1], validation_data))
    compiling = f"; the first epoch also compiles {num_shapes} shapes" * model.jit_compile
    size = f"{model.count_params():,} parameters"
    say(f"Training a model of {size} ({describe(args)}){compiling} ...")
    callbacks = [CheckLoss(), TrainingLog(every=200)] + [average] * bool(args.average)
    callbacks += [quality] * by_quality
    keeps_best_loss = not (args.average or by_quality)
    samples = validation[:NUM_SAMPLES]
    if args.tensorboard:
        callbacks.append(MeasuredTensorBoard(str(directory.path / "tensorboard")))
    callbacks.append(KeepEpoch(directory, history, args.minutes, sampler, samples, keeps_best_loss))
    for last, data in stages:
        if by_quality:  # a stage's own end is none of the training
            quality.at_end = last == args.epochs
        model.fit(
            data,
            validation_data=validation_data,
            initial_epoch=epochs_done,
            epochs=epochs_done if is_trained else last,
            shuffle=False,  # the dataset does it
            verbose=1 if sys.stdout.isatty() else 2,
            callbacks=[*callbacks, ExactResume(directory.path)],
        )
        if is_trained or model.stop_training:
            break
        epochs_done = last
    if by_quality:
        quality.finish()
    keep_average(directory, args, model, average)


def keep_average(directory, args, model, average):
    """Saves the mean of the last epochs, if it is the model asked for."""
    if args.average and not args.bleu_every:
        say(f"Averaging the last {len(average.files())} epochs ...")
        with average.averaged():
            directory.save_model(model, "model.keras")


def build_model(args, source_tokenizer, target_tokenizer):
    """Returns the compiled model of `args.size`."""
    d_model = SIZES[args.size]["d_model"]
    if args.separate_vocabularies:
        vocabularies = {
            "source_vocab_size": source_tokenizer.vocab_size,
            "target_vocab_size": target_tokenizer.vocab_size,
        }
    else:
        vocabularies = {"vocab_size": source_tokenizer.vocab_size}
    model = new_model(
        args,
        **vocabularies,
        pad_id=source_tokenizer.pad_id,
        bos_id=source_tokenizer.bos_id,
        eos_id=source_tokenizer.eos_id,
    )
    # WarmupSchedule peaks at scale / sqrt(d_model * warmup).
    natural_peak = (d_model * args.warmup) ** -0.5
    scale = 1.0 if args.peak is None else args.peak / natural_peak
    schedule = WarmupSchedule(d_model, args.warmup, scale)
    accumulation, reduction = None, "mean"
    if args.accumulate > 1:
        accumulation, reduction = args.accumulate, "sum"
        schedule = UpdateSchedule(schedule, args.accumulate)
    optimizer = FusedAdam(
        schedule,
        beta_1=0.9,
        beta_2=0.98,
        epsilon=1e-9,
        gradient_accumulation_steps=accumulation,
    )
    if args.precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(
        optimizer=optimizer,
        loss=MaskedCrossentropy(label_smoothing=args.label_smoothing, reduction=reduction),
        metrics=[Perplexity(), TokenCount(), PaddingRatio()],
        jit_compile=xla_pays(args),
    )
    return model


def xla_pays(args):
    """Whether a compiled training step is worth its compilation and its memory.

    On a processor the time of wide layers is that of their products, which XLA makes no faster;
    and it gains nothing from bfloat16, as TensorFlow's own products do.
    """
    if tf.config.list_physical_devices("GPU"):
        return True
    wide = args.model == "transformer" and SIZES[args.size]["d_model"] >= 512
    return not wide and args.precision != "mixed_bfloat16"


class KeepEpoch(KeepHistory):
    """Keeps each finished epoch in the run directory and shows a few translations."""

    def __init__(self, directory, history, minutes, sampler, samples, keeps_best_loss):
        super().__init__(directory, history, minutes)
        self.sampler, self.samples = sampler, samples
        self.keeps_best_loss = keeps_best_loss

    def on_epoch_end(self, epoch, logs=None):
        """Saves, shows samples, and stops when the time is up."""
        best = min((row.get("val_perplexity", math.inf) for row in self.history), default=math.inf)
        super().on_epoch_end(epoch, logs)
        perplexity = logs["val_perplexity"]
        if perplexity < best and self.keeps_best_loss:
            self.directory.save_model(self.model, "model.keras")
        say(
            f"  epoch {epoch + 1}: validation loss {math.log(perplexity):.3f} a token, "
            f"perplexity {perplexity:.2f}{' (best so far)' if perplexity < best else ''}"
        )
        sources = [source for source, _ in self.samples]
        for (source, reference), output in zip(self.samples, self.sampler(sources), strict=True):
            say(f"    source     {source}\n    translated {output}\n    reference  {reference}")


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


def draw_learning(directory):
    """Draws the learning curve."""
    plots.learning_curve(directory.path / "history.csv").savefig(
        directory.path / "learning_curve.png", dpi=120
    )


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


def check_installed(*names):
    """Raises `ImportError` now for a module that would be missed after the training."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"{name} is not installed. Install everything that the examples need with "
                'pip install "keras-transformer-components[tensorflow,plots,eval]"'
            )


def flat(text):
    """A translation on one line."""
    return " ".join(text.split("\n"))


if __name__ == "__main__":
    sys.exit(main())
