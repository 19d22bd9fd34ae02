"""The lines of a corpus in parts, each filtered and tokenized into a file of its own."""

import hashlib
import io
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.atomic_files import write_atomically
from keras_transformer.batches.prepared_corpus import SIDES, unwritable_named
from keras_transformer.line_files import LONGEST_LINE, each_line
from keras_transformer.processes import Died, call_in_processes, count_processors
from keras_transformer.text.scripts import are_of_scripts
from keras_transformer.text.tokenization import TaggedTokenizer, TokenizerLike, tokenize_all

LINES_PER_PART = 20_000
PART_BYTES = 2**25  # of both sides, after which a part ends early
SECONDS_BETWEEN_LINES = 5.0
REASONS = ("no UTF-8", "empty", "of another script", "held out", "too long", "uneven", "duplicate")
NO_UTF8, EMPTY, SCRIPT, HELD_OUT, LONG, UNEVEN, DUPLICATE = range(1, len(REASONS) + 1)


class Filters(NamedTuple):
    """Which pairs are left out, and what comes before the texts of each file."""

    max_length: int
    max_ratio: float | None
    scripts: tuple[tuple[str, ...], tuple[str, ...]]  # of sources, of targets
    held_out: frozenset[str]
    drop_duplicates: bool
    tags: tuple[tuple[str | None, ...], tuple[str | None, ...]]  # for each file


class Part(NamedTuple):
    """Lines of a pair of files, the first of them line `start`, counted from 0."""

    file: int
    start: int
    sources: list[bytes]
    targets: list[bytes]


def tokenize_files(
    files: Sequence[tuple[str, str]],
    tokenize: "Tokenize",
    workers: int | None,
    verbose: bool,
) -> list[tuple[int, Path]]:
    """Makes the parts that are missing; returns the file number and path of all, in order.

    Raises:
        ValueError: when a process dies, or files change while they are read.
    """
    made: list[tuple[int, Path]] = []
    progress = _Progress(verbose)

    def missing() -> Iterator[Part]:
        for part in _read_parts(files):
            path = tokenize.locate(part)
            made.append((part.file, path))
            if not path.exists():
                yield part

    waiting = missing()
    first = list(itertools.islice(waiting, 2))
    if len(first) < 2 or workers == 1:  # not worth other processes
        for part in itertools.chain(first, waiting):
            tokenize(part, progress.add)
        return made
    todo = itertools.chain(first, waiting)
    workers = workers or count_processors()
    # A GPU is left to the training: tokenizers do not use it.
    variables = {"CUDA_VISIBLE_DEVICES": "-1"}
    for _, result in call_in_processes(tokenize, todo, workers, progress.add, variables):
        if isinstance(result, Died):
            raise ValueError(
                f"a process that prepares {tokenize.folder.parent} ended {result.how}. What is "
                "done stays: the same call goes on"
            )
    return made


def _read_parts(files: Sequence[tuple[str, str]]) -> Iterator[Part]:
    """Yields the lines of all files, in order."""
    for file, paths in enumerate(files):
        pairs = itertools.zip_longest(*(each_line(path, LONGEST_LINE) for path in paths))
        start = 0
        while taken := _take(pairs):
            if None in taken[-1]:  # they had equally many lines when these were counted
                raise ValueError(f"{paths[0]} or {paths[1]} has changed. Run the same call again")
            sources, targets = map(list, zip(*taken, strict=True))
            yield Part(file, start, sources, targets)
            start += len(taken)


def _take(pairs: Iterator[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The pairs of the next part, fewer where they are long."""
    taken, room = [], PART_BYTES
    for pair in pairs:
        taken.append(pair)
        if None in pair:
            break
        room -= len(pair[0]) + len(pair[1])
        if len(taken) == LINES_PER_PART or room <= 0:
            break
    return taken


class _Progress:
    """A line of progress from time to time."""

    def __init__(self, verbose: bool) -> None:
        self.verbose, self.pairs = verbose, 0
        self.begun = self.last = time.monotonic()

    def add(self, pairs: int) -> None:
        """Counts pairs."""
        self.pairs += pairs
        now = time.monotonic()
        if self.verbose and now - self.last > SECONDS_BETWEEN_LINES:
            self.last = now
            speed = self.pairs / (now - self.begun)
            print(f"tokenized {self.pairs:,} pairs, {speed:,.0f} a second", file=sys.stderr)


class Tokenize:
    """Filters and tokenizes parts, each into a file of its own.

    Args:
        folder: of the files.
        tokenizers: of sources and of targets.
        filters: the `Filters`.
    """

    def __init__(self, folder: Path, tokenizers: Sequence[TokenizerLike], filters: Filters) -> None:
        self.folder, self.tokenizers, self.filters = folder, tokenizers, filters

    def locate(self, part: Part) -> Path:
        """The file of a part."""
        return self.folder / f"{part.file}-{part.start}-{len(part.sources)}.npz"

    def __call__(self, part: Part, tell: Callable[[int], None]) -> None:
        """Writes the ids and lengths of the pairs kept, digests of their texts, and counts."""
        filters = self.filters
        lines = part.sources, part.targets
        texts, reasons = _decode(lines)
        _mark(reasons, EMPTY, [not (s.strip() and t.strip()) for s, t in zip(*texts, strict=True)])
        for side, scripts in zip(texts, filters.scripts, strict=True):
            if scripts:
                _mark(reasons, SCRIPT, ~are_of_scripts(side, scripts))
        _mark(reasons, HELD_OUT, [text in filters.held_out for text in texts[0]])
        kept = np.flatnonzero(reasons == 0)
        stores = [
            tokenize_all([side[n] for n in kept], _tagged(tokenizer, tags[part.file]), name, False)
            for side, tokenizer, tags, name in zip(
                texts, self.tokenizers, filters.tags, SIDES, strict=True
            )
        ]
        lengths = np.stack([store.lengths + 1 for store in stores])  # with eos
        shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
        judged = reasons[kept]
        _mark(judged, EMPTY, shorter <= 1)
        _mark(judged, LONG, longer > filters.max_length)
        if filters.max_ratio is not None:
            _mark(judged, UNEVEN, longer > filters.max_ratio * shorter)
        reasons[kept] = judged
        own = kept[judged == 0]
        arrays: dict[str, Any] = {"counts": np.bincount(reasons, minlength=1 + len(REASONS))}
        if filters.drop_duplicates:
            arrays["digests"] = np.array([_digest(lines, n) for n in own], "uint64")
        for store, name in zip(stores, SIDES, strict=True):
            arrays[f"{name}.lengths"] = store.lengths[judged == 0].astype("int32")
            arrays[f"{name}.ids"] = store.flat[np.repeat(judged == 0, store.lengths)]
        data = io.BytesIO()
        np.savez(data, **arrays)
        with unwritable_named(self.locate(part)):
            write_atomically(self.locate(part), data.getvalue())
        tell(len(reasons))


def _mark(reasons: np.ndarray, reason: int, is_so: Any) -> None:
    """Notes a reason for the pairs that have none yet."""
    reasons[(reasons == 0) & np.asarray(is_so, bool)] = reason


def _decode(lines: Sequence[list[bytes]]) -> tuple[list[list[str]], np.ndarray]:
    """The texts of both sides, "" where there is no UTF-8, and the reasons (pairs,)."""
    reasons = np.zeros(len(lines[0]), "int64")
    _mark(
        reasons,
        LONG,
        [len(s) > LONGEST_LINE or len(t) > LONGEST_LINE for s, t in zip(*lines, strict=True)],
    )
    texts = []
    for side in lines:
        try:
            texts.append(b"\n".join(side).decode("utf-8").split("\n"))
        except UnicodeDecodeError:
            decoded = [_text_or_none(line) for line in side]
            _mark(reasons, NO_UTF8, [text is None for text in decoded])
            texts.append([text or "" for text in decoded])
    return texts, reasons


def _text_or_none(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _tagged(tokenizer: Any, tag: str | None) -> Any:
    return tokenizer if tag is None else TaggedTokenizer(tokenizer, tag)


def _digest(lines: Sequence[list[bytes]], number: int) -> int:
    """64 bits that tell the texts of a pair from others; a line feed is in none of them."""
    pair = b"\n".join(side[number] for side in lines)
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")
