"""Symbols between white space, and their order in a vocabulary, with and without TensorFlow."""

from collections.abc import Mapping

WHITE_SPACE = "\t\n\v\f\r"  # of ASCII, beside the space


def split_symbols(text: str) -> list[str]:
    """Returns the symbols of a text; white space is that of ASCII, as TensorFlow splits.

    >>> split_symbols(" t uː\\tl ")
    ['t', 'uː', 'l']
    """
    return [symbol.decode() for symbol in text.encode().split()]


def is_symbol(text: str) -> bool:
    """Whether a text is one symbol."""
    return split_symbols(text) == [text]


def order_by_count(counts: Mapping[str, int]) -> list[str]:
    """Returns the items, the most frequent first, then by code point.

    >>> order_by_count({"b": 1, "a": 1, "c": 2})
    ['c', 'a', 'b']
    """
    return sorted(counts, key=lambda item: (-counts[item], item))
