"""Translates a collection: many files by several processes, one file out for each file in."""

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations of a SavedModel)

from keras_transformer import arguments
from keras_transformer.atomic_files import claimed, write_atomically
from keras_transformer.card_file import check_tag, read_card
from keras_transformer.processes import Died, call_in_processes
from keras_transformer.serving.export import arguments_of_translate
from keras_transformer.serving.saved_model import saved_model_path, tensorflow_path
from keras_transformer.serving.shard_files import Shard, open_shard
from keras_transformer.serving.shard_inputs import (
    RECORD,
    check_inputs,
    is_unchanged,
    note_input,
    read_input,
)

SETTINGS = "translate_shards.json"  # what the files of a directory were made with
WRONG = ".wrong.jsonl"  # what follows the name of a file, for its rows without a translation
PART = ".part"  # what follows it while the file is made
TOO_LONG = "is longer than the model reads"
SHOWN = 10_000  # characters of a row without a translation
FAILURES_SHOWN = 3
SECONDS_BETWEEN_LINES = 30.0

# Texts to translations, and whether each text was too long for one.
Translate = Callable[[list[bytes]], tuple[list[str], list[bool]]]
TellRows = Callable[[int], None]


class ShardReport(NamedTuple):
    """What became of a collection.

    Attributes:
        files: how many files were translated by this call.
        finished: how many were finished before.
        busy: how many another call is translating at the moment.
        rows: rows of the files translated by this call.
        wrong: how many of them have no translation.

    Example:

    >>> report = ShardReport(files=2, finished=1, busy=0, rows=200, wrong=3)
    >>> f"{report.wrong} of {report.rows} rows have no translation"
    '3 of 200 rows have no translation'
    """

    files: int
    finished: int
    busy: int
    rows: int
    wrong: int


class Job(NamedTuple):
    """What all files have in common."""

    model: str
    output: str
    field: str | None
    output_field: str
    batch_size: int
    source_tag: str | None
    target_tag: str | None
    split_sentences: bool | None

    def target(self, path: str) -> str:
        """The file that the translations of a file go to."""
        return os.path.join(self.output, os.path.basename(path))


def translate_shards(
    model: str | os.PathLike[str],
    files: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    field: str | None = None,
    output_field: str = "translation",
    workers: int = 1,
    batch_size: int = 512,
    source_tag: str | None = None,
    target_tag: str | None = None,
    split_sentences: bool | None = None,
    verbose: bool = True,
) -> ShardReport:
    """Translates the files of a collection, each into a file of the same name in `output`.

    | name ends in | rows | translations |
    |---|---|---|
    | `.jsonl`, `.ndjson` | a JSON object a line | in the field `output_field`, beside the others |
    | `.parquet` | rows; needs pyarrow | in the column `output_field`, beside the others |
    | anything else | a text a line, UTF-8 | a line each |

    The first and the last may be compressed with gzip; so is then what is written. Rows keep their
    order, and no more than a batch of them is in memory.

    A file is written as `NAME.part` and gets its name when it is whole and has as many rows as
    were read. Finished files are left alone, so the same call goes on after a crash. Where a file
    of that name was made of an input with other contents, the call is refused. Files that were
    begun and not finished come last, since one of them may end the process again. Calls on one
    machine, or on a file system that all machines lock, may share a directory: each file is
    translated by one of them.

    A row that cannot be translated has an empty line, or null. `NAME.wrong.jsonl` tells its number
    and why. Text may be other than UTF-8, or longer than the model reads. A line may be other than
    JSON, without the field, or without a string in it.

    Args:
        model: the directory of a SavedModel that `export` wrote.
        files: the files, no two of one name.
        output: the directory to write to; made when it is not there.
        field: the field or column of the texts; None for plain text.
        output_field: the new field or column.
        workers: processes that translate a file each. Each has its share of the processors, and
            a copy of the model. One that dies costs its file, and a new one goes on with the
            next. With 1 this process translates.
        batch_size: rows that are translated together.
        source_tag, target_tag: a tag of the vocabularies, such as a language code; None is the
            export's own.
        split_sentences: whether each sentence is translated on its own; None does as the export.
        verbose: whether to write progress to standard error.

    Returns:
        The counts of files and rows, and of those that could not be translated.

    Raises:
        ValueError: when an argument is bad, or `output` has files of another model, of other
            options or of other inputs. When files are damaged or a process died, after all others
            are translated.
        ImportError: when a file is Parquet and pyarrow is not installed.

    Example:

    >>> translate_shards("nowhere", ["a.txt"], "translated")
    Traceback (most recent call last):
        ...
    ValueError: `path` must hold a SavedModel. Received: path='nowhere'
    """
    job = Job(
        model=os.path.abspath(saved_model_path(model)),
        output=os.path.abspath(os.fspath(output)),
        field=field,
        output_field=output_field,
        batch_size=arguments.positive_integer("batch_size", batch_size),
        source_tag=source_tag,
        target_tag=target_tag,
        split_sentences=arguments.optional(arguments.boolean, "split_sentences", split_sentences),
    )
    workers = arguments.positive_integer("workers", workers)
    check_tags(job)
    paths = checked_files(files, job)
    open_output(job, paths)
    finished = {path: job.target(path) for path in paths if os.path.exists(job.target(path))}
    unknown = check_inputs(job.output, finished)
    waiting = [path for path in paths if path not in finished]
    waiting.sort(key=lambda path: read_time(f"{job.target(path)}{PART}"))
    progress = Progress(len(waiting), verbose)
    if unknown:
        progress.say(
            f"{len(unknown):,} finished files, as {unknown[0]}, are of an earlier version, which "
            "did not note their inputs. They are taken for translations of these"
        )
    outcomes: dict[str, dict[str, Any]] = {}
    for path, outcome in translate_files(job, waiting, min(workers, len(waiting)), progress.add):
        outcomes[path] = outcome
        progress.count_file()
        if "failed" in outcome:
            progress.say(describe_failure(path, outcome))
    progress.end()
    check_outcomes(outcomes, len(paths))
    done = [outcome for outcome in outcomes.values() if "rows" in outcome]
    return ShardReport(
        files=len(done),
        finished=len(paths) - len(waiting),
        busy=len(outcomes) - len(done),
        rows=sum(outcome["rows"] for outcome in done),
        wrong=sum(outcome["wrong"] for outcome in done),
    )


def checked_files(files: Sequence[str | os.PathLike[str]], job: Job) -> list[str]:
    """Returns the files as str, or raises `ValueError` for those that cannot be translated."""
    if isinstance(files, (str, bytes, os.PathLike)) or not files:
        raise ValueError(f"`files` must be a list of files. Received: files={files!r}")
    paths = [os.fspath(path) for path in files]
    first: dict[str, str] = {}
    for path in paths:
        open_shard(path, job.field, job.output_field)
        other = first.setdefault(os.path.basename(path), path)
        if other is not path:
            raise ValueError(f"`files` must have names of their own. Received: {other} and {path}")
        if os.path.realpath(path) == os.path.realpath(job.target(path)):
            raise ValueError(f"`output` must be another directory than that of {path}")
    own = {SETTINGS, RECORD, *(f"{name}{ending}" for name in first for ending in (PART, WRONG))}
    for name in own & first.keys():
        raise ValueError(
            f"`files` must not have the name of a file that is written beside the translations. "
            f"Received: {first[name]}"
        )
    return paths


def read_time(path: str) -> float:
    """When a file was last changed; 0 where there is none."""
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def check_tags(job: Job) -> None:
    """Raises `ValueError` for a tag that no vocabulary of the export has."""
    vocabularies = read_card(job.model).get("vocabulary", {})
    for side, tag in (("source", job.source_tag), ("target", job.target_tag)):
        check_tag(f"`{side}_tag`", tag, vocabularies.get(side, {}).get("tags", []))


def open_output(job: Job, paths: Sequence[str]) -> None:
    """Makes the directory, or checks that what is in it was made with the same settings."""
    settings = {**job._asdict(), "model": digest_export(job.model)}
    for name in ("output", "batch_size"):
        del settings[name]
    os.makedirs(job.output, exist_ok=True)
    file = os.path.join(job.output, SETTINGS)
    if not os.path.exists(file):
        if found := [path for path in paths if os.path.exists(job.target(path))]:
            raise ValueError(
                f"`output` must have no files of others. Received: {job.target(found[0])} exists"
            )
        write_atomically(file, json.dumps(settings, indent=2).encode())
    with open(file, encoding="utf-8") as opened:
        before = json.load(opened)
    if before != settings:
        names = [name for name in settings if settings[name] != before.get(name)]
        changes = [f"{name} was {before.get(name)!r} and is {settings[name]!r}" for name in names]
        raise ValueError(
            f"{job.output} has files made otherwise: {', '.join(changes)}. Give another directory."
        )


def digest_export(model: str) -> str:
    """16 characters that tell an export from others: of its graph and its weights' checksums."""
    digest = hashlib.sha256()
    for name in ("saved_model.pb", os.path.join("variables", "variables.index")):
        file = os.path.join(model, name)
        if os.path.exists(file):
            with open(file, "rb") as opened:
                digest.update(opened.read())
    return digest.hexdigest()[:16]


def check_outcomes(outcomes: dict[str, dict[str, Any]], count: int) -> None:
    """Raises `ValueError` when files failed."""
    shown = [describe_failure(path, found) for path, found in outcomes.items() if "failed" in found]
    if shown:
        more = [f"and {len(shown) - FAILURES_SHOWN} more"] * (len(shown) > FAILURES_SHOWN)
        raise ValueError(
            f"{len(shown)} of {count} files have no translation: "
            f"{'; '.join([*shown[:FAILURES_SHOWN], *more])}. The others are finished; the same "
            "call goes on."
        )


def describe_failure(path: str, outcome: dict[str, Any]) -> str:
    """Says which file failed, and why."""
    reason = outcome["failed"]
    return reason if path in reason else f"{path}: {reason}"


def translate_files(
    job: Job, paths: Sequence[str], workers: int, tell: TellRows
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each file with its outcome, translated here or by several processes."""
    worker = Worker(job)
    if workers < 2:
        for path in paths:
            yield path, worker(path, tell)
        return
    for path, outcome in call_in_processes(worker, paths, workers, tell):
        is_dead = isinstance(outcome, Died)
        yield path, {"failed": f"its process ended {outcome.how}"} if is_dead else outcome


class Worker:
    """Translates file after file, with the model opened once.

    Called with a file and a function that is told of rows, it returns the outcome: `rows` and
    `wrong`; or `failed`, the reason; or neither, where another process has the file.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.translate: Translate | None = None

    def __call__(self, path: str, tell: TellRows) -> dict[str, Any]:
        try:
            if self.translate is None:
                self.translate = open_export(self.job)
            shard = open_shard(path, self.job.field, self.job.output_field)
            target = self.job.target(path)
            return translate_shard(shard, target, self.translate, self.job.batch_size, tell)
        except (ValueError, OSError, tf.errors.OpError) as error:
            return {"failed": " ".join(str(error).split()).removesuffix(".")}


def open_export(job: Job) -> Translate:
    """Returns a function of a list of texts."""
    model = tf.saved_model.load(tensorflow_path(job.model))
    options: dict[str, Any] = {
        "source_tag": job.source_tag,
        "target_tag": job.target_tag,
        "split_sentences": job.split_sentences,
    }
    has_options = any(option is not None for option in options.values())
    signature = model.signatures["translate" if has_options else "serving_default"]
    inputs = signature.structured_input_signature[1]

    def translate(texts: list[bytes]) -> tuple[list[str], list[bool]]:
        more = arguments_of_translate(inputs, len(texts), **options) if has_options else {}
        found = signature(text=tf.constant(texts, tf.string), **more)
        best = found["translations"][:, 0] if has_options else found["translation"]
        translations = [text.decode("utf-8") for text in best.numpy().tolist()]
        return translations, found["truncated"].numpy().tolist()

    translate.model = model  # type: ignore[attr-defined]  # whose variables the function needs
    return translate


def translate_shard(
    shard: Shard, target: str, translate: Translate, batch_size: int, tell: TellRows
) -> dict[str, int]:
    """Translates one file; returns the numbers of its `rows`, and of those that are `wrong`.

    Nothing is returned where another process translates the file or has done so.
    """
    with claimed(f"{target}{PART}") as stream:
        if stream is None or os.path.exists(target):
            return {}
        made_of = read_input(shard.path)
        rows = wrong = 0
        with WrongRows(f"{target}{WRONG}") as wrong_rows, shard.writer(stream) as write:
            for batch in shard.batches(batch_size):
                translations, too_long = translate([row.text for row in batch.rows])
                kept: list[str | None] = []
                for row, text, is_too_long in zip(batch.rows, translations, too_long, strict=True):
                    rows += 1
                    reason = TOO_LONG if is_too_long else row.wrong
                    kept.append(None if reason else text)
                    if reason:
                        wrong += 1
                        wrong_rows.add(rows, reason, row.input)
                write(batch, kept)
                tell(len(kept))
        stream.flush()
        os.fsync(stream.fileno())
        if (written := shard.count(stream.name)) != rows:
            raise ValueError(f"{rows:,} rows were read and {written:,} written to {stream.name}")
        if not is_unchanged(shard.path, made_of):
            raise ValueError(f"{shard.path}: has changed while it was translated")
        note_input(os.path.dirname(target), os.path.basename(target), made_of)
        wrong_rows.keep()
        os.replace(stream.name, target)
    return {"rows": rows, "wrong": wrong}


class WrongRows:
    """The list of rows without a translation, a JSON object each; no file where there are none."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stream: Any = None

    def __enter__(self) -> "WrongRows":
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if self.stream is not None:
            self.stream.close()
            if kind is not None:
                os.unlink(self.stream.name)

    def add(self, number: int, reason: str, text: str) -> None:
        """Adds row `number`; the first row is 1."""
        if self.stream is None:
            self.stream = open(f"{self.path}{PART}", "w", encoding="utf-8")  # noqa: SIM115
        row = {"row": number, "reason": reason, "input": text[:SHOWN]}
        print(json.dumps(row, ensure_ascii=False), file=self.stream)

    def keep(self) -> None:
        """Gives the whole list its name, in the place of an older one."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        if self.stream is not None:
            os.replace(self.stream.name, self.path)


class Progress:
    """Lines of progress on the standard error.

    Args:
        files: how many files are to be translated.
        verbose: whether anything is written.
    """

    def __init__(self, files: int, verbose: bool) -> None:
        self.files, self.verbose = files, verbose
        self.is_terminal = sys.stderr.isatty()
        self.pause = 0.5 if self.is_terminal else SECONDS_BETWEEN_LINES
        self.rows = self.done = self.rows_of_done = 0
        self.last = self.begun = time.monotonic()
        self.lock = threading.Lock()

    def count_file(self) -> None:
        """Counts a file that is done."""
        with self.lock:
            self.done += 1
            self.rows_of_done = self.rows

    def add(self, rows: int) -> None:
        """Counts rows, and writes a line from time to time."""
        with self.lock:
            self.rows += rows
            if self.verbose and time.monotonic() - self.last > self.pause:
                self.last = time.monotonic()
                end = "\r" if self.is_terminal else "\n"
                print(self.line(), end=end, file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """Writes a line that stays, in the place of one of progress."""
        if self.verbose:
            clear = "\r\x1b[K" if self.is_terminal else ""
            print(f"{clear}{line}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Writes the last line."""
        if self.verbose:
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """How far it is."""
        seconds = max(time.monotonic() - self.begun, 1e-9)
        speed = f"{self.rows / seconds:,.0f} a second"
        line = f"{self.done:,} of {self.files:,} files, {self.rows:,} rows, {speed}"
        if not self.rows_of_done or self.done == self.files:
            return line
        # As if the other files had as many rows as these.
        rows_left = max(0, self.rows_of_done / self.done * self.files - self.rows)
        minutes = rows_left / self.rows * seconds / 60
        return f"{line}, about {max(1, round(minutes)):,} min left"
