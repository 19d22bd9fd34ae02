"""tokenize_with_offsets: the same ids, and the bytes that each was read from."""

import functools
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.text import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    WordPieceTokenizer,
)

TEXTS = ["A man rides a horse. The dog ran."] * 9
KINDS = {
    "sentencepiece": lambda: SentencePieceTokenizer.train(TEXTS, 60, shrink_to_fit=True),
    "lossless": lambda: SentencePieceTokenizer.train(TEXTS, 300, lossless=True),
    "wordpiece": lambda: WordPieceTokenizer.train(TEXTS, 80),
    "characters": lambda: CharacterTokenizer.train(TEXTS),
    "symbols": lambda: SymbolTokenizer.train(TEXTS),
}


@functools.cache
def made(kind):
    return SymbolTokenizer(["a", "b", "ab"]) if kind == "letters" else KINDS[kind]()


@pytest.fixture(params=KINDS, scope="module")
def tokenizer(request):
    return made(request.param)


def spans(tokenizer, text):
    """Ids and what was read for each, of one text; the ids are those of `tokenize`."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    ids, starts, ends = tokenizer.tokenize_with_offsets([data, "dog"])
    assert ids.to_list() == tokenizer.tokenize([data, "dog"]).to_list()
    assert ids.row_lengths().numpy().tolist() == starts.row_lengths().numpy().tolist()
    data = data.decode("utf-8", "replace").encode()
    offsets = list(zip(starts[0].numpy(), ends[0].numpy(), strict=True))
    flat = [offset for pair in offsets for offset in pair]
    assert flat == sorted(flat)  # in order, and no two overlap
    assert not flat or (flat[0] >= 0 and flat[-1] <= len(data))
    return ids[0].numpy().tolist(), [data[start:end] for start, end in offsets]


def test_known_words_are_read_where_they_stand(tokenizer):
    ids, read = spans(tokenizer, "A  man rides.")
    assert [piece for piece in read if b"A" in piece]
    assert b"".join(read).replace(b" ", b"") == b"Amanrides."
    assert len(ids) == len(read)


def test_no_text_has_no_pieces(tokenizer):
    assert spans(tokenizer, "") == ([], [])


def test_unknown_and_invalid_text_has_its_own_bytes(tokenizer):
    for text, unknown in (("é dog", "é"), ("dog 😀", "😀"), (b"\xff dog", ""), ("\ud800 dog", "")):
        _, read = spans(tokenizer, text)
        assert b"dog" in b"".join(read)
        assert unknown.encode() in b"".join(read)


@pytest.mark.parametrize("kind", ["lossless", "characters"])
@settings(max_examples=30, deadline=None)
@given(st.text(st.sampled_from("a mno\u2581\ue000é😀\nz"), max_size=20))
def test_without_loss_the_pieces_are_the_text(kind, text):
    _, read = spans(made(kind), text)
    assert b"".join(read) == text.encode()


@settings(max_examples=30, deadline=None)
@given(st.text(st.sampled_from("ab \t\n\v\f\r\u00a0é"), max_size=20))
def test_a_symbol_is_what_stands_between_spaces(text):
    _, read = spans(made("letters"), text)
    assert read == text.encode().split()


def written(tokenizer, ids):
    """The text of each row of ids, and what each id wrote of it."""
    texts, starts, ends = tokenizer.detokenize_with_offsets(ids)
    assert texts.numpy().tolist() == tokenizer.detokenize(ids).numpy().tolist()
    rows = zip(texts.numpy(), starts.numpy(), ends.numpy(), strict=True)
    return [
        (text, [text[start:end] for start, end in zip(*offsets, strict=True)])
        for text, *offsets in rows
    ]


def test_the_pieces_of_a_text_are_written_one_behind_the_other(tokenizer):
    ids = tokenizer.tokenize(["The dog ran.", "", "dog"])
    rows = written(tokenizer, ids.to_tensor(tokenizer.pad_id))
    for (text, pieces), count in zip(rows, ids.row_lengths().numpy(), strict=True):
        assert b"".join(pieces) == text
        assert not any(pieces[count:])  # padding writes nothing
    assert rows[1][0] == b""
    assert len([piece for piece in rows[0][1] if piece]) > 1


@pytest.mark.parametrize(
    ("reverse", "pieces"), [(False, [b"a", b" ab", b" b"]), (True, [b"b", b"ab ", b"a "])]
)
def test_a_tokenizer_that_reverses_writes_from_the_end_of_the_text(reverse, pieces):
    tokenizer = SymbolTokenizer(["a", "b", "ab"], reverse=reverse)
    ids = tokenizer.tokenize(["a ab b"]).to_tensor()
    assert written(tokenizer, ids) == [(b"a ab b", pieces)]


def test_surfaces_are_what_the_pieces_read_as(tokenizer):
    surfaces = tokenizer.surfaces()
    assert len(surfaces) == tokenizer.vocab_size
    ids = tokenizer.tokenize(["The dog ran."])
    joined = "".join(surfaces[index] for index in ids[0].numpy())
    assert joined.strip() == tokenizer.detokenize(ids).numpy()[0].decode()


@pytest.mark.parametrize(
    ("normalization", "lowercase"),
    [
        pytest.param(*case, marks=() if case == ("nfkc", True) else pytest.mark.slow)
        for case in itertools.product(["identity", "nfc", "nfkc"], [False, True])
    ],
)
def test_no_strings_have_no_offsets(normalization, lowercase):
    folded = CharacterTokenizer("abc", normalization=normalization, lowercase=lowercase)
    for part in folded.tokenize_with_offsets([]):
        assert part.to_list() == []
    assert [part.to_list() for part in folded.tokenize_with_offsets([""])] == [[[]]] * 3
