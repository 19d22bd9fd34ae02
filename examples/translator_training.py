"""The training of train_translator.py: its data in stages, the compiled model and the callbacks."""

import math
import sys
from pathlib import Path

import keras
import tensorflow as tf

from keras_transformer import (
    FusedAdam,
    GreedySearch,
    MaskedCrossentropy,
    PaddingRatio,
    Perplexity,
    TokenCount,
    UpdateSchedule,
    WarmupSchedule,
)
from keras_transformer.callbacks import (
    AverageCheckpoints,
    ExactResume,
    MeasuredTensorBoard,
    TrainingLog,
    TranslationQuality,
)
from keras_transformer.recipes.run_directory import CheckLoss, KeepHistory, RunDirectory, say
from keras_transformer.serving import Translator
from keras_transformer.text import translation_dataset
from train_options import SIZES
from translator_models import describe, new_model

NUM_SAMPLES = 3
# What a processor with products in bfloat16 says of itself: Intel and AMD, and Arm.
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


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


def train_model(directory, args, stages, validation_data, validation, *tokenizers):
    """Trains up to `args.epochs` epochs or `args.minutes`, from the last checkpoint if any."""
    epochs_done = directory.epochs_done()
    history = directory.read_history(epochs_done)
    minutes_done = sum(row["seconds"] for row in history) / 60
    model = build_model(args, *tokenizers)
    average = None
    if args.average:
        average = AverageCheckpoints(directory.path / "epochs", last=args.average, at_end=False)
        average.set_model(model)
    sampler = Translator(
        model, *tokenizers, search=GreedySearch(), max_source_length=args.max_length
    )
    quality = measured_by(sampler, directory, args, validation, average)
    is_trained = epochs_done >= args.epochs or minutes_done >= args.minutes
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
    announce(model, args, stages[0][1], validation_data)
    callbacks = [CheckLoss(), TrainingLog(every=200), average, quality]
    if args.tensorboard:
        callbacks.append(MeasuredTensorBoard(str(directory.path / "tensorboard")))
    keeps_best_loss = average is None and quality is None
    samples = validation[:NUM_SAMPLES]
    callbacks.append(KeepEpoch(directory, history, args.minutes, sampler, samples, keeps_best_loss))
    callbacks = [callback for callback in callbacks if callback is not None]
    for last, data in stages:
        if quality:  # the end of a stage is not the training's
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
    if quality:
        quality.finish()
    keep_average(directory, args, model, average)


def measured_by(sampler, directory, args, validation, average):
    """The callback that measures BLEU and keeps the best model by it, if that is asked for."""
    if not args.bleu_every:
        return None
    return TranslationQuality(
        sampler,
        *zip(*validation, strict=True),
        every=args.bleu_every,
        filepath=directory.path / "model.keras",
        average=average,
        lowercase=args.lowercase,
        tokenize=args.bleu_tokenize,
    )


def announce(model, args, *datasets):
    """Says what will be trained."""
    num_shapes = sum(len(data.report.shapes) for data in datasets)
    compiling = f"; the first epoch also compiles {num_shapes} shapes" * model.jit_compile
    size = f"{model.count_params():,} parameters"
    say(f"Training a model of {size} ({describe(args)}){compiling} ...")
    say_which_precision_pays(args)


def say_which_precision_pays(args, cpuinfo="/proc/cpuinfo"):
    """Says where bfloat16 is faster than what was chosen, and where it is slower."""
    if tf.config.list_physical_devices("GPU") or not Path(cpuinfo).exists():
        return
    words = set(Path(cpuinfo).read_text(encoding="utf-8", errors="replace").split())
    has_bfloat16 = not words.isdisjoint(BFLOAT16_FLAGS)
    if args.precision == "mixed_bfloat16" and not has_bfloat16:
        say("  note: this processor has no instructions for bfloat16; float32 is faster here")
    if args.precision == "float32" and has_bfloat16 and is_wide(args):
        say("  note: --precision mixed_bfloat16 is about 1.5 times as fast on this processor")


def keep_average(directory, args, model, average):
    """Saves the mean of the last epochs, if it is the model asked for."""
    if average and not args.bleu_every:
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
    return not is_wide(args) and args.precision != "mixed_bfloat16"


def is_wide(args):
    """Whether most of a step's time goes into large products."""
    return args.model == "transformer" and SIZES[args.size]["d_model"] >= 512


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
