"""Which row of another system's tables each of our ids has.

A model of ours has one `pad_id`, `bos_id` and `eos_id` for sources and targets. Other systems find
them by name in each vocabulary, and some have no padding, or no token that targets start from.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.text.piece_ids import SPECIAL

NEVER = -1e9  # the logit bias of a token that the other system does not have


class TokenRows(NamedTuple):
    """The tokens and the rows of one side, by our ids.

    Attributes:
        tokens: the token of each id; None where it has none, or a later one of equal tokens.
        rows: the row of each id in the tables of the other system; -1 for a row of zeros.
        never: the ids that no output has there: new ones, and copies of another id.
        special: the names of `SPECIAL` to ids.
    """

    tokens: list[str | None]
    rows: list[int]
    never: list[int]
    special: dict[str, int]

    @property
    def is_identity(self) -> bool:
        """Whether ids are rows, and there are no others."""
        return not self.never and self.rows == list(range(len(self.rows)))

    def take(self, table: np.ndarray) -> np.ndarray:
        """Returns the rows (ids, ...) of a table (rows, ...), zeros where there are none."""
        if self.is_identity:
            return table
        taken = table[self.rows]
        taken[[row < 0 for row in self.rows]] = 0
        return taken

    def bias(self, bias: np.ndarray | None) -> np.ndarray:
        """Returns the logit bias (ids,) of that of the rows: `NEVER` for ids that never come.

        None is a bias of zeros.
        """
        own = np.zeros(len(self.rows), "float32") if bias is None else self.take(bias)
        if self.never:
            own = np.array(own)
            own[self.never] = NEVER
        return own


def vocabulary_arguments(sides: Sequence[TokenRows], *, joint: bool) -> dict[str, Any]:
    """Returns the sizes of a model's vocabularies and its special ids, as its constructor has them.

    `joint` says whether source and target have one vocabulary, and one table of embeddings.
    """
    source, target = sides
    special = {name: target.special[name] for name in ("pad_id", "bos_id", "eos_id")}
    if joint:
        return {"vocab_size": len(target.rows), **special}
    sizes = {"source_vocab_size": len(source.rows), "target_vocab_size": len(target.rows)}
    return {**sizes, **special}


def number_tokens(
    vocabularies: Sequence[Sequence[str | None]],
    special_rows: Sequence[Mapping[str, int | None]],
    texts: Sequence[Sequence[bool]] | None = None,
) -> list[TokenRows]:
    """Returns the `TokenRows` of the source and of the target.

    Ids are rows where both sides have their special tokens at the same rows. What is missing is a
    new id behind all others. Elsewhere the special tokens come first, in the order of `SPECIAL`,
    and then the others in their order.

    Args:
        vocabularies: the tokens of the source and of the target by row.
        special_rows: for each the names of `SPECIAL` to rows, None for a token that is missing.
        texts: whether each token is text, for a tokenizer that lists its tokens behind four
            special ones. The other tokens come last. None for a tokenizer that has any ids.

    Example:

    >>> rows = {"pad_id": None, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    >>> source, target = number_tokens([["<unk>", "<s>", "</s>", "a"]] * 2, [rows] * 2)
    >>> source.rows, source.never, source.special["pad_id"]
    ([0, 1, 2, 3, -1], [4], 4)
    """
    sides = list(zip(vocabularies, special_rows, strict=True))
    if texts is None:
        found = [as_they_are(tokens, rows) for tokens, rows in sides]
        ids = [[side.special[name] for name in ("pad_id", "bos_id", "eos_id")] for side in found]
        if ids[0] == ids[1]:
            return found
        texts = [[True] * len(tokens) for tokens in vocabularies]
    return [special_first(*side, is_text) for side, is_text in zip(sides, texts, strict=True)]


def as_they_are(tokens: Sequence[str | None], special_rows: Mapping[str, int | None]) -> TokenRows:
    """Returns the `TokenRows` whose ids are rows, and new ids behind them for what is missing.

    Where both padding and start are missing, they are one id.
    """
    size = len(tokens)
    special: dict[str, int] = {}
    new = 0
    for name in SPECIAL:
        row = special_rows[name]
        if row is None and name == "bos_id" and special_rows["pad_id"] is None:
            row = special["pad_id"]
        elif row is None:
            row, new = size + new, new + 1
        special[name] = row
    rows = [*range(size), *[-1] * new]
    named = [*once(tokens), *[None] * new]
    return TokenRows(named, rows, list(range(size, size + new)), special)


def special_first(
    tokens: Sequence[str | None], special_rows: Mapping[str, int | None], is_text: Sequence[bool]
) -> TokenRows:
    """Returns the `TokenRows` that begin with the special tokens, and end with what is not text."""
    first = [special_rows[name] for name in SPECIAL]
    rows = [-1 if row is None else row for row in first]
    never = [index for index, row in enumerate(rows) if row < 0 or row in rows[index + 1 :]]
    others = [row for row in range(len(tokens)) if row not in set(rows)]
    rows += [row for row in others if is_text[row]] + [row for row in others if not is_text[row]]
    named = once([*tokens, None])
    return TokenRows(
        [None if index in never else named[row] for index, row in enumerate(rows)],
        rows,
        never,
        {name: index for index, name in enumerate(SPECIAL)},
    )


def once(tokens: Sequence[str | None]) -> list[str | None]:
    """Returns the tokens, None in place of each that stands before."""
    places = {token: place for place, token in reversed(list(enumerate(tokens)))}
    return [token if places[token] == place else None for place, token in enumerate(tokens)]
