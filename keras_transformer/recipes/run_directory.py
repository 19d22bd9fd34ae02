"""The directory of one training run: its settings, checkpoint, history and results."""

import contextlib
import csv
import dataclasses
import importlib.util
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import keras

from keras_transformer import plots
from keras_transformer.atomic_files import claimed, new_file
from keras_transformer.callbacks import ExactResume
from keras_transformer.card_file import read_card
from keras_transformer.process_group import is_first, tell_others, whole_copy
from keras_transformer.recipes.parallel_text import Pair
from keras_transformer.recipes.run_files import (
    CORPORA,
    PREDICTIONS,
    check_version,
    export_numbers,
    find_export,
    is_run,
    read_predictions,
    read_run,
)
from keras_transformer.recipes.run_readme import make_readme
from keras_transformer.recipes.runs import load_model
from keras_transformer.recipes.settings import IMPORTED, SETTINGS, Settings

SUMMARY, README = "summary.txt", "README.txt"  # written last: with them the run is tested
LOCK = ".lock"  # there while a process trains
LEARNT_WITH = ("user_defined_symbols", "input_sentence_size")  # of vocabularies, where given
TEST = ("beam_size", "length_penalty", "bleu_tokenize", "xla_export", "split_sentences")


class RunDirectory:
    """Keeps what a run has finished, each file written whole or not at all.

    Of several processes, which all see the directory, the first one writes.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    def check(self, settings: Settings, **facts: Any) -> str:
        """Checks that the path is free, or of a run with these settings.

        Args:
            settings: of the run. What is `free` in them may change.
            **facts: what else must stay, as a digest of the pairs.

        Returns:
            What differs in a run that has not trained yet.
        """
        for name in ("start_from", "teacher"):
            other = getattr(settings, name)
            if other and Path(other).resolve() == self.path.resolve():
                raise ValueError(
                    f"`{name}` must be another directory than the output. "
                    f"Received: {name}={other!r} for the output {self.path}"
                )
        if not (self.path / SETTINGS).exists():
            if self.path.exists() and not self._is_free():
                check_version(self.path)
                raise ValueError(
                    f"{self.path} exists and is not a run of this program. Give another --output."
                )
            return ""
        found, found_facts = read_run(self.path)
        if "imported" in found_facts:
            raise ValueError(
                f"{self.path} holds another run: the model of an import. Give another --output. "
                f"To train that model, add --start-from {self.path}"
            )
        changed = (
            f"{name} was {found_facts.get(name)!r} and is {value!r}"
            for name, value in facts.items()
            if found_facts.get(name) != value
        )
        differing = ", ".join(filter(None, [found.differences(in_utf8(settings)), *changed]))
        kept = any((self.path / name).exists() for name in ("export", "model.keras"))
        if differing and (kept or self.epochs_done()):
            raise ValueError(
                f"{self.path} holds another run: {differing}. Give another --output, or go on "
                f"with that run: keras-transformer train --config {self.path / SETTINGS} "
                f"--output {self.path}"
            )
        return differing

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Keeps other training runs out of the directory, until the block ends or the process dies.

        Of several processes that train together the first one does. A file system without locks
        keeps nobody out.

        Raises:
            ValueError: when another process trains there.
        """
        with contextlib.ExitStack() as stack:
            if is_first():
                self.path.mkdir(parents=True, exist_ok=True)
                try:
                    is_busy = stack.enter_context(claimed(self.path / LOCK)) is None
                except (OSError, ImportError):  # no locks here
                    is_busy = False
                if is_busy:
                    raise ValueError(
                        f"{self.path} must not be in use. Received: another process trains there"
                    )
            yield

    def open(self, settings: Settings, **facts: Any) -> None:
        """Makes the directory, or goes on with the one there after `check`, whose arguments it has.

        The test of before counts no more where its search differs.
        """
        differing = self.check(settings, **facts)
        if not is_first():
            return
        if differing:  # nothing was trained: what is left of it can go
            for pattern in ("*.tokenizer", "model.keras*", IMPORTED):
                for leftover in self.path.glob(pattern):
                    leftover.unlink()
            shutil.rmtree(self.path / "epochs", ignore_errors=True)
        elif (self.path / SETTINGS).exists():
            found, found_facts = read_run(self.path)
            facts = found_facts | facts
            if found.differences(settings, TEST):
                self.forget_test()
        self.path.mkdir(parents=True, exist_ok=True)
        self.write(SETTINGS, in_utf8(settings).to_toml(run=facts))

    def note(self, **facts: Any) -> None:
        """Adds to the settings what the run found out."""
        settings, found = read_run(self.path)
        self.write(SETTINGS, settings.to_toml(run=found | facts))

    def summary(self) -> str:
        """The lines that say how good the run is; none before its test."""
        file = self.path / SUMMARY
        return file.read_text(encoding="utf-8").strip() if file.exists() else ""

    def forget_test(self) -> None:
        """Takes away what says that the run is tested."""
        for name in (SUMMARY, README) if is_first() else ():
            (self.path / name).unlink(missing_ok=True)

    def is_tested(self, pairs: Sequence[Pair]) -> bool:
        """Whether the model of the run was tested with these pairs, and exported if it can be."""
        needed = [SUMMARY, PREDICTIONS]
        if read_run(self.path)[0].backend == "tensorflow":
            needed += [README, "export"]
        if not all((self.path / name).exists() for name in needed):
            return False
        tested = [(row["source"], row["reference"]) for row in read_predictions(self.path)]
        return tested == list(pairs)

    def check_start(self, settings: Settings, names: Iterable[str]) -> None:
        """Checks that a run with these settings can start from the model of this one."""
        names = [*names, *(name for name in LEARNT_WITH if getattr(settings, name))]
        check_version(self.path)
        if not is_run(self.path):
            raise ValueError(f"{self.path} holds no run with a model to start from.")
        if differing := read_run(self.path)[0].differences(settings, names):
            raise ValueError(
                f"{self.path} is not a run to start from: {differing}. A run has the sizes and "
                "the vocabularies of its start."
            )

    def _is_free(self) -> bool:
        """Whether the path is a directory with nothing in it but what a crash left half written."""
        return self.path.is_dir() and all(
            file.name.startswith(".") or file.name == CORPORA for file in self.path.iterdir()
        )

    def write(self, name: str, text: str) -> None:
        """Writes a text file atomically."""
        with new_file(self.path / name) as scratch:
            scratch.write_text(text, encoding="utf-8")

    def save_model(self, model: keras.Model, name: str) -> None:
        """Saves a `.keras` file atomically."""
        if not is_first():
            return
        with new_file(self.path / name) as scratch:
            whole_copy(model).save(scratch)

    def epochs_done(self) -> int:
        """Returns the number of finished epochs."""
        return ExactResume(self.path).epoch

    def minutes_done(self) -> float:
        """Returns the minutes that the finished epochs took."""
        return sum(row["seconds"] for row in self.read_history(self.epochs_done())) / 60

    def is_trained(self, settings: Settings) -> bool:
        """Whether the epochs or the minutes of the settings are over."""
        return self.epochs_done() >= settings.epochs or self.minutes_done() >= settings.minutes

    @property
    def progress(self) -> str:
        """How long the run was trained, in words."""
        epochs = self.epochs_done()
        plural = "s" * (epochs != 1)
        return f"{epochs} epoch{plural}, {self.minutes_done():.1f} minutes of training"

    def write_history(self, rows: Sequence[dict[str, float]]) -> None:
        """Writes history.csv, a list of one dict an epoch."""
        if not is_first():
            return
        names = list(dict.fromkeys(name for row in rows for name in row))
        with (
            new_file(self.path / "history.csv") as scratch,
            open(scratch, "w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, names)  # what an epoch did not measure stays empty
            writer.writeheader()
            writer.writerows(rows)

    def read_history(self, epochs: int) -> list[dict[str, float]]:
        """Returns the rows of the first `epochs` epochs."""
        if not epochs or not (self.path / "history.csv").exists():
            return []
        with open(self.path / "history.csv", newline="", encoding="utf-8") as file:
            rows = [
                {name: float(value) for name, value in row.items() if value}
                for row in csv.DictReader(file)
            ]
        return [{**row, "epoch": int(row["epoch"])} for row in rows[:epochs]]

    def draw_learning_curve(self) -> None:
        """Draws history.csv as learning_curve.png, where matplotlib is installed."""
        if importlib.util.find_spec("matplotlib"):
            figure = plots.learning_curve(self.path / "history.csv")
            figure.savefig(self.path / "learning_curve.png", dpi=120)

    def write_translations(self, pairs: Sequence[Pair], outputs: Sequence[str]) -> None:
        """Writes translations.txt, and predictions.tsv with sources and references too."""
        lines = [" ".join(text.split("\n")) for text in outputs]
        self.write("translations.txt", "".join(f"{line}\n" for line in lines))
        with (
            new_file(self.path / PREDICTIONS) as scratch,
            open(scratch, "w", newline="", encoding="utf-8") as file,
        ):
            form: dict[str, Any] = {"delimiter": "\t", "lineterminator": "\n"}
            plain = csv.writer(file, **form)
            quoting = csv.writer(file, **form, quoting=csv.QUOTE_ALL)
            plain.writerow(["source", "reference", "output"])
            for pair, output in zip(pairs, outputs, strict=True):
                row = [*pair, output]
                # Python 3.11 and 3.12 leave a carriage return without quotes.
                (quoting if "\r" in "".join(row) else plain).writerow(row)

    def write_readme(self) -> None:
        """Writes README.txt of the test and the newest export; see `make_readme`."""
        export = find_export(self.path)
        if export is None:
            raise ValueError(f"{self.path} must have an export. Write it first")
        first = read_predictions(self.path)[0]
        pair = first["source"], first["reference"]
        name = read_run(self.path)[0].model_name
        text = make_readme(
            self.path,
            model=name,
            summary=self.summary(),
            pair=pair,
            version=export.name,
            card=read_card(export),
        )
        here = str(self.path.absolute())
        self.write(README, text.replace(here, as_utf8(here)))

    def export(self, translator: Any, scores: str) -> None:
        """Writes the SavedModel of the newest number; `scores` go on its card.

        It takes the place of export/1 where that is the only one. Others were exported apart.
        """
        newest = max(export_numbers(self.path / "export"), default=1)
        path = self.path / "export" / str(1 if newest == 1 else newest + 1)
        scratch, older = self.path / ".export", self.path / ".export-before"
        for left in self.path.glob(".export*"):  # of runs that were stopped here
            shutil.rmtree(left, ignore_errors=True)
        say(f"Exporting to {path}; on a slow machine this takes minutes ...")
        translator.export(scratch, self.card(scores), verbose=False)
        path.parent.mkdir(exist_ok=True)
        if path.exists():
            os.replace(path, older)
        os.replace(scratch, path)
        shutil.rmtree(older, ignore_errors=True)

    def card(self, scores: str) -> dict[str, Any]:
        """What the model card of an export says of the run."""
        settings, facts = read_run(self.path)
        # JSON has no infinity, which is not a limit.
        data = {n: v for n, v in dataclasses.asdict(settings).items() if v != math.inf} | facts
        return {"languages": find_languages(settings), "data": data, "scores": scores}

    def load_model(self, name: str = "model.keras") -> keras.Model:
        """Loads a `.keras` file of the run."""
        return load_model(self.path / name)


class CheckLoss(keras.callbacks.Callback):
    """Refuses a loss that is not a number; before what others would keep of the epoch.

    Raises:
        ValueError: at the end of an epoch with such a loss.
    """

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Checks the losses."""
        for name in ("loss", "val_loss"):
            loss = (logs or {}).get(name, 0)
            if not math.isfinite(loss):
                raise ValueError(
                    f"the {name} of epoch {epoch + 1} is {loss}: the training has "
                    "diverged. The epochs before are kept."
                )


class KeepHistory(keras.callbacks.Callback):
    """Writes history.csv, and stops when the time is up.

    The seconds of an epoch are from the end of the one before, or the start of `fit`, to its own
    end. So they count what is measured, saved and shown between two epochs.
    """

    def __init__(
        self, directory: RunDirectory, history: list[dict[str, float]], minutes: float
    ) -> None:
        super().__init__()
        self.directory, self.history, self.minutes = directory, history, minutes

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Starts the clock."""
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes the row of the epoch."""
        # TranslationQuality repeats a figure until the next, and tells its epoch: NAME_epoch.
        logs = logs or {}
        epochs = {f"{name}_epoch" for name in logs}
        row = {
            name: float(value)
            for name, value in logs.items()
            if math.isfinite(value)
            and name not in epochs
            and logs.get(f"{name}_epoch", epoch + 1) == epoch + 1
        }
        now = time.perf_counter()
        # Those of the first process for all, which then stop after the same epoch.
        seconds, self.began = float(tell_others(now - self.began)), now
        self.history.append({"epoch": epoch + 1, **row, "seconds": seconds})
        self.directory.write_history(self.history)
        minutes = sum(row["seconds"] for row in self.history) / 60
        if minutes >= self.minutes:
            say(f"  {minutes:.1f} minutes of training: stopping (--minutes {self.minutes:g})")
            self.model.stop_training = True


def in_utf8(settings: Settings) -> Settings:
    """Returns the settings with file names, which are strings, that no locale changes."""
    values = dataclasses.asdict(settings)
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = as_utf8(value)
        elif isinstance(value, tuple):
            values[name] = tuple(as_utf8(v) if isinstance(v, str) else v for v in value)
    return Settings(**values)


def as_utf8(argument: str) -> str:
    """Returns a string of the command line as UTF-8 reads its bytes, whatever the locale says."""
    return os.fsencode(argument).decode("utf-8", "backslashreplace")


def find_languages(settings: Settings) -> dict[str, str]:
    """What is known of each side's language: its locale, or how the name of its file ends."""
    if settings.format == "dates":
        return {"source": settings.source_locale, "target": settings.target_locale}
    names = settings.train if len(settings.train) > 1 else ("", "")
    endings = [Path(name.removesuffix(".gz")).suffix[1:] for name in names]
    sides = {"source": set(endings[::2]), "target": set(endings[1::2])}
    return {side: found.pop() if len(found) == 1 else "" for side, found in sides.items()}


def say(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)
