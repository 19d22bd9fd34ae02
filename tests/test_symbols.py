"""Symbols are split as TensorFlow splits, and ordered the same everywhere."""

import pytest

from keras_transformer.symbols import is_symbol, order_by_count, split_symbols

TEXTS = [
    "",
    "  ",
    "a",
    " a  b ",
    "a\tb\nc\vd\fe\rf",
    "a\u00a0b c\u2003d",  # white space outside of ASCII belongs to a symbol
    "a\x1cb \x85 c",  # as do characters that `str.split` takes for white space
    "uː \U0001f600 e\u0301",
]


@pytest.mark.parametrize("text", TEXTS)
def test_symbols_are_those_of_tensorflow(text):
    tf = pytest.importorskip("tensorflow")
    found = tf.strings.split([text]).flat_values.numpy()
    assert split_symbols(text) == [symbol.decode() for symbol in found]


def test_a_symbol_is_a_text_without_white_space():
    assert [text for text in ("a", "a\u00a0b", "", " a", "a b", "a\n") if is_symbol(text)] == [
        "a",
        "a\u00a0b",
    ]


def test_items_of_one_count_are_in_the_order_of_their_code_points():
    assert order_by_count({"z": 2, "é": 3, "e": 3, "a": 1, "Z": 2}) == ["e", "é", "Z", "z", "a"]
    assert order_by_count({}) == []
