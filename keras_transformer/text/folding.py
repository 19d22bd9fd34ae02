"""Folding: the normal form and the lower case of a text, in the graph, before it is split."""

import functools
import sys
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_transformer import arguments

FORMS = {"identity": None, "nfc": "NFC", "nfkc": "NFKC"}
TEXTS_PER_CALL = 4096
CAPITAL_SIGMA, FINAL_SIGMA = ord("Σ"), ord("ς")
CASED, IGNORABLE = 1, 2  # what a character is to the sigmas around it
UNASSIGNED = ("Cn", "Co", "Cs")  # categories of code points that have no case
BEYOND = 2**40  # an offset that no string has


class Folding:
    """Gives strings their Unicode normal form, then their lower case.

    Both are Python's: `unicodedata.normalize` and `str.lower`. A graph has the lower case of the
    Python that built it, whatever the locale of the server.

    Args:
        normalization: "identity" leaves text as it is. "nfc" composes characters. "nfkc" also
            replaces those that Unicode calls compatible, such as full-width letters.
        lowercase: whether text is lower-cased.

    Raises:
        ValueError: for another `normalization`, or a `lowercase` that is not a bool.
    """

    def __init__(self, normalization: str, lowercase: bool) -> None:
        self.normalization = arguments.one_of("normalization", normalization, tuple(FORMS))
        self.lowercase = arguments.boolean("lowercase", lowercase)
        self._form = FORMS[normalization]

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Returns the folded strings (batch,) of valid UTF-8 strings."""
        if self._form:
            strings = tf_text.normalize_utf8(strings, self._form)
        return lower(strings, self._cases) if self.lowercase else strings

    def source_offsets(
        self, strings: tf.Tensor, *offsets: tf.RaggedTensor
    ) -> list[tf.RaggedTensor]:
        """Returns ragged byte offsets in the folded strings as offsets in `strings`."""
        if self._form:
            # The operation below crashes on no rows, so there is one more.
            padded = tf.concat([strings, [""]], axis=0)
            normal, changes = tf_text.normalize_utf8_with_offsets_map(padded, self._form)
            strings = normal[:-1]
        found = list(offsets)
        if self.lowercase:
            found = offsets_before_lower(strings, found, self._cases)
        if self._form:
            # It refuses a row without an offset, so each row gets one more.
            row = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), [0, 0])
            more = tf.zeros_like(padded, tf.int64)[:, None]
            found = [tf.concat([tf.cast(each, tf.int64), row], axis=0) for each in found]
            found = [tf.concat([each, more], axis=1) for each in found]
            found = [tf_text.find_source_offsets(changes, each)[:-1, :-1] for each in found]
        return found

    def fold_texts(self, texts: list[str]) -> list[str]:
        """Returns the folded texts of a list of `str` without surrogates."""
        if not self._form and not self.lowercase:
            return texts
        return [
            text.decode()
            for start in range(0, len(texts), TEXTS_PER_CALL)
            for text in self(tf.constant(texts[start : start + TEXTS_PER_CALL])).numpy()
        ]

    def options(self) -> dict[str, Any]:
        """Returns what a saved tokenizer holds: the arguments that are not the default."""
        options = {"normalization": self.normalization} if self._form else {}
        return options | ({"lowercase": True} if self.lowercase else {})

    @functools.cached_property
    def _cases(self) -> "Cases":
        return Cases()


class Cases:
    """The lower case of each code point, asked of `str.lower`.

    `longer` maps a character to a lower case of several. The others are `Steps`. `change` is what
    lower case adds to a code point, and `growth` what it adds to its bytes in UTF-8. `kind` is
    CASED, IGNORABLE or 0.
    """

    def __init__(self) -> None:
        numbers = range(sys.maxunicode + 1)
        known = [at for at in numbers if unicodedata.category(chr(at)) not in UNASSIGNED]
        lowered = {at: chr(at).lower() for at in known}
        self.longer = {chr(at): text for at, text in lowered.items() if len(text) > 1}
        change, growth, kind = np.zeros((3, len(numbers)), "int32")
        for at, text in lowered.items():
            change[at] = ord(text) - at if len(text) == 1 else 0
            growth[at] = len(text.encode()) - len(chr(at).encode())
            # A sigma after a cased character is final; one that is ignorable does not hide it.
            if ends_in_final_sigma(chr(at)):
                kind[at] = CASED
            elif ends_in_final_sigma(f"a{chr(at)}"):
                kind[at] = IGNORABLE
        self.change, self.growth, self.kind = Steps(change), Steps(growth), Steps(kind)


class Steps:
    """A number for each code point, kept as the points at which it changes."""

    def __init__(self, numbers: np.ndarray) -> None:
        self._starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1)).astype("int32")
        self._numbers = numbers[self._starts]

    def at(self, points: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of a flat tensor of code points."""
        places = tf.searchsorted(tf.constant(self._starts), points, side="right") - 1
        return tf.gather(tf.constant(self._numbers), places)


def lower(strings: tf.Tensor, cases: Cases) -> tf.Tensor:
    """Returns the lower case of valid UTF-8 strings (batch,), as `str.lower`."""
    for character, lowered in cases.longer.items():
        strings = tf.strings.regex_replace(strings, character, lowered)
    points = tf.strings.unicode_decode(strings, "UTF-8")
    values = points.flat_values
    lowered = tf.where(
        (values == CAPITAL_SIGMA) & ends_words(points, cases),
        FINAL_SIGMA,
        values + cases.change.at(values),
    )
    return tf.strings.unicode_encode(points.with_flat_values(lowered), "UTF-8")


def ends_words(points: tf.RaggedTensor, cases: Cases) -> tf.Tensor:
    """Whether before each ragged code point, flat, a cased one comes and after it none.

    Case-ignorable ones count as not there, and are not told of themselves.
    """
    kinds, rows = cases.kind.at(points.flat_values), points.value_rowids()
    counted = tf.where(kinds != IGNORABLE)[:, 0]
    cased, rows = tf.gather(kinds, counted) == CASED, tf.gather(rows, counted)
    same_row = rows[1:] == rows[:-1]
    before = tf.pad(cased[:-1] & same_row, [[1, 0]])[: tf.size(cased)]
    after = tf.pad(cased[1:] & same_row, [[0, 1]])[: tf.size(cased)]
    found = tf.boolean_mask(counted, before & ~after)
    size = tf.size(kinds, tf.int64)
    return tf.scatter_nd(found[:, None], tf.ones_like(found), size[None]) > 0


def offsets_before_lower(
    strings: tf.Tensor, offsets: Iterable[tf.RaggedTensor], cases: Cases
) -> list[tf.RaggedTensor]:
    """Returns ragged byte offsets in lower-cased strings as offsets in `strings`."""
    points, starts = tf.strings.unicode_decode_with_offsets(strings, "UTF-8")
    growth = points.with_flat_values(cases.growth.at(points.flat_values))
    sizes = tf.strings.length(strings)[:, None]
    # -> (batch, characters + 1), where each character starts, and where the string ends
    starts = tf.concat([starts, tf.cast(sizes, tf.int64)], axis=1).to_tensor(BEYOND)
    growth = tf.concat([growth, tf.zeros_like(sizes)], axis=1).to_tensor()
    lowered = starts + tf.cumsum(tf.cast(growth, tf.int64), axis=1, exclusive=True)
    found = []
    for each in offsets:
        places = tf.searchsorted(lowered, tf.cast(each, tf.int64).to_tensor(), side="right") - 1
        before = tf.gather(starts, places, batch_dims=1)
        found.append(tf.RaggedTensor.from_tensor(before, lengths=each.row_lengths()))
    return found


def ends_in_final_sigma(text: str) -> bool:
    """Whether a capital sigma after the text is a final one."""
    return f"{text}Σ".lower()[-1] == "ς"
