"""Quality of translations during `fit`, and the best model by it."""

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_transformer import arguments
from keras_transformer.atomic_files import new_file
from keras_transformer.callbacks.average_checkpoints import AverageCheckpoints
from keras_transformer.callbacks.text_errors import TEXT_METRICS, count_errors, percentage
from keras_transformer.process_group import is_first, tell_others, whole_copy

METRICS = ("bleu", "chrf", *TEXT_METRICS)


class TranslationQuality(keras.callbacks.Callback):
    """Translates validation texts every few epochs, measures, and keeps the best model.

    | metric | |
    |---|---|
    | `"bleu"`, `"chrf"` | sacreBLEU's, printed with their signatures |
    | `"exact_match"` | percentage of translations equal to their references |
    | `"word_error_rate"` | edits between words, in percent of the references' words |
    | `"character_error_rate"` | the same, counted in characters |

    An edit replaces, inserts or removes one.

    The figures go into the logs of every epoch as `val_bleu` and so on, for the callbacks after
    this one. An epoch that is not measured repeats the figures of the last measurement. So that
    there always are some, the first epoch is measured too. With `every` above 1, `val_bleu_epoch`
    and so on tell the epoch of that measurement, counted from 1; `MeasuredTensorBoard` and
    `keras_transformer.plots` draw the measured epochs alone.

    Keras's callbacks need a number in each epoch. `EarlyStopping`, `ModelCheckpoint` and
    `ReduceLROnPlateau` take a NaN as their best, and then nothing is better. Without the name in
    the logs, `ModelCheckpoint` saves every epoch, and `CSVLogger` has no column. The price: one
    more measurement, and a repeated figure counts as no improvement. `patience` counts epochs:
    `n * every` waits for `n` measurements, and less than `every` waits for none.

    A resumed training repeats the figures in `FILE.json`; without that file its first epoch is
    measured. Keras's own callbacks remember nothing: their first best is what that epoch's logs
    say.

    Of several processes give it to all: the first one translates and writes, and tells the others
    the figures. There `translate` must use `process_group.whole_copy(model)`.

    Args:
        translate: function from a list of str to as many str, a `Translator` of the model.
        sources: texts to translate.
        references: the right translations.
        metrics: names from the table; the first chooses the best model.
        every: measures the epochs whose number it divides, the first of a training run and the
            last.
        filepath: `.keras` file for the best model; None keeps none. Beside it, in
            `FILE.json`, its epoch and figures and those measured last, with which a resumed
            training goes on. A training run from epoch 0 is a new one, whose first model takes the
            place of an earlier one's.
        average: an `AverageCheckpoints` that comes before this callback: the mean of its epochs is
            measured and kept. Without it the weights are measured as they are. Keras's
            `ModelCheckpoint` and `EarlyStopping` keep the epoch's own weights, not the mean.
        lowercase: whether case counts for nothing: texts are compared after `str.lower`, as a
            tokenizer trained with `lowercase=True` reads them.
        tokenize: sacreBLEU's tokenizer for BLEU.
        verbose: whether to print a line for each measurement.
        at_end: whether the last epoch of `fit` is measured where `every` does not. With False,
            for a training run of several calls of `fit`, `finish` does so after the last of them.

    Raises:
        ValueError: for a bad argument, and in `fit` when `average` does not come before it.
        ImportError: when sacrebleu is asked for and not installed.

    Reference: Post 2018, "A Call for Clarity in Reporting BLEU Scores".

    Example:

    >>> def translate(texts):
    ...     return [text.upper() for text in texts]
    >>> quality = TranslationQuality(translate, ["a", "b"], ["A", "C"], metrics=["exact_match"])
    >>> quality.measure()
    {'exact_match': 50.0}
    """

    def __init__(
        self,
        translate: Callable[[list[str]], Iterable[str]],
        sources: Iterable[str],
        references: Iterable[str],
        metrics: Iterable[str] = ("bleu", "chrf"),
        every: int = 1,
        *,
        filepath: str | PathLike[str] | None = None,
        average: AverageCheckpoints | None = None,
        lowercase: bool = False,
        tokenize: str = "13a",
        verbose: bool = True,
        at_end: bool = True,
    ) -> None:
        super().__init__()
        self.translate = translate
        self.sources, self.references = list(sources), list(references)
        if len(self.sources) != len(self.references) or not self.sources:
            raise ValueError(
                "`sources` and `references` must be equally many, at least one. Received: "
                f"{len(self.sources)} sources and {len(self.references)} references"
            )
        if isinstance(metrics, str):
            raise ValueError(f"`metrics` must be a list of names. Received: metrics={metrics!r}")
        self.metrics = [arguments.one_of("metrics", name, METRICS) for name in metrics]
        if not self.metrics:
            raise ValueError("`metrics` must name at least one metric. Received: none")
        self.every = arguments.positive_integer("every", every)
        self.filepath = None if filepath is None else Path(filepath)
        if self.filepath is not None and self.filepath.suffix != ".keras":
            raise ValueError(f"`filepath` must end in .keras. Received: filepath={filepath!r}")
        self.average = average
        self.verbose = arguments.boolean("verbose", verbose)
        self.at_end = arguments.boolean("at_end", at_end)
        self.scorers = {name: make_scorer(name, lowercase, tokenize) for name in self.metrics}
        self.best, self.last_measured, self.figures = read_best(self.filepath, self.metrics)
        self._announced = self._is_new = False
        self._epoch: int | None = None

    def measure(self) -> dict[str, float]:
        """Translates the texts; returns the figures as a dict, in percent."""
        figures = np.zeros(len(self.scorers))
        if is_first():
            translations = list(self.translate(self.sources))
            scores = (
                scorer.corpus_score(translations, [self.references])
                for scorer in self.scorers.values()
            )
            figures[:] = [score.score for score in scores]
        return dict(zip(self.scorers, tell_others(figures).tolist(), strict=True))

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forgets the best of an earlier training when a new one begins."""
        if epoch == 0:
            self.best, self.last_measured, self.figures = None, 0, None
            self._is_new = True

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Lets the file forget too, now that no callback has refused the new training."""
        if self._is_new and self.filepath is not None and is_first():
            sidecar(self.filepath).unlink(missing_ok=True)
        self._is_new = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Measures when it is time, and keeps the model when it is the best so far."""
        self._epoch = number = epoch + 1
        is_last = number == self._last_epoch() or self.model.stop_training
        if self._is_due(number) or (self.at_end and is_last):
            self._check_order()
            self._measure_and_keep()
        if logs is None:
            return
        for name, figure in (self.figures or {}).items():
            logs[f"val_{name}"] = figure
            if self.every > 1:
                logs[f"val_{name}_epoch"] = self.last_measured

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Ends as `finish` does, unless a later `fit` goes on."""
        if self.at_end:
            self.finish()

    def finish(self) -> None:
        """Measures the last epoch if it was not yet, so that there is a best model of all.

        It does so too where an earlier part of the run was killed before it had measured. It does
        so where a later callback stopped the training, too late for the logs of the epoch.
        """
        if self._epoch is None:  # no epoch was left to train
            self._epoch = self._last_epoch()
        if self.filepath is not None and (self._epoch or 1) > self.last_measured:
            self._measure_and_keep()

    def _is_due(self, number: int) -> bool:
        """Whether `every` says so, or there are no figures of an epoch before to repeat."""
        has_earlier = self.figures is not None and self.last_measured < number
        return number % self.every == 0 or not has_earlier

    def _check_order(self) -> None:
        if is_first() and self.average is not None and self.average.newest() != self._epoch:
            raise ValueError(
                "`average` must be one of the callbacks of `fit` and come before "
                f"TranslationQuality, so that it has the weights of epoch {self._epoch}. Received: "
                f"those up to epoch {self.average.newest()} in {self.average.directory}"
            )

    def _measure_and_keep(self) -> None:
        averaged = contextlib.nullcontext() if self.average is None else self.average.averaged()
        with averaged:
            self.figures = figures = self.measure()
            is_best = self.best is None or self._key(figures) > self._key(self.best)
            if is_best:
                self.best = {"epoch": self._epoch, **figures}
            self.last_measured = self._epoch or 0
            self._keep(is_best)
        if self.verbose and is_first():
            self._print(figures, is_best)

    def _last_epoch(self) -> int | None:
        """The number of the last epoch of `fit`; None outside it."""
        return (self.params or {}).get("epochs")

    def _key(self, figures: dict[str, float]) -> float:
        """The larger the better."""
        value = figures[self.metrics[0]]
        return -value if self.metrics[0].endswith("error_rate") else value

    def _keep(self, is_best: bool) -> None:
        if self.filepath is None or not is_first():
            return
        self.filepath.parent.mkdir(parents=True, exist_ok=True)
        if is_best:
            with new_file(self.filepath) as scratch:
                whole_copy(self.model).save(scratch)
        facts = {
            **(self.best or {}),
            "last_measured": self.last_measured,
            "last_figures": self.figures,
        }
        with new_file(sidecar(self.filepath)) as scratch:
            scratch.write_text(json.dumps(facts), encoding="utf-8")

    def _print(self, figures: dict[str, float], is_best: bool) -> None:
        if not self._announced:
            for name, scorer in self.scorers.items():
                print(f"  {name}: {scorer.get_signature()}, {len(self.sources):,} texts")
            self._announced = True
        listed = ", ".join(f"{name} {figure:.2f}" for name, figure in figures.items())
        epoch = "" if self._epoch is None else f"epoch {self._epoch}: "
        print(f"  {epoch}{listed}{' (best so far)' if is_best else ''}", flush=True)


class TextMetric:
    """A metric of `TEXT_METRICS` in the form of one of sacreBLEU."""

    def __init__(self, name: str, lowercase: bool = False) -> None:
        self.name = name
        self.fold: Callable[[str], str] = str.lower if lowercase else str

    def corpus_score(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> Self:
        """Keeps the percentage in `score` and returns itself."""
        ours, theirs = ([self.fold(text) for text in side] for side in (texts, references[0]))
        self.score = percentage(count_errors(self.name, ours, theirs).sum(0))
        return self

    def get_signature(self) -> str:
        """What is counted."""
        counted = "equal texts" if self.name == "exact_match" else f"edits between {self.unit}s"
        return f"{counted}, in percent"

    @property
    def unit(self) -> str:
        """What an edit changes: a word or a character."""
        return self.name.split("_")[0]


def make_scorer(name: str, lowercase: bool, tokenize: str, **options: Any) -> Any:
    """Returns the scorer of a metric; `options` are more arguments of sacreBLEU's.

    Raises:
        ImportError: when it is sacreBLEU's and sacrebleu is not installed.
    """
    if name in TEXT_METRICS:
        return TextMetric(name, lowercase)
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise ImportError(
            "BLEU and chrF need sacrebleu. Install it with "
            '`pip install "keras-transformer-components[eval]"`'
        ) from error
    if name == "bleu":
        return BLEU(lowercase=lowercase, tokenize=tokenize, **options)
    return CHRF(lowercase=lowercase, **options)


def sidecar(filepath: Path) -> Path:
    """The file beside the model with its epoch and figures."""
    return filepath.with_name(f"{filepath.name}.json")


def read_best(
    filepath: Path | None, metrics: Sequence[str]
) -> tuple[dict[str, Any] | None, int, dict[str, float] | None]:
    """What an earlier part of the training left: the best, the epoch measured last, its figures.

    None stands for a best, or figures, that are not there.
    """
    if filepath is None or not filepath.exists() or not sidecar(filepath).exists():
        return None, 0, None
    try:
        best = json.loads(sidecar(filepath).read_text(encoding="utf-8"))
        float(best[metrics[0]])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{sidecar(filepath)} must have the {metrics[0]} of the model beside it. Remove both, "
            "or choose by the metric that it has."
        ) from error
    # A file of before this was kept: nothing is known but that its model's epoch was measured.
    last_measured = best.pop("last_measured", best.get("epoch") or 0)
    figures = best.pop("last_figures", {})
    return best, last_measured, figures if {*figures} == {*metrics} else None
