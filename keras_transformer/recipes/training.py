"""A training run from its texts to its export, in a directory that it can go on in."""

import importlib.util
import json
import math
import sys
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import keras

from keras_transformer.callbacks import (
    AverageCheckpoints,
    ExactResume,
    MeasuredTensorBoard,
    TrainingLog,
    TranslationQuality,
)
from keras_transformer.decoding import GreedySearch
from keras_transformer.distribution import TransformerParallel
from keras_transformer.process_group import (
    alone,
    check_equal,
    first_alone,
    is_first,
    own_process,
    tell_others,
)
from keras_transformer.recipes.build import build_model, say_which_precision_pays
from keras_transformer.recipes.corpus import Corpus, read_corpus, split_sides
from keras_transformer.recipes.parallel_text import Pair
from keras_transformer.recipes.run_directory import (
    CheckLoss,
    KeepHistory,
    RunDirectory,
    say,
)
from keras_transformer.recipes.run_files import (
    CORPORA,
    check_import,
    check_teacher,
    read_imported,
    read_predictions,
)
from keras_transformer.recipes.settings import IMPORTED, Settings
from keras_transformer.recipes.teacher import translate_corpus
from keras_transformer.recipes.testing import Run, finish_run, measure
from keras_transformer.recipes.texts import Texts

NUM_SAMPLES = 3
SAMPLE_WIDTH = 200  # characters
FEW_TOKENS = 1024  # of a device's part of a batch
# What a run must have in common with the one that it starts from.
START: tuple[str, ...] = ("format", "model", "num_layers", "num_decoder_layers", "d_model")
START += ("num_heads", "d_ff", "norm_first", "position", "cell", "similarity", "vocab_size")
START += ("separate_vocabularies", "lowercase", "normalization", "source_normalization")
START += ("right_to_left", "norm_epsilon")


def train(settings: Settings, output: str | PathLike[str]) -> Run:
    """Trains a model of pairs of texts, tests it and exports it.

    The same call goes on from the last finished epoch of a directory where it was stopped; what is
    finished is left out. On JAX and PyTorch there is no export: `keras-transformer export` writes
    one where TensorFlow is installed.

    Args:
        settings: what to train, and on what.
        output: directory of the run; made when it is not there.

    Of several processes, which `join_processes` has joined, all call it. They must see the same
    files. The first one writes the run and tests it; the scores of the others are empty.

    Raises:
        ValueError: when a file is bad, the directory is of other settings, or the loss is not a
            number. When Keras runs on another backend than the settings say, or another process
            trains in the directory.
        ImportError: when a package that is needed later is not installed.

    Example:

    >>> settings = Settings.from_preset("tiny", train=("nowhere.en", "nowhere.de"))
    >>> train(settings, "runs/en-de")
    Traceback (most recent call last):
        ...
    ValueError: nowhere.en: there is no such file. Check the path.
    """
    check_environment(settings)
    policy, distribution = keras.config.dtype_policy(), keras.distribution.distribution()
    keras.utils.set_random_seed(settings.seed)
    try:
        keras.config.set_dtype_policy(settings.precision)
        if settings.data_parallel * settings.model_parallel > 1 or own_process()[1] > 1:
            parts = settings.data_parallel, settings.model_parallel
            keras.distribution.set_distribution(TransformerParallel(*parts))
        return go_through(settings, RunDirectory(output))
    finally:
        keras.config.set_dtype_policy(policy)
        keras.distribution.set_distribution(distribution)


def go_through(settings: Settings, directory: RunDirectory) -> Run:
    """Reads the texts, trains what is left to train, and tests."""
    directory.check(settings)  # before a large corpus is read
    check_import(settings)
    begun = bool(directory.epochs_done())  # then it needs no other run any more
    if settings.start_from and not begun:
        RunDirectory(settings.start_from).check_start(settings, START)
    if settings.teacher and not begun:
        check_teacher(settings)
    imported = {}
    if settings.model == "imported":
        imported = read_imported(directory.path if begun else settings.start_from)
    corpus = read_corpus(settings, directory.path / CORPORA)
    with directory.claimed():
        return open_and_train(settings, directory, corpus, imported)


def open_and_train(
    settings: Settings, directory: RunDirectory, corpus: Corpus, imported: dict[str, Any]
) -> Run:
    """Opens the directory, which no other process has, trains what is left, and tests."""
    directory.open(settings, training_pairs=corpus.num_train, pairs_digest=corpus.digest)
    if imported:
        directory.write(IMPORTED, json.dumps(imported, ensure_ascii=False, indent=2))
    finished = is_first() and directory.is_trained(settings) and directory.is_tested(corpus.test)
    if tell_others(finished):
        say(
            f"{directory.path} is finished: {directory.progress}. "
            "To go on, give more --epochs or --minutes."
        )
        outputs = [row["output"] for row in read_predictions(directory.path)]
        return measure(directory, settings, corpus.test, outputs)
    directory.forget_test()
    if settings.teacher:
        taught = settings.teacher, corpus, directory.path / CORPORA
        # The first process asks the teacher, and the others find what it said.
        corpus = first_alone(lambda: translate_corpus(*taught)) or translate_corpus(*taught)
    # The first process learns the vocabularies, and the others find them.
    given = directory, settings, corpus
    texts = first_alone(lambda: open_texts(*given)) or open_texts(*given)
    facts = corpus.digest, directory.epochs_done(), texts.vocab_sizes
    check_equal("what is trained", (settings, *facts))
    train_model(directory, settings, texts)
    if not is_first():
        return Run(directory, [], "")
    with alone():
        return finish_run(directory, settings, texts)


def check_environment(settings: Settings) -> None:
    """Raises now what would else be found after the training."""
    if keras.backend.backend() != settings.backend:
        raise ValueError(
            f"`backend` must be that of Keras, {keras.backend.backend()}. Set KERAS_BACKEND before "
            f"Keras is imported. Received: backend={settings.backend!r}"
        )
    ours = "keras-transformer-components"
    needed = [  # a module, what brings it, whether the run needs it, and what for
        ("sacrebleu", f"{ours}[eval]", settings.format == "text", "the test"),
        ("sentencepiece", "sentencepiece", settings.has_subwords, "the vocabulary"),
        ("tensorboard", "tensorboard", settings.tensorboard, "`tensorboard`"),
    ]
    tensorflow = f"{ours}[tensorflow]"  # which filters, mixes and tokenizes on any backend
    needed += [("tensorflow_text", tensorflow, True, f"`{name}`") for name in settings.disk_options]
    needed += [("tensorflow_text", tensorflow, len(settings.train) > 2, "several corpora")]
    for name, package, is_needed, what in needed:
        if is_needed and importlib.util.find_spec(name) is None:
            raise ImportError(f'{what} needs {name}. Install it: `pip install "{package}"`')


def open_texts(directory: RunDirectory, settings: Settings, corpus: Corpus) -> Texts:
    """The texts of the run: `GraphTexts` on TensorFlow, else `PlainTexts`."""
    if settings.backend == "tensorflow":
        from keras_transformer.recipes.graph_texts import GraphTexts

        return GraphTexts(directory.path, settings, corpus)
    from keras_transformer.recipes.plain_texts import PlainTexts

    return PlainTexts(directory.path, settings, corpus)


def train_model(directory: RunDirectory, settings: Settings, texts: Texts) -> None:
    """Trains up to the last epoch or minute, from the last checkpoint if there is one."""
    epochs_done = directory.epochs_done()
    history = directory.read_history(epochs_done)
    model = build_run_model(directory, settings, texts)
    average = None
    if settings.average:
        average = AverageCheckpoints(directory.path / "epochs", last=settings.average, at_end=False)
    translate = texts.translator(model, GreedySearch())
    quality = measure_quality(directory, settings, texts.corpus.validation, translate, average)
    is_trained = directory.is_trained(settings)
    # Stopped while the quality of the last epoch was measured, a run measures it now.
    if is_trained and (quality is None or quality.last_measured >= epochs_done):
        say(f"Already trained: {directory.progress}.")
        return
    if epochs_done:
        say(f"Going on from epoch {epochs_done} in {directory.path}")
    elif settings.start_from:
        set_weights_of_start(model, settings.start_from)
    stages = make_stages(settings, texts, epochs_done)
    validation_data = texts.validation_batches()
    announce(model, settings, stages[0][1], validation_data)
    if not epochs_done:
        say_whether_it_warms_up(settings, stages)
    keep = KeepEpoch(
        directory,
        history,
        translate=translate,
        samples=texts.corpus.validation[:NUM_SAMPLES],
        samples_every=max(1, settings.measure_every),
        chooses=quality is None,
        average=average,
    )
    logs = [MeasuredTensorBoard(str(directory.path / "tensorboard"))] * settings.tensorboard
    callbacks = [CheckLoss(), TrainingLog(every=200), average, quality, *logs]
    callbacks += [KeepHistory(directory, history, settings.minutes), keep]
    callbacks = [callback for callback in callbacks if callback is not None]
    for last, data in stages:
        if quality:  # the end of a stage is not the training's
            quality.at_end = last == settings.epochs
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


def build_run_model(directory: RunDirectory, settings: Settings, texts: Texts) -> keras.Model:
    """The model of a run with its first weights: that of the settings, or of an import."""
    imported = read_imported(directory.path)
    return build_model(
        settings,
        imported=imported.get("model"),
        unused_ids=imported.get("unused_ids", ()),
        **texts.special_ids,
        **texts.vocab_sizes,
    )


def set_weights_of_start(model: keras.Model, start_from: str) -> None:
    """Gives a model the weights of the run that it starts from."""
    with alone():
        weights = RunDirectory(start_from).load_model().get_weights()
    model.set_weights(weights)
    say(f"Starting from the model of {start_from}")


def make_stages(settings: Settings, texts: Texts, done: int) -> list[tuple[int, Any]]:
    """The stages still to do, each its last epoch and its batches: both directions come first."""
    stages = []
    if done < settings.both_directions:
        last = min(settings.both_directions, settings.epochs)
        stages.append((last, texts.training_batches(done, turned_too=True)))
    if settings.both_directions < settings.epochs or not stages:
        first = max(settings.both_directions, done)
        stages.append((settings.epochs, texts.training_batches(first)))
    return stages


def measure_quality(
    directory: RunDirectory,
    settings: Settings,
    validation: list[Pair],
    translate: Callable[[list[str]], list[str]],
    average: AverageCheckpoints | None,
) -> TranslationQuality | None:
    """The callback that measures translations and keeps the best model, if that is asked for."""
    if not settings.measure_every:
        return None
    return TranslationQuality(
        translate,
        *split_sides(validation),
        metrics=["bleu", "chrf"] if settings.format == "text" else ["exact_match"],
        every=settings.measure_every,
        filepath=directory.path / "model.keras",
        average=average,
        lowercase=settings.lowercase,
        tokenize=settings.bleu_tokenize,
    )


def announce(model: keras.Model, settings: Settings, *datasets: Any) -> None:
    """Says what will be trained."""
    shapes = sum(len(data.report.shapes) for data in datasets)
    compiling = f"; the first epoch also compiles {shapes} shapes" if model.jit_compile else ""
    say(
        f"Training a model of {model.count_params():,} parameters ({settings.model_name}) on "
        f"{settings.backend}{compiling} ..."
    )
    if settings.label_smoothing:
        say(
            f"  loss and val_loss include label smoothing {settings.label_smoothing:g}; "
            "cross-entropy and perplexity do not"
        )
    say_which_precision_pays(settings)
    say_whether_devices_are_idle(settings)


def say_whether_devices_are_idle(settings: Settings) -> None:
    """Says so when the parts of a batch are small, as of batches made for one device."""
    parts = settings.data_parallel
    tokens = settings.tokens_per_batch // parts
    if parts > 1 and tokens < FEW_TOKENS:
        say(
            f"  Note: each of {parts:,} devices gets {tokens:,} tokens of a batch, which is little "
            f"work. Set --tokens-per-batch {4096 * parts}, or fewer devices."
        )


def say_whether_it_warms_up(settings: Settings, stages: Sequence[tuple[int, Any]]) -> None:
    """Says so when a run ends within its warm-up, as that of a small corpus may."""
    batches = first = 0
    for last, data in stages:
        batches += (last - first) * (settings.batches_per_epoch or data.report.num_batches)
        first = last
    updates = batches // settings.accumulate
    if updates <= settings.warmup_steps:
        say(
            f"  Note: the run has {updates:,} updates, and the warm-up {settings.warmup_steps:,}: "
            f"the learning rate stays low. Set --warmup-steps {max(1, updates // 4)}, or more "
            "--epochs."
        )


class KeepEpoch(keras.callbacks.Callback):
    """Tells how each epoch ended, and shows a few translations.

    It reads the `history` that `KeepHistory` writes before it. With `chooses` it keeps the model:
    the mean of the last epochs where there is an `average`, else that of the lowest validation
    perplexity.
    """

    def __init__(
        self,
        directory: RunDirectory,
        history: list[dict[str, float]],
        *,
        translate: Callable[[list[str]], list[str]],
        samples: list[Pair],
        samples_every: int,
        chooses: bool,
        average: AverageCheckpoints | None,
    ) -> None:
        super().__init__()
        self.directory, self.history = directory, history
        self.translate, self.samples, self.samples_every = translate, samples, samples_every
        self.chooses, self.average = chooses, average

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves the model and shows samples."""
        before = self.history[:-1]
        best = min((row.get("val_perplexity", math.inf) for row in before), default=math.inf)
        perplexity = (logs or {})["val_perplexity"]
        if self.chooses and self.average is not None:
            with self.average.averaged():
                self.directory.save_model(self.model, "model.keras")
        elif self.chooses and (perplexity < best or not before):
            self.directory.save_model(self.model, "model.keras")
        say(
            f"  epoch {epoch + 1}: validation cross-entropy {math.log(perplexity):.3f} a token, "
            f"perplexity {perplexity:.2f}{' (best so far)' if perplexity < best else ''}"
        )
        if not self.samples or (epoch + 1) % self.samples_every or not is_first():
            return
        sources = [source for source, _ in self.samples]
        for (source, reference), output in zip(self.samples, self.translate(sources), strict=True):
            sample = {"source": source, "translated": output, "reference": reference}
            for name, text in sample.items():
                say(f"    {name:<10} {shortened(text)}")


def shortened(text: str) -> str:
    """A text of at most `SAMPLE_WIDTH` characters: a young model may repeat a word to the end."""
    return text if len(text) <= SAMPLE_WIDTH else f"{text[: SAMPLE_WIDTH - 2]} …"
