"""tokenize_all: the ids of every text in flat arrays, rows cut from them, and how far it is."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer  # noqa: E402
from keras_transformer.text.tokenization import TaggedTokenizer, tokenize_all  # noqa: E402

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


def test_a_tag_comes_before_the_texts_that_begin_with_none():
    texts = ["a man rides", "a man"]
    model = SentencePieceTokenizer.train(texts * 5, vocab_size=20).model
    tags = [">>fra<<", ">>spa<<"]
    tokenizer = SentencePieceTokenizer(model, tags=tags, leading_tags=True)
    french, spanish = map(tokenizer.tag_id, tags)
    plain = tokenizer.tokenize(texts).to_list()
    tagged = TaggedTokenizer(tokenizer, ">>fra<<")
    assert tagged.tokenize(texts).to_list() == [[french, *ids] for ids in plain]
    own = [">>spa<<a man rides", "", ">>fra<<a man", ">>xyz<<"]  # a Translator reads the last too
    unknown = tokenizer.unk_id
    own.append(">>xyz<<a man")
    expected = [[spanish, *plain[0]], [], [french, *plain[1]], [], [unknown, *plain[1]]]
    assert tagged.tokenize(own).to_list() == expected
    assert tagged.tokenize([]).to_list() == []
    # Without `leading_tags` a tag is text.
    reader = tokenizer.without_leading_tags()
    expected = [[french, *ids] if ids else [] for ids in reader.tokenize(own).to_list()]
    assert TaggedTokenizer(reader, ">>fra<<").tokenize(own).to_list() == expected
