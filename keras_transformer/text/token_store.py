"""A tokenized corpus as two flat arrays, and padded batches cut from it."""

import dataclasses
import sys
import time

import numpy as np

TEXTS_PER_CALL = 4096
SECONDS_BETWEEN_LINES = 5.0


@dataclasses.dataclass(frozen=True)
class TokenStore:
    """The ids of many texts, one after the other.

    Args:
        flat: int32 array of all ids.
        offsets: int64 array (texts + 1,); text i is `flat[offsets[i]:offsets[i + 1]]`.
    """

    flat: np.ndarray
    offsets: np.ndarray

    def __getitem__(self, index):
        """The ids of one text, as a list."""
        return self.flat[self.offsets[index] : self.offsets[index + 1]].tolist()

    @property
    def lengths(self):
        """The number of tokens of each text."""
        return np.diff(self.offsets)

    @property
    def expected_lengths(self):
        """The room that each text needs, in every pass over the texts the same."""
        return self.lengths

    def of_pass(self, number, longest):
        """The ids in pass `number` over the texts: these."""
        return self

    def lengths_of(self, members):
        """The number of tokens of some texts, an int array of them."""
        return self.offsets[members + 1] - self.offsets[members]

    def padded(self, members, shape, pad_id, first_id=None, last_id=None):
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
        lengths = self.lengths_of(members)
        start = 0 if first_id is None else 1
        places = np.arange(shape[1] - start)
        real = places < lengths[:, None]
        tokens = (self.offsets[members][:, None] + places)[real]
        rows[: len(members), start:][real] = self.flat[tokens]
        if first_id is not None:
            rows[: len(members), 0] = first_id
        if last_id is not None:
            rows[np.arange(len(members)), start + lengths] = last_id
        return rows


def tokenize_all(texts, tokenizer, name, verbose):
    """Returns the `TokenStore` of a list of texts; says how far it is when that takes long."""
    flats, lengths = [np.zeros(0, "int32")], [np.zeros(1, "int64")]
    last_line = time.monotonic()
    for start in range(0, len(texts), TEXTS_PER_CALL):
        ids = tokenizer.tokenize(texts[start : start + TEXTS_PER_CALL])
        flats.append(ids.flat_values.numpy())
        lengths.append(ids.row_lengths().numpy())
        if verbose and time.monotonic() - last_line > SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            done = min(start + TEXTS_PER_CALL, len(texts))
            print(f"tokenized {done:,} of {len(texts):,} {name} texts", file=sys.stderr)
    return TokenStore(np.concatenate(flats), np.cumsum(np.concatenate(lengths)))
