"""Training files that are too large for lists: a sample of them, and their tokens on disk."""

import hashlib
import importlib.util
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from keras_transformer.atomic_files import write_atomically
from keras_transformer.batches.prepared_corpus import DESCRIPTION, VERSION, PreparedCorpus
from keras_transformer.line_files import GZIP_MAGIC, LONGEST_LINE, check_is_file, each_line
from keras_transformer.processes import THREADS, Died, call_in_processes
from keras_transformer.recipes.parallel_text import Pair
from keras_transformer.recipes.run_files import CORPORA
from keras_transformer.recipes.settings import DISK_OPTIONS, Settings
from keras_transformer.reservoir import sample_evenly

Result = TypeVar("Result")

SAMPLE_SIZE = 200_000  # pairs from which vocabularies are learned
SAMPLE_CHARACTERS = 2**28  # the most of a sample, which has fewer pairs where they are long
SAMPLE = "sample.json"
PREPARED = "prepared.json"  # which corpus a run has, and of what it was made
GZIP_FACTOR = 4  # text is three to four times as long as its gzip


class LargeFiles(NamedTuple):
    """Training files that stay on disk.

    Attributes:
        files: of sources and of targets, for each corpus.
        num_pairs: how many pairs they have.
        digest: 16 characters that tell their texts from others.
        sample: pairs that the filters keep before there are tokens, each as likely as any other.
    """

    files: Sequence[tuple[str, str]]
    num_pairs: int
    digest: str
    sample: list[Pair]


def stay_on_disk(settings: Settings) -> bool:
    """Whether the training files of a run stay on disk: where they are large, mixed or filtered."""
    if settings.disk_options or len(settings.train) > 2:
        for file in settings.train:
            check_is_file(file)
        return True
    return are_large(settings) and not explain_lists(settings)


def are_large(settings: Settings) -> bool:
    """Whether the training files are texts of the size that stays on disk."""
    if settings.format != "text":
        return False
    for file in settings.train:
        check_is_file(file)
    return sum(map(estimate_size, settings.train)) >= settings.on_disk_from * 2**20


def estimate_size(file: str) -> int:
    """Returns the bytes of a file's texts: `GZIP_FACTOR` times its own if it is gzip."""
    with open(file, "rb") as opened:
        is_packed = opened.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return os.path.getsize(file) * (GZIP_FACTOR if is_packed else 1)


def explain_lists(settings: Settings) -> str:
    """Says why training files do not stay on disk, however large they are; "" where they do."""
    if len(settings.train) == 1:
        return "one file has both sides. Give a file for each side to keep them on disk"
    if settings.both_directions:
        return "`both_directions` reads lists alone"
    if not all(map(importlib.util.find_spec, ("tensorflow", "tensorflow_text"))):
        return "TensorFlow and TF Text, which tokenize files on disk, are not installed"
    return ""


def read_large_files(settings: Settings, folder: Path) -> LargeFiles:
    """Reads the files once, from beginning to end, and never again while they stay as they are.

    Args:
        settings: of the run, with its files and filters.
        folder: where the sample is kept.

    Raises:
        ValueError: when the files differ in their numbers of lines, or no pair is left.
    """
    files = list(zip(settings.train[::2], settings.train[1::2], strict=True))
    states = [(status.st_size, status.st_mtime_ns) for status in map(os.stat, settings.train)]
    state = repr((states, [(name, getattr(settings, name)) for name in settings.disk_options]))
    kept = folder / SAMPLE
    found: dict[str, Any] = {}
    if kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
    if found.get("state") != state:
        reader = _Reader(files)
        sample = sample_evenly(
            reader.pairs(), SAMPLE_SIZE, measure=count_characters, most=SAMPLE_CHARACTERS
        )
        if not sample:
            raise ValueError(f"{files[0][0]}: no pair has text on both sides. Check both files.")
        sample = filter_pairs(sample, settings)
        digest = reader.digest.hexdigest()[:16]
        found = dict(state=state, num_pairs=reader.count, digest=digest, sample=sample)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, json.dumps(found, ensure_ascii=False).encode())
    pairs = [(source, target) for source, target in found["sample"]]
    return LargeFiles(files, found["num_pairs"], found["digest"], pairs)


def count_characters(pair: Pair) -> int:
    """The length of both texts."""
    return len(pair[0]) + len(pair[1])


def filter_pairs(pairs: list[Pair], settings: Settings) -> list[Pair]:
    """Returns the pairs that the settings do not filter out before there are tokens.

    Vocabularies are learned from these, and tests are held out of them.

    Raises:
        ValueError: when no pair is left, or for a name that is of no script.
    """
    kept = list(dict.fromkeys(pairs)) if settings.drop_duplicates else pairs
    if settings.source_scripts or settings.target_scripts:
        arguments = kept, settings.source_scripts, settings.target_scripts
        is_own = call_with_tensorflow(settings, _are_of_scripts, *arguments)
        kept = list(itertools.compress(kept, is_own))
    if not kept:
        raise ValueError(
            "`source_scripts` and `target_scripts` must leave some pairs. Received: "
            f"{settings.source_scripts} and {settings.target_scripts}, which leave none of "
            f"{len(pairs):,}"
        )
    return kept


def prepare_files(
    path: Path,
    files: Sequence[tuple[str, str]],
    held_out: Sequence[str],
    settings: Settings,
    tokenizers: tuple[Any, Any],
    *,
    source_tags: str | None = None,
    target_tags: str | None = None,
) -> Any:
    """Returns the `PreparedCorpus` of the training files of a run, which needs TensorFlow.

    Args:
        path: the directory of the run.
        files: of sources and of targets, for each corpus.
        held_out: sources that are not trained on.
        settings: of the run.
        tokenizers: of sources and of targets.
        source_tags, target_tags: the tag of each side, or None.
    """
    from keras_transformer.text import prepare_corpus

    return prepare_corpus(
        path / CORPORA,
        [source for source, _ in files],
        [target for _, target in files],
        *tokenizers,
        max_length=settings.max_length,
        max_ratio=None if settings.max_ratio == math.inf else settings.max_ratio,
        source_scripts=settings.source_scripts,
        target_scripts=settings.target_scripts,
        drop_duplicates=settings.drop_duplicates,
        held_out=held_out,
        weights=settings.mixing_weights or None,
        temperature=settings.mixing_temperature,
        source_tags=source_tags,
        target_tags=target_tags,
    )


def prepare_files_of_run(
    path: Path, files: Sequence[tuple[str, str]], held_out: Sequence[str], settings: Settings
) -> str:
    """Does what `prepare_files` does, with the tokenizers that the run has in files.

    Returns:
        The name of the corpus in the directory of corpora.
    """
    from keras_transformer.recipes.runs import load_tokenizers

    return prepare_files(path, files, held_out, settings, load_tokenizers(path)).path.name


def find_or_prepare(
    path: Path, files: Sequence[tuple[str, str]], held_out: Sequence[str], settings: Settings
) -> str:
    """Does what `prepare_files_of_run` does, on a backend without TensorFlow.

    A process with TensorFlow starts only where files, filters or tokenizers are others than those
    of the corpus that is there.
    """
    state = digest_inputs(path, files, held_out, settings)
    file = path / CORPORA / PREPARED
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if found.get("state") == state and (path / CORPORA / found["name"] / DESCRIPTION).exists():
        print(PreparedCorpus(path / CORPORA / found["name"]).report.summary(), file=sys.stderr)
        return found["name"]
    name = call_with_tensorflow(settings, prepare_files_of_run, path, files, held_out, settings)
    write_atomically(file, json.dumps({"state": state, "name": name}).encode())
    return name


def digest_inputs(
    path: Path, files: Sequence[tuple[str, str]], held_out: Sequence[str], settings: Settings
) -> str:
    """Returns a digest of all that a corpus is made of; of files, of their sizes and times."""
    states = [
        (file, os.stat(file).st_size, os.stat(file).st_mtime_ns)
        for file in itertools.chain.from_iterable(files)
    ]
    tokenizers = [
        hashlib.sha256(tokenizer.read_bytes()).hexdigest()
        for tokenizer in sorted(path.glob("*.tokenizer"))
    ]
    options = [(name, getattr(settings, name)) for name in ("max_length", *DISK_OPTIONS)]
    whole = VERSION, states, sorted(held_out), options, tokenizers
    return hashlib.sha256(repr(whole).encode("utf-8", "backslashreplace")).hexdigest()


def call_with_tensorflow(
    settings: Settings, function: Callable[..., Result], *given: Any
) -> Result:
    """Calls a function that needs TensorFlow.

    On another backend a new process calls it, which has TensorFlow and no GPU. What goes to it and
    comes back can be pickled.

    Raises:
        ValueError: when the process dies.
    """
    if settings.backend == "tensorflow":
        return function(*given)
    # JAX's flags of XLA may be none of TensorFlow's.
    variables = {"KERAS_BACKEND": "tensorflow", "CUDA_VISIBLE_DEVICES": "-1", "XLA_FLAGS": ""}
    variables |= dict.fromkeys(THREADS, "1")  # it starts a process for each processor
    ((_, found),) = call_in_processes(_call, [(function, given)], 1, lambda _: None, variables)
    if isinstance(found, Died):
        raise ValueError(
            f"the process that filters and tokenizes the training files ended {found.how}. What is "
            "done stays: the same call goes on"
        )
    return found


def _call(job: tuple[Callable[..., Result], tuple[Any, ...]], _: Any) -> Result:
    function, given = job
    return function(*given)


def _are_of_scripts(
    pairs: list[Pair], source_scripts: tuple[str, ...], target_scripts: tuple[str, ...]
) -> list[bool]:
    """Whether both texts of each pair are of the scripts of their side; none are any."""
    from keras_transformer.text.scripts import are_of_scripts, checked_scripts

    named = {"source_scripts": source_scripts, "target_scripts": target_scripts}
    found = np.ones(len(pairs), bool)
    for side, (name, scripts) in zip(zip(*pairs, strict=True), named.items(), strict=True):
        if checked_scripts(name, scripts):
            found &= are_of_scripts(list(side), scripts)
    return found.tolist()


class _Reader:
    """Reads the two files of each corpus, and counts and digests what it has read."""

    def __init__(self, files: Sequence[tuple[str, str]]) -> None:
        self.files = files
        self.count, self.digest = 0, hashlib.sha256()

    def pairs(self) -> Iterator[Pair]:
        """Yields the pairs with text on both sides."""
        for number, files in enumerate(self.files):
            if number:  # the same lines divided in another way are other corpora
                self.digest.update(b"%d\0" % self.count)
            yield from self._read(*files)

    def _read(self, *files: str) -> Iterator[Pair]:
        counts = [0, 0]
        sides = [each_line(file, LONGEST_LINE) for file in files]
        for pair in itertools.zip_longest(*sides):
            counts = [n + (line is not None) for n, line in zip(counts, pair, strict=True)]
            if None in pair:
                continue
            self.digest.update(b"%b\n%b\n" % pair)
            try:
                source, target = (line.decode("utf-8") for line in pair)
            except UnicodeDecodeError:  # the corpus leaves it out and counts it
                continue
            if source.strip() and target.strip():
                yield source, target
        if counts[0] != counts[1]:
            raise ValueError(
                f"{files[0]} has {counts[0]:,} lines and {files[1]} has {counts[1]:,}. "
                "Line n of one must translate line n of the other: give files of equal length."
            )
        self.count += counts[0]
