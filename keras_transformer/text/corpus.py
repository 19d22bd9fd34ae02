"""prepare_corpus: line-aligned files, tokenized once by several processes, as arrays on disk."""

import contextlib
import hashlib
import io
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_transformer import arguments
from keras_transformer.atomic_files import write_atomically
from keras_transformer.batches.prepared_corpus import (
    DESCRIPTION,
    SIDES,
    VERSION,
    PreparedCorpus,
    write_corpus,
)
from keras_transformer.line_files import check_is_file, each_line
from keras_transformer.processes import Died, call_in_processes, count_processors
from keras_transformer.text.scripts import are_of_scripts, checked_scripts
from keras_transformer.text.tokenization import (
    TaggedTokenizer,
    TokenizerLike,
    check_same_special_ids,
    digest_tokenizer,
    read_special_ids,
    tokenize_all,
)

LINES_PER_PART = 20_000
LONGEST_LINE = 2**20  # bytes; a longer line is too long for any model
SECONDS_BETWEEN_LINES = 5.0
JOINED = "joined"  # the folder of the arrays until they are whole
CONTENTS = "contents.json"  # what files held when they were last read whole
REASONS = ("no UTF-8", "empty", "of another script", "held out", "too long", "uneven", "duplicate")
NO_UTF8, EMPTY, SCRIPT, HELD_OUT, LONG, UNEVEN, DUPLICATE = range(1, len(REASONS) + 1)

Paths = Sequence[str | PathLike[str]]


class Filters(NamedTuple):
    """Which pairs are left out, and what comes before the texts of each file."""

    max_length: int
    max_ratio: float | None
    scripts: tuple[tuple[str, ...], tuple[str, ...]]  # of sources, of targets
    held_out: frozenset[str]
    drop_duplicates: bool
    tags: tuple[tuple[str | None, ...], tuple[str | None, ...]]  # for each file


class Part(NamedTuple):
    """Lines of a pair of files."""

    file: int
    number: int
    sources: list[bytes]
    targets: list[bytes]


def prepare_corpus(
    directory: str | PathLike[str],
    source_files: str | PathLike[str] | Paths,
    target_files: str | PathLike[str] | Paths,
    source_tokenizer: TokenizerLike,
    target_tokenizer: TokenizerLike | None = None,
    *,
    max_length: int = 256,
    max_ratio: float | None = None,
    source_scripts: Sequence[str] = (),
    target_scripts: Sequence[str] = (),
    drop_duplicates: bool = False,
    held_out: Iterable[str] = (),
    weights: Sequence[float] | None = None,
    temperature: float = 1.0,
    source_tags: str | Sequence[str | None] | None = None,
    target_tags: str | Sequence[str | None] | None = None,
    workers: int | None = None,
    verbose: bool = True,
) -> PreparedCorpus:
    """Tokenizes a corpus that need not fit into memory, or finds it where that was done before.

    Line n of a source file translates into line n of its target file. Files are plain text or
    gzip, in UTF-8. `translation_dataset` and `PairDataset` read the result as they read lists of
    the pairs that are kept: the same batches in the same order.

    The corpus is in `directory/DIGEST`. The digest is of the contents of the files, the tokenizers
    and the arguments, so any number of corpora share a directory. Stopped or killed, the same
    call goes on with the parts that are not done.

    Filters count each pair that they leave out for one reason, the first of these:

    | reason | left out are pairs |
    |---|---|
    | no UTF-8 | with a side that is not valid UTF-8 |
    | empty | with a side without text or tokens |
    | of another script | with a side whose letters are mostly of none of its `scripts` |
    | held out | whose source is in `held_out` |
    | too long | with a side of more than `max_length` tokens, eos included |
    | uneven | whose longer side has more than `max_ratio` times the tokens of the shorter |
    | duplicate | whose texts came before, with `drop_duplicates`; 64 bits of a digest tell |

    A pass has each pair once, or as often as the weight of its file says. With a temperature T
    the share of a file of n pairs is that of

        n ** (1 / T)

    and the file that comes least often comes once.

    Args:
        directory: where corpora are kept; made when it is not there.
        source_files, target_files: a file or several, as many on both sides.
        source_tokenizer: a tokenizer of this package.
        target_tokenizer: the same for the targets; None uses `source_tokenizer`.
        max_length: the most tokens of a side, eos and tag included.
        max_ratio: the largest ratio of the tokens of both sides; None for any.
        source_scripts, target_scripts: names of scripts as Unicode has them, such as "Latin", or
            "Han", "Hiragana" and "Katakana" for Japanese; none for any.
        drop_duplicates: whether a pair comes once, however often the files have it.
        held_out: sources that no pair may have, such as those of the test.
        weights: how often a pass has each pair of a file, a number of at least 1 for each file. 2.5
            is twice for one half of the pairs, three times for the other.
        temperature: of the sampling from files, at least 1; 1 has every pair once.
        source_tags, target_tags: a tag that comes before all texts, or one for each file, such as
            a language code; None for none. With `leading_tags` of the tokenizer a tag that a text
            begins with takes its place.
        workers: processes that tokenize; None for as many as there are processors.
        verbose: whether to write progress, and what was left out, to standard error.

    Returns:
        The prepared corpus, which `translation_dataset` and `PairDataset` read like lists.

    Raises:
        ValueError: when files differ in their numbers of lines, are damaged or missing, no pair is
            left, a process died, or an argument is bad.

    Reference: Arivazhagan et al. 2019, "Massively Multilingual Neural Machine Translation in the
    Wild", section 4.2, for the temperature.

    Example:

    >>> prepare_corpus("corpora", ["a.en"], ["a.de", "b.de"], None)
    Traceback (most recent call last):
        ...
    ValueError: `source_files` and `target_files` must be equally many. Received: 1 and 2
    """
    files = _paired_files(source_files, target_files)
    target_tokenizer = source_tokenizer if target_tokenizer is None else target_tokenizer
    tokenizers = source_tokenizer, target_tokenizer
    filters = Filters(
        arguments.positive_integer("max_length", max_length),
        None if max_ratio is None else arguments.number_within("max_ratio", max_ratio, 1, np.inf),
        (
            checked_scripts("source_scripts", source_scripts),
            checked_scripts("target_scripts", target_scripts),
        ),
        frozenset(held_out),
        arguments.boolean("drop_duplicates", drop_duplicates),
        (
            _tags("source_tags", source_tags, len(files)),
            _tags("target_tags", target_tags, len(files)),
        ),
    )
    temperature = arguments.number_within("temperature", temperature, 1, np.inf)
    weights = _weights(weights, temperature, len(files))
    workers = arguments.optional(arguments.positive_integer, "workers", workers)
    check_same_special_ids(*tokenizers)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    description: dict[str, Any] = {
        "special_ids": read_special_ids(source_tokenizer),
        "tokenizers": dict(zip(SIDES, map(digest_tokenizer, tokenizers), strict=True)),
    }
    told = {**filters._asdict(), "held_out": sorted(filters.held_out)}
    told |= {"weights": weights, "temperature": temperature}
    contents = _contents(directory, [path for pair in files for path in pair])
    whole = json.dumps([VERSION, LINES_PER_PART, description, told, contents])
    description["digest"] = hashlib.sha256(whole.encode()).hexdigest()[:16]
    path = directory / description["digest"]
    with _alone(directory / f"{path.name}.lock", verbose):
        parts = directory / f"{path.name}.parts"
        if not (path / DESCRIPTION).exists():
            parts.mkdir(exist_ok=True)
            made = _tokenize(files, parts, Tokenize(parts, tokenizers, filters), workers, verbose)
            joined = parts / JOINED
            shutil.rmtree(joined, ignore_errors=True)  # of a call that was killed here
            joined.mkdir()
            _join(
                made,
                joined,
                description,
                filters=filters,
                weights=weights,
                temperature=temperature,
            )
            os.replace(joined, path)
        shutil.rmtree(parts, ignore_errors=True)
    corpus = PreparedCorpus(path)
    if verbose:
        print(corpus.report.summary(), file=sys.stderr)
    return corpus


def _paired_files(source_files: Any, target_files: Any) -> list[tuple[str, str]]:
    """The files in pairs; all of them are there."""
    sides = [
        [os.fspath(files)] if isinstance(files, (str, PathLike)) else [os.fspath(f) for f in files]
        for files in (source_files, target_files)
    ]
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        raise ValueError(
            "`source_files` and `target_files` must be equally many. "
            f"Received: {len(sides[0])} and {len(sides[1])}"
        )
    for path in itertools.chain(*sides):
        check_is_file(path)
    return list(zip(*sides, strict=True))


def _tags(name: str, tags: Any, count: int) -> tuple[str | None, ...]:
    """A tag or None for each file."""
    found = (tags,) * count if tags is None or isinstance(tags, str) else tuple(tags)
    if len(found) != count:
        raise ValueError(f"`{name}` must be one for each of {count} files. Received: {tags!r}")
    return found


def _weights(weights: Any, temperature: float, count: int) -> tuple[float, ...] | None:
    if weights is None:
        return None
    if temperature != 1:
        raise ValueError(
            "give `weights` or `temperature`, not both. "
            f"Received: weights={weights!r}, temperature={temperature}"
        )
    if len(weights) != count:
        raise ValueError(f"`weights` must be one for each of {count} files. Received: {weights!r}")
    return tuple(arguments.number_within("weights", weight, 1, np.inf) for weight in weights)


def _contents(directory: Path, paths: Sequence[str]) -> list[str]:
    """A digest of the bytes of each file, read again only where size or time have changed."""
    file = directory / CONTENTS
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    found: dict[str, list[Any]] = {}
    for path in paths:
        key, status = os.path.abspath(path), os.stat(path)
        state = [status.st_size, status.st_mtime_ns]
        if known.get(key, [])[:2] == state:
            found[key] = known[key]
        else:
            with open(path, "rb") as opened:
                found[key] = [*state, hashlib.file_digest(opened, "sha256").hexdigest()]
    if known != known | found:
        write_atomically(file, json.dumps(known | found, indent=2).encode())
    return [found[os.path.abspath(path)][2] for path in paths]


@contextlib.contextmanager
def _alone(path: Path, verbose: bool) -> Iterator[None]:
    """Waits until no other process is in this block with the same file, and says that it waits."""
    import fcntl

    with open(path, "wb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if verbose:
                print(
                    f"another process prepares this corpus: waiting until it ends ({path})",
                    file=sys.stderr,
                    flush=True,
                )
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _tokenize(
    files: Sequence[tuple[str, str]],
    folder: Path,
    tokenize: "Tokenize",
    workers: int | None,
    verbose: bool,
) -> list[tuple[int, Path]]:
    """Makes the parts that are missing; returns the file number and path of all, in order."""
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
                f"a process that prepares {folder.parent} ended {result.how}. What is done stays: "
                "the same call goes on"
            )
    return made


def _read_parts(files: Sequence[tuple[str, str]]) -> Iterator[Part]:
    """Yields the lines of all files, in order."""
    for file, (source, target) in enumerate(files):
        sources, targets = each_line(source, LONGEST_LINE), each_line(target, LONGEST_LINE)
        for number in itertools.count():
            part = Part(
                file,
                number,
                list(itertools.islice(sources, LINES_PER_PART)),
                list(itertools.islice(targets, LINES_PER_PART)),
            )
            if len(part.sources) != len(part.targets):
                before = number * LINES_PER_PART
                counts = [
                    before + len(lines) + sum(1 for _ in rest)
                    for lines, rest in ((part.sources, sources), (part.targets, targets))
                ]
                raise ValueError(
                    f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}. Line n of "
                    "one must translate line n of the other: give files of equal length."
                )
            if not part.sources:
                break
            yield part


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
        return self.folder / f"{part.file}-{part.number}.npz"

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
        tag_lengths = np.array([[tags[part.file] is not None] for tags in filters.tags])
        _mark(judged, EMPTY, (lengths - tag_lengths <= 1).any(axis=0))
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


def _join(
    made: Sequence[tuple[int, Path]],
    path: Path,
    description: dict[str, Any],
    *,
    filters: Filters,
    weights: Sequence[float] | None,
    temperature: float,
) -> None:
    """Writes the arrays of a corpus from its parts, one part in memory at a time."""
    counts = np.zeros(1 + len(REASONS), "int64")
    digests, files, largest = [np.zeros(0, "uint64")], [np.zeros(0, "int32")], 0
    lengths: dict[str, list[np.ndarray]] = {side: [np.zeros(0, "int32")] for side in SIDES}
    for file, part in made:
        with np.load(part) as arrays:
            counts += arrays["counts"]
            if filters.drop_duplicates:
                digests.append(arrays["digests"])
            files.append(np.full(int(arrays["counts"][0]), file, "int32"))
            for side in SIDES:
                lengths[side].append(arrays[f"{side}.lengths"])
                largest = max(largest, int(arrays[f"{side}.ids"].max(initial=0)))
    kept = np.ones(sum(map(len, files)), bool)
    if filters.drop_duplicates:
        kept[:] = False
        kept[np.unique(np.concatenate(digests), return_index=True)[1]] = True
    counts[DUPLICATE] = np.count_nonzero(~kept)
    counts[0] -= counts[DUPLICATE]
    if not counts[0]:
        reasons = zip(counts[1:], REASONS, strict=True)
        found = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        raise ValueError(
            "at least one pair must be left. "
            f"Received: {counts.sum():,} pairs. Left out: {found or 'none'}"
        )
    rows = _rows(np.concatenate(files)[kept], weights, temperature)
    dtype = "uint16" if largest < 2**16 else "int32"
    index: dict[str, np.ndarray] = {}
    for side in SIDES:
        sizes = np.concatenate(lengths[side])
        shape = (int(sizes[kept].sum()),)
        flat = np.lib.format.open_memmap(path / f"{side}.ids.npy", "w+", dtype, shape)
        end, first = 0, 0
        for _, part in made:
            with np.load(part) as arrays:
                ids, own = arrays[f"{side}.ids"], arrays[f"{side}.lengths"]
            ids = ids[np.repeat(kept[first : first + len(own)], own)]
            flat[end : end + len(ids)] = ids
            end, first = end + len(ids), first + len(own)
        flat.flush()
        sizes = sizes[kept]
        index[f"{side}.starts"] = (np.cumsum(sizes, dtype="int64") - sizes)[rows]
        index[f"{side}.lengths"] = sizes[rows]
    report = {
        "num_pairs": int(counts.sum()),
        "num_kept": int(counts[0]),
        "num_rows": len(rows),
        "left_out": dict(zip(REASONS, counts[1:].tolist(), strict=True)),
    }
    write_corpus(path, {**description, "report": report}, index)


def _rows(files: np.ndarray, weights: Sequence[float] | None, temperature: float) -> np.ndarray:
    """The pair of each row of a pass, an int array; `files` (pairs,) is the file of each."""
    numbers, sizes = np.unique(files, return_counts=True)
    if weights is not None:
        often = np.array(weights)[numbers]
    else:
        often = sizes ** (1 / temperature - 1)
        often /= often.min()
    rows = []
    for number, weight in zip(numbers, often, strict=True):
        own = np.flatnonzero(files == number)
        draws = np.random.default_rng(int(number))
        some = draws.choice(own, round((weight % 1) * len(own)), replace=False)
        rows += [own] * int(weight) + [np.sort(some)]
    return np.concatenate(rows)
