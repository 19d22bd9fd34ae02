"""The directory of one training run: its settings, checkpoint, history and results."""

import csv
import hashlib
import importlib.util
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import keras

from keras_transformer import plots
from keras_transformer.callbacks import ExactResume
from keras_transformer.recipes.run_readme import readme_of
from keras_transformer.recipes.runs import export_numbers, find_export, read_card


class RunDirectory:
    """Keeps what a run has finished, each file written whole or not at all."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    def open(self, settings: dict[str, Any]) -> None:
        """Makes the directory, or checks that the one there is of a run with these settings."""
        settings = json.loads(json.dumps(settings))
        file = self.path / "settings.json"
        if file.exists():
            found = json.loads(file.read_text(encoding="utf-8"))
            differing = differences(found, settings, {*found, *settings})
            if differing and not self.epochs_done() and not (self.path / "export").exists():
                # Nothing was trained with the old settings: what was made for them can go.
                for pattern in ("*.tokenizer", "vocabulary.*", "model.keras*"):
                    for leftover in self.path.glob(pattern):
                        leftover.unlink()
                shutil.rmtree(self.path / "epochs", ignore_errors=True)
                self.write("settings.json", json.dumps(settings, indent=2, ensure_ascii=False))
            elif differing:
                raise ValueError(
                    f"{self.path} holds another run: {differing}. Give another --output, or the "
                    "same settings to go on with that run."
                )
        elif self.path.exists() and not self._is_free():
            raise ValueError(
                f"{self.path} exists and is no run of this program. Give another --output."
            )
        else:
            self.path.mkdir(parents=True, exist_ok=True)
            self.write("settings.json", json.dumps(settings, indent=2, ensure_ascii=False))

    def check_start(self, settings: dict[str, Any], names: Iterable[str]) -> None:
        """Checks that a run with these settings can start from the model of this one."""
        if not all((self.path / name).exists() for name in ("settings.json", "model.keras")):
            raise ValueError(f"{self.path} holds no run with a model to start from.")
        found = json.loads((self.path / "settings.json").read_text(encoding="utf-8"))
        if differing := differences(found, settings, names):
            raise ValueError(f"{self.path} is no run to start from: {differing}.")

    def _is_free(self) -> bool:
        """Whether the path is a directory with nothing in it but what a crash left half written."""
        return self.path.is_dir() and all(f.name.startswith(".") for f in self.path.iterdir())

    def write(self, name: str, text: str) -> None:
        """Writes a text file atomically."""
        scratch = self.path / f".{name}"
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, self.path / name)

    def save_model(self, model: keras.Model, name: str) -> None:
        """Saves a `.keras` file atomically."""
        scratch = self.path / f".{name}"
        model.save(scratch)
        os.replace(scratch, self.path / name)

    def epochs_done(self) -> int:
        """Returns the number of finished epochs."""
        return ExactResume(self.path).epoch

    def write_history(self, rows: Sequence[dict[str, float]]) -> None:
        """Writes history.csv, a list of one dict an epoch."""
        scratch = self.path / ".history.csv"
        with open(scratch, "w", newline="", encoding="utf-8") as file:
            names = list(dict.fromkeys(name for row in rows for name in row))
            writer = csv.DictWriter(file, names)  # what an epoch did not measure stays empty
            writer.writeheader()
            writer.writerows(rows)
        os.replace(scratch, self.path / "history.csv")

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

    def write_readme(self, title: str, model: str, summary: str, pair: tuple[str, str]) -> None:
        """Writes README.txt, once there is an export; see `readme_of`."""
        export = find_export(self.path)
        if export is None:
            raise ValueError(f"{self.path} must have an export. Write it first")
        text = readme_of(self.path, title, model, summary, pair, export.name, read_card(export))
        here = str(self.path.absolute())
        self.write("README.txt", text.replace(here, as_utf8(here)))

    def export(self, translator: Any, scores: str) -> None:
        """Writes the SavedModel of the newest number; `scores` go on its card.

        It takes the place of export/1 where that is the only one. Others were exported apart.
        """
        newest = max(export_numbers(self.path / "export"), default=1)
        path = self.path / "export" / str(1 if newest == 1 else newest + 1)
        scratch, older = self.path / ".export", self.path / ".export-before"
        for left in (scratch, older):  # of a run that was stopped here
            shutil.rmtree(left, ignore_errors=True)
        settings = json.loads((self.path / "settings.json").read_text(encoding="utf-8"))
        languages = {side: language_of(settings, side) for side in ("source", "target")}
        card = {"languages": languages, "data": settings, "scores": scores}
        translator.export(scratch, card, verbose=False)
        path.parent.mkdir(exist_ok=True)
        if path.exists():
            os.replace(path, older)
        os.replace(scratch, path)
        shutil.rmtree(older, ignore_errors=True)

    def load_model(self, name: str = "model.keras") -> keras.Model:
        """Loads a `.keras` file of the run."""
        return keras.saving.load_model(self.path / name)


class CheckLoss(keras.callbacks.Callback):
    """Ends the program when the loss is no number; before what others would keep of the epoch."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Checks the losses."""
        for name in ("loss", "val_loss"):
            loss = (logs or {}).get(name, 0)
            if not math.isfinite(loss):
                sys.exit(
                    f"error: the {name} of epoch {epoch + 1} is {loss}: the training has "
                    "diverged. The epochs before are kept."
                )


class KeepHistory(keras.callbacks.Callback):
    """Writes history.csv, and stops when the time is up.

    The seconds of an epoch are from the end of the one before, or the begin of `fit`, to its own:
    so they count what is measured, saved and shown between two epochs.
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
        seconds, self.began = now - self.began, now
        self.history.append({"epoch": epoch + 1, **row, "seconds": seconds})
        self.directory.write_history(self.history)
        minutes = sum(row["seconds"] for row in self.history) / 60
        if minutes >= self.minutes:
            say(f"  {minutes:.1f} minutes of training: stopping, as asked")
            self.model.stop_training = True


def run_program(run: Callable[[Any], None], args: Any, started: float) -> int:
    """Runs `run(args)`, then tells the time since `started` and the summary; gives the status."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a locale may lack letters
    try:
        run(args)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted. What was finished is in {args.output}; run the same command to go on.",
            file=sys.stderr,
        )
        return 130
    print(f"Took {(time.perf_counter() - started) / 60:.1f} minutes.")
    print((RunDirectory(args.output).path / "summary.txt").read_text(encoding="utf-8"), end="")
    return 0


def digest_of(pairs: Iterable[Sequence[str]]) -> str:
    """Returns 16 characters that tell these pairs of texts from others."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(repr(tuple(pair)).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:16]


def in_utf8(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings with file names, which are strings, that no locale changes."""
    return {
        name: as_utf8(value) if isinstance(value, str) else value
        for name, value in settings.items()
    }


def as_utf8(argument: str) -> str:
    """Returns a string of the command line as UTF-8 reads its bytes, whatever the locale says."""
    return os.fsencode(argument).decode("utf-8", "backslashreplace")


def differences(found: dict[str, Any], settings: dict[str, Any], names: Iterable[str]) -> str:
    """Says which of the settings named are not as found; "" when all are."""
    return ", ".join(
        f"{name} was {found.get(name)!r} and is {settings.get(name)!r}"
        for name in sorted(names)
        if found.get(name) != settings.get(name)
    )


def language_of(settings: dict[str, Any], side: str) -> str:
    """What is known of a side's language: its locale, or how its file's name ends."""
    file = Path(str(settings.get(side) or "").removesuffix(".gz"))
    return settings.get(f"{side}_locale") or file.suffix[1:]


def say(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)
