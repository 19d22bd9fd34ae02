"""The model and the training of transduce.py and train_without_tensorflow.py."""

import math

import keras

from keras_transformer import (
    MaskedCrossentropy,
    PaddingRatio,
    Perplexity,
    TokenCount,
    Transformer,
    WarmupSchedule,
)
from keras_transformer.callbacks import (
    AverageCheckpoints,
    TrainingLog,
    TranslationQuality,
)
from keras_transformer.recipes.parallel_text import hold_out
from keras_transformer.recipes.run_directory import CheckLoss, KeepHistory, say
from positions import POSITIONS
from symbol_pairs import read_pairs
from transduce_options import METRIC, SIZES


def read_corpus(args):
    """Returns the pairs to train, to validate and to test, and says how many there are."""
    train, test = read_pairs(args.train, args.format), read_pairs(args.test, args.format)
    if args.validation:
        validation = read_pairs(args.validation, args.format)
    else:
        train, validation = hold_out(train, share=0.05, seed=args.seed)
    say(f"{len(train):,} pairs to train, {len(validation):,} to validate, {len(test):,} to test")
    return train, validation, test


def compiled_model(args, vocab_size, steps_per_execution=1):
    """Returns the model of `args.size`."""
    size = SIZES[args.size]
    model = Transformer(
        vocab_size,
        dropout=args.dropout,
        attention_dropout=args.inner_dropout,
        feed_forward_dropout=args.inner_dropout,
        norm_first=args.norm_first,
        r_drop=args.r_drop,
        position=POSITIONS[args.position](),
        **size,
    )
    model.build()
    scale = args.peak * math.sqrt(size["d_model"] * args.warmup)
    model.compile(
        optimizer=keras.optimizers.Adam(
            WarmupSchedule(size["d_model"], args.warmup, scale), beta_2=0.98, global_clipnorm=1.0
        ),
        loss=MaskedCrossentropy(label_smoothing=args.label_smoothing),
        metrics=[Perplexity(), TokenCount(), PaddingRatio()],
        steps_per_execution=steps_per_execution,
        jit_compile=keras.backend.backend() != "torch",
    )
    return model


def train_model(
    directory, args, model, translate, train_data, validation_data, validation, resume, log=()
):
    """Trains up to `args.epochs` epochs or `args.minutes`, and keeps the best model.

    Args:
        directory: a `RunDirectory`.
        args: the command line's.
        model: compiled.
        translate: function from a list of texts to their outputs by `model`.
        train_data: what `fit` takes, from epoch `resume.epoch` on.
        validation_data: the same of the validation pairs.
        validation: the pairs, as texts.
        resume: an `ExactResume`.
        log: further callbacks, of the figures of an epoch.
    """
    history = directory.read_history(resume.epoch)
    minutes = sum(row["seconds"] for row in history) / 60
    is_trained = resume.epoch >= args.epochs or minutes >= args.minutes
    average = None
    if args.average:
        average = AverageCheckpoints(directory.path / "epochs", last=args.average, at_end=False)
    quality = TranslationQuality(
        translate,
        *zip(*validation, strict=True),
        metrics=[METRIC.get(args.format, "exact_match")],
        every=args.validate_every,
        filepath=directory.path / "model.keras",
        average=average,
        lowercase=getattr(args, "lowercase", False),  # of texts alone
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
            *log,
            KeepHistory(directory, history, args.minutes),
            resume,
        ],
    )
