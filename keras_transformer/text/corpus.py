"""prepare_corpus: line-aligned files, tokenized once by several processes, as arrays on disk."""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer import arguments
from keras_transformer.atomic_files import lock, write_atomically
from keras_transformer.batches.prepared_corpus import (
    DESCRIPTION,
    SIDES,
    VERSION,
    PreparedCorpus,
    write_array,
    write_corpus,
)
from keras_transformer.line_files import (
    BYTE_ORDER_MARK,
    check_is_file,
    check_is_text,
    damage_named,
    open_lines,
)
from keras_transformer.text import corpus_parts
from keras_transformer.text.corpus_parts import (
    DUPLICATE,
    REASONS,
    Filters,
    Tokenize,
    tokenize_files,
)
from keras_transformer.text.scripts import checked_scripts
from keras_transformer.text.tokenization import (
    TokenizerLike,
    check_same_special_ids,
    digest_tokenizer,
    read_special_ids,
)

JOINED = "joined"  # the folder of the arrays until they are whole
CONTENTS = "contents.json"  # what files held when they were last read whole
BLOCK_BYTES = 2**20

Paths = Sequence[str | PathLike[str]]


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
        _held_out(held_out),
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
    contents = _contents(directory, files)
    whole = json.dumps([VERSION, corpus_parts.LINES_PER_PART, description, told, contents])
    description["digest"] = hashlib.sha256(whole.encode()).hexdigest()[:16]
    path = directory / description["digest"]
    with _alone(directory / f"{path.name}.lock", verbose):
        parts = directory / f"{path.name}.parts"
        if not (path / DESCRIPTION).exists():
            parts.mkdir(exist_ok=True)
            made = tokenize_files(files, Tokenize(parts, tokenizers, filters), workers, verbose)
            with _joined(parts, path) as joined:
                _join(
                    made,
                    joined,
                    description,
                    filters=filters,
                    weights=weights,
                    temperature=temperature,
                )
        shutil.rmtree(parts, ignore_errors=True)
    corpus = PreparedCorpus(path)
    if verbose:
        print(corpus.report.summary(), file=sys.stderr)
    return corpus


@contextlib.contextmanager
def _joined(parts: Path, path: Path) -> Iterator[Path]:
    """A folder in `parts` that becomes `path` when the context ends without an error."""
    joined = parts / JOINED
    shutil.rmtree(joined, ignore_errors=True)  # of a call that was killed here
    joined.mkdir()
    try:
        yield joined
    except BaseException as error:
        # Where no pair is left the same call would end so again; on a full disk it goes on.
        left = parts if isinstance(error, ValueError) else joined
        shutil.rmtree(left, ignore_errors=True)
        raise
    os.replace(joined, path)


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


def _held_out(held_out: Any) -> frozenset[str]:
    texts: list[Any] = [None] if isinstance(held_out, str) else list(held_out)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"`held_out` must be a list of texts. Received: held_out={held_out!r}")
    return frozenset(texts)


def _contents(directory: Path, files: Sequence[tuple[str, str]]) -> list[str]:
    """A digest of the bytes of each file, read again only where size or time have changed.

    Raises:
        ValueError: when the files of a pair differ in their numbers of lines, or are damaged.
    """
    file = directory / CONTENTS
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    found: dict[str, list[Any]] = {}
    for path in itertools.chain(*files):
        key, status = os.path.abspath(path), os.stat(path)
        state = [status.st_size, status.st_mtime_ns]
        found[key] = known.get(key, [])
        if found[key][:2] != state or len(found[key]) != 4:  # three are of an earlier version
            with open(path, "rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            found[key] = [*state, digest, _count_lines(path)]
    if known != known | found:
        write_atomically(file, json.dumps(known | found, indent=2).encode())
    for pair in files:
        counts = [found[os.path.abspath(path)][3] for path in pair]
        if counts[0] != counts[1]:
            raise ValueError(
                f"{pair[0]} has {counts[0]:,} lines and {pair[1]} has {counts[1]:,}. Line n of "
                "one must translate line n of the other: give files of equal length."
            )
    return [found[os.path.abspath(path)][2] for path in itertools.chain(*files)]


def _count_lines(path: str) -> int:
    """How many lines `each_line` yields, counted in blocks."""
    count, last = 0, b"\n"
    with open_lines(path) as stream, damage_named(path):
        check_is_text(stream.peek(), path)
        if stream.peek().startswith(BYTE_ORDER_MARK):
            stream.read(len(BYTE_ORDER_MARK))
        while block := stream.read(BLOCK_BYTES):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


@contextlib.contextmanager
def _alone(path: Path, verbose: bool) -> Iterator[None]:
    """Waits until no other process is in this block with the same file, and says that it waits."""
    with open(path, "wb") as stream:
        if not lock(stream):
            if verbose:
                print(
                    f"another process prepares this corpus: waiting until it ends ({path})",
                    file=sys.stderr,
                    flush=True,
                )
            lock(stream, wait=True)
        yield


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
        ids = _kept_ids([path for _, path in made], side, kept)
        write_array(path / f"{side}.ids.npy", (int(sizes[kept].sum()),), dtype, ids)
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


def _kept_ids(parts: Sequence[Path], side: str, kept: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the ids of one side of each part, without those of pairs that are not kept."""
    first = 0
    for part in parts:
        with np.load(part) as arrays:
            ids, lengths = arrays[f"{side}.ids"], arrays[f"{side}.lengths"]
        yield ids[np.repeat(kept[first : first + len(lengths)], lengths)]
        first += len(lengths)


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
