"""A tokenized corpus as two flat arrays, and padded batches cut from it."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from keras_transformer.integer_ids import LARGEST_EXACT, refuse_inexact

ROWS_PER_BLOCK = 65_536


class SpecialIds(NamedTuple):
    """The ids that are not tokens, and whether sources end in `eos_id`."""

    pad_id: int
    bos_id: int
    eos_id: int
    source_eos: bool = True


@dataclasses.dataclass(frozen=True)
class TokenStore:
    """The ids of many texts.

    Args:
        flat: array of integers, all ids.
        starts: int64 array (texts,), where in `flat` each text begins. Several may begin at one.
        lengths: int array (texts,), the number of tokens of each.
    """

    flat: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of_lengths(cls, flat: np.ndarray, lengths: np.ndarray) -> Self:
        """The store of texts that lie in `flat` one after the other."""
        return cls(flat, np.cumsum(lengths, dtype="int64") - lengths, lengths)

    @classmethod
    def of_rows(cls, name: str, rows: Iterable[ArrayLike], special: SpecialIds) -> Self:
        """Keeps rows of ids, none of them one of `special`; `name` is what errors call them."""
        flats, lengths = [np.zeros(0, "int32")], list[int]()
        rows = iter(rows)
        while block := list(itertools.islice(rows, ROWS_PER_BLOCK)):
            arrays = [_ids(name, len(lengths) + n, row) for n, row in enumerate(block)]
            flat = np.concatenate(arrays)
            _check_ids(name, flat, special)
            flats.append(flat.astype("int32"))
            lengths.extend(map(len, arrays))
        return cls.of_lengths(np.concatenate(flats), np.array(lengths, "int64"))

    def __getitem__(self, index: int) -> list[int]:
        """The ids of one text, as a list."""
        start = self.starts[index]
        return self.flat[start : start + self.lengths[index]].tolist()

    @property
    def expected_lengths(self) -> np.ndarray:
        """The room that each text needs, in every pass over the texts the same."""
        return self.lengths

    def of_pass(self, number: int, room: Callable[[], np.ndarray]) -> Self:
        """The ids in pass `number` over the texts: these."""
        return self

    def count_tokens(self, members: np.ndarray) -> np.ndarray:
        """The number of tokens of some texts, an int array of them."""
        return self.lengths[members]

    def padded(
        self,
        members: np.ndarray,
        shape: tuple[int, int],
        pad_id: int,
        first_id: int | None = None,
        last_id: int | None = None,
    ) -> np.ndarray:
        """Returns rows of tokens, with an id put before or after each, padded to `shape`.

        Args:
            members: int array, the texts of the rows; further rows are all padding.
            shape: (rows, length), room for all of it.
            pad_id: the id of padding.
            first_id: the id before each text, or None.
            last_id: the id after each text, or None.

        Returns:
            int32 array of `shape`.
        """
        rows = np.full(shape, pad_id, dtype="int32")
        lengths = self.count_tokens(members)
        start = 0 if first_id is None else 1
        places = np.arange(shape[1] - start)
        real = places < lengths[:, None]
        tokens = (self.starts[members][:, None] + places)[real]
        rows[: len(members), start:][real] = self.flat[tokens]
        if first_id is not None:
            rows[: len(members), 0] = first_id
        if last_id is not None:
            rows[np.arange(len(members)), start + lengths] = last_id
        return rows


def _ids(name: str, number: int, row: ArrayLike) -> np.ndarray:
    """A row as an array of integers, also from floats that are whole numbers."""
    try:
        ids: np.ndarray | None = np.asarray(row)
    except ValueError:  # lists of several lengths
        ids = None
    if ids is not None and ids.ndim == 1 and ids.dtype.name in LARGEST_EXACT:
        refuse_inexact(f"{name}[{number}]", ids, ids.dtype.name)
        ids = ids.astype("int64")
    if ids is None or ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise TypeError(
            f"`{name}` must be rows of integers. Received: {name}[{number}]={row!r:.100}"
        )
    return ids if ids.size else np.zeros(0, "int32")


def _check_ids(name: str, flat: np.ndarray, special: SpecialIds) -> None:
    ids = special[:3]
    bad = (flat < 0) | np.isin(flat, ids) | (flat > np.iinfo("int32").max)
    if bad.any():
        raise ValueError(
            f"`{name}` must hold no negative id, none above 2**31 - 1 and none of the special ids "
            f"{ids}, which the dataset adds. Received: {int(flat[bad.argmax()])}"
        )
