"""tokenize_all: the ids of every text in flat arrays, rows cut from them, and how far it is."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_transformer.text import CharacterTokenizer  # noqa: E402
from keras_transformer.text.tokenization import tokenize_all  # noqa: E402

STORE = tokenize_all(["ab", "", "cba"], CharacterTokenizer("abc"), "source", verbose=False)


def test_the_arrays_hold_every_text_in_order():
    assert STORE.flat.tolist() == [4, 5, 6, 5, 4]
    assert STORE.lengths.tolist() == [2, 0, 3]


def test_rows_are_padded_with_the_ids_asked_for():
    members = np.array([2, 0])
    assert STORE.padded(members, (2, 4), 0).tolist() == [[6, 5, 4, 0], [4, 5, 0, 0]]
    both = STORE.padded(members, (3, 5), 9, first_id=2, last_id=3)
    assert both.tolist() == [[2, 6, 5, 4, 3], [2, 4, 5, 3, 9], [9] * 5]


def test_long_work_says_how_far_it_is(monkeypatch, capfd):
    monkeypatch.setattr("keras_transformer.text.tokenization.SECONDS_BETWEEN_LINES", -1.0)
    tokenize_all(["a"] * 5000, CharacterTokenizer("a"), "target", verbose=True)
    _, err = capfd.readouterr()
    assert err == "tokenized 4,096 of 5,000 target texts\ntokenized 5,000 of 5,000 target texts\n"
