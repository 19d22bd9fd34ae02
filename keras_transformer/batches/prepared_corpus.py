"""PreparedCorpus: a tokenized corpus on disk, whose arrays are mapped into memory."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.atomic_files import write_atomically
from keras_transformer.batches.token_store import TokenStore

VERSION = 1  # of the arrays and of the filters: other numbers are prepared anew
DESCRIPTION = "corpus.json"
SIDES = ("source", "target")
ARRAYS = ("ids", "starts", "lengths")


@dataclasses.dataclass(frozen=True)
class CorpusReport:
    """What became of the pairs of a corpus.

    Args:
        num_pairs: pairs read.
        num_kept: pairs kept.
        num_rows: pairs of a pass, those of files with weights counted as often as they come.
        left_out: the number of pairs left out for each reason; a pair counts for the first.

    Example:

    >>> CorpusReport(9, 7, 12, {"empty": 2, "duplicate": 0}).summary()
    'corpus: 7 of 9 pairs, 12 a pass; left out 2 empty'
    """

    num_pairs: int
    num_kept: int
    num_rows: int
    left_out: dict[str, int]

    def summary(self) -> str:
        """Returns one line."""
        line = f"corpus: {self.num_kept:,} of {self.num_pairs:,} pairs"
        if self.num_rows != self.num_kept:
            line += f", {self.num_rows:,} a pass"
        found = [f"{count:,} {reason}" for reason, count in self.left_out.items() if count]
        return line + ("; left out " + ", ".join(found) if found else "")


@dataclasses.dataclass(frozen=True)
class PreparedSide(TokenStore):
    """The sources or the targets of a `PreparedCorpus`, in the place of lists.

    Args:
        flat, starts, lengths: as of a `TokenStore`.
        corpus: digest of the corpus.
        tokenizer: digest of the tokenizer that made the ids.
        special_ids: (pad_id, bos_id, eos_id), which are none of the ids.
        path: directory of the corpus.
    """

    corpus: str
    tokenizer: str
    special_ids: tuple[int, int, int]
    path: Path | None = None

    def __len__(self) -> int:
        return len(self.starts)


class PreparedCorpus:
    """A corpus that `text.prepare_corpus` has tokenized, opened without TensorFlow.

    Give `sources` and `targets` in the place of lists, to `text.translation_dataset` with the
    tokenizers, or to `PairDataset` with their special ids.

    Args:
        path: the directory of the corpus.

    Attributes:
        path: the argument, a `Path`.
        digest: 16 characters that tell it from corpora of other texts, tokenizers and filters.
        report: a `CorpusReport`.
        sources, targets: the ids of both sides, arrays mapped into memory.

    Raises:
        ValueError: when there is no such corpus, or its arrays do not fit together.

    Example:

    >>> PreparedCorpus("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: `path` must be the directory of a prepared corpus. Received: path='nowhere'
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        file = self.path / DESCRIPTION
        if not file.exists():
            raise ValueError(
                "`path` must be the directory of a prepared corpus. "
                f"Received: path={os.fspath(path)!r}"
            )
        found = json.loads(file.read_text(encoding="utf-8"))
        self.digest: str = found["digest"]
        self.report = CorpusReport(**found["report"])
        self.sources, self.targets = (self._open(side, found) for side in SIDES)

    def _open(self, side: str, found: dict[str, Any]) -> PreparedSide:
        flat, starts, lengths = arrays = [
            np.asarray(np.load(self.path / f"{side}.{name}.npy", mmap_mode="r")) for name in ARRAYS
        ]
        rows = self.report.num_rows
        if starts.shape != (rows,) or lengths.shape != (rows,) or flat.ndim != 1:
            raise ValueError(
                f"{self.path}: the arrays must be of {rows} rows. Received: {side} arrays of "
                f"shapes {', '.join(str(array.shape) for array in arrays)}. Delete the directory"
            )
        pad_id, bos_id, eos_id = found["special_ids"]
        return PreparedSide(
            flat,
            starts,
            lengths,
            corpus=self.digest,
            tokenizer=found["tokenizers"][side],
            special_ids=(pad_id, bos_id, eos_id),
            path=self.path,
        )


def are_prepared(
    source: tuple[str, Any], target: tuple[str, Any], special_ids: tuple[int, ...]
) -> bool:
    """Whether two arguments, names and values, are both sides of a prepared corpus.

    Raises:
        ValueError: when only one is, they are of two corpora, or the special ids are others.
    """
    sides = [value for _, value in (source, target) if isinstance(value, PreparedSide)]
    if not sides:
        return False
    names = f"`{source[0]}` and `{target[0]}`"
    if len(sides) == 1 or sides[0].corpus != sides[1].corpus:
        kinds = " and ".join(
            f"one of corpus {value.corpus}" if isinstance(value, PreparedSide) else "another list"
            for _, value in (source, target)
        )
        raise ValueError(f"{names} must both be of one prepared corpus. Received: {kinds}")
    if sides[0].special_ids != tuple(special_ids):
        raise ValueError(
            f"{names} were prepared with other special ids (pad, bos, eos). "
            f"Received: {tuple(special_ids)}, and {sides[0].special_ids} in the corpus"
        )
    return True


def write_corpus(
    path: str | PathLike[str],
    description: dict[str, Any],
    arrays: dict[str, np.ndarray],
) -> None:
    """Writes what `PreparedCorpus` reads to an existing directory that nobody reads yet.

    Args:
        path: the directory, which may have some of the arrays already.
        description: `digest`, `report`, `special_ids` and `tokenizers`.
        arrays: by names such as "source.starts".
    """
    for name, array in arrays.items():
        write_array(Path(path, f"{name}.npy"), array.shape, array.dtype, [array])
    with unwritable_named(path):
        write_atomically(Path(path, DESCRIPTION), json.dumps(description, indent=2).encode())


def write_array(
    path: str | PathLike[str], shape: tuple[int, ...], dtype: Any, parts: Iterable[np.ndarray]
) -> None:
    """Writes an array part after part, as `np.save` writes it whole, until it is on disk.

    An array mapped into memory would take no room before its pages are written. A disk that is
    full by then kills the process.

    Raises:
        OSError: when the disk is full, or the file cannot be written for another reason.
    """
    dtype = np.dtype(dtype)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with unwritable_named(path), open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype).data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def unwritable_named(path: str | PathLike[str]) -> Iterator[None]:
    """Says which file could not be written, and how to go on."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:  # it names the file that could not be opened
            raise
        message = f"{os.fspath(path)}: cannot be written ({error.strerror or error})"
        raise OSError(
            error.errno, f"{message}. What is done stays: the same call goes on"
        ) from error
