"""Distils a run: a smaller model learns its translations, and both are compared."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.recipes.corpus import split_sides
from keras_transformer.recipes.evaluation import Score
from keras_transformer.recipes.run_directory import say
from keras_transformer.recipes.run_files import (
    newest_export,
    read_predictions,
    read_run,
    student_settings,
)
from keras_transformer.recipes.runs import load_tokenizers, open_signatures
from keras_transformer.recipes.testing import NAMES, Run, measure_test
from keras_transformer.recipes.training import train

NUM_TIMED = {1: 32, 8: 64}  # texts of the test whose translation is timed, by size of batch
ROUNDS = 5
TEXTS_PER_CALL = 256

Translate = Callable[[Sequence[str]], list[str]]


class Distilled(NamedTuple):
    """A student beside its teacher.

    Attributes:
        run: what `train` made of the student.
        teacher_scores: the scores of the teacher on the same test; the main figure comes last.
        speeds: tokens a second of "teacher" and "student" for each size of batch.
    """

    run: Run
    teacher_scores: list[Score]
    speeds: dict[int, dict[str, float]]

    @property
    def summary(self) -> list[list[str]]:
        """The figures that matter, rows of a table."""
        main = self.teacher_scores[-1], self.run.scores[-1]
        name = NAMES.get(main[0].name, "Exact match")
        rows = [["", name, *(f"tokens a second at batch {size}" for size in self.speeds)]]
        for who, score in zip(("teacher", "student"), main, strict=True):
            speeds = (f"{by_name[who]:,.0f}" for by_name in self.speeds.values())
            rows.append([who, f"{score.value:.2f}", *speeds])
        gains = (by_name["student"] / by_name["teacher"] for by_name in self.speeds.values())
        change = main[1].value - main[0].value
        return [*rows, ["", f"{change:+.2f}", *(f"{gain:.2f} times" for gain in gains)]]


def distill(
    teacher: str | PathLike[str], output: str | PathLike[str], **settings: Any
) -> Distilled:
    """Trains a model on translations by another one, and compares both.

    The teacher translates its training sources with its newest export. The student learns these
    translations in place of the targets, with the teacher's vocabularies. It has a deep encoder
    and a shallow decoder, because a search runs the decoder once a token. Validation and test are
    the teacher's. The same call goes on after a stop.

    Args:
        teacher: the directory of a run.
        output: the directory of the student's run; made when it is not there.
        **settings: fields of `Settings` in place of those of `student_settings`.

    Raises:
        ValueError: as `train` and `student_settings` do.

    Reference: Kim and Rush 2016, "Sequence-Level Knowledge Distillation"; Kasai et al. 2021, "Deep
    Encoder, Shallow Decoder".

    Example:

    >>> distill("nowhere", "runs/fast")
    Traceback (most recent call last):
        ...
    ValueError: nowhere: there is no such directory. Check the path
    """
    return compare(teacher, train(student_settings(teacher, **settings), output))


def compare(teacher: str | PathLike[str], run: Run) -> Distilled:
    """Measures a student and its teacher on the student's test, by their newest exports."""
    path = run.directory.path
    pairs = [(row["source"], row["reference"]) for row in read_predictions(path)]
    sources, references = split_sides(pairs)
    translators = {
        name: open_translator(newest_export(of))
        for name, of in (("teacher", Path(teacher)), ("student", path))
    }
    say(f"The teacher translates {len(sources):,} test sentences, then both are timed ...")
    outputs = translators["teacher"](sources)
    tokenizer = load_tokenizers(path)[1]

    def count(texts: Sequence[str]) -> int:
        """The tokens of texts, their ends included."""
        return len(texts) + len(tokenizer.tokenize(list(texts)).flat_values)

    speeds = {
        size: measure_speed(translators, count, sources[:number], size)
        for size, number in NUM_TIMED.items()
    }
    settings = read_run(path)[0]
    return Distilled(run, measure_test(settings, outputs, references), speeds)


def open_translator(export: Path) -> Translate:
    """A function from texts to their translations by an export."""
    import tensorflow as tf

    translate = open_signatures(export)["serving_default"]

    def translated(texts: Sequence[str]) -> list[str]:
        found: list[str] = []
        for start in range(0, len(texts), TEXTS_PER_CALL):
            part = translate(text=tf.constant(list(texts[start : start + TEXTS_PER_CALL])))
            found += [text.decode("utf-8") for text in part["translation"].tolist()]
        return found

    return translated


def measure_speed(
    translators: Mapping[str, Translate],
    count: Callable[[Sequence[str]], int],
    sources: Sequence[str],
    batch_size: int,
) -> dict[str, float]:
    """Returns the tokens that each translator writes a second, in batches of texts.

    They take turns, so that a machine that slows down slows all of them. The first round, which
    compiles, is not counted; of the others the median is.
    """
    batches = [sources[n : n + batch_size] for n in range(0, len(sources), batch_size)]
    tokens: dict[str, int] = {}
    taken: dict[str, list[float]] = {name: [] for name in translators}
    for _ in range(1 + ROUNDS):
        for name, translate in translators.items():
            begun = time.perf_counter()
            outputs = [text for batch in batches for text in translate(batch)]
            taken[name].append(time.perf_counter() - begun)
            tokens[name] = count(outputs)
    return {name: tokens[name] / statistics.median(taken[name][1:]) for name in translators}
