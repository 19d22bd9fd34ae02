"""SymbolTokenizer: symbols between spaces to ids and back."""

import pytest

pytest.importorskip("tensorflow_text")

from keras_transformer.text import SymbolTokenizer, load_tokenizer  # noqa: E402

TEXTS = ["t uː l", "d͡ʒ ɛ t", "N;PL t 日本 </s>", "𝕏 é é"]


def decoded(tokenizer, texts):
    return [text.decode() for text in tokenizer.detokenize(tokenizer.tokenize(texts)).numpy()]


def test_known_symbols_come_back_and_spaces_are_evened():
    tokenizer = SymbolTokenizer.train(TEXTS)
    assert decoded(tokenizer, TEXTS) == TEXTS
    assert decoded(tokenizer, ["  t\t uː\n", ""]) == ["t uː", ""]
    assert tokenizer.vocab_size == 4 + len({symbol for text in TEXTS for symbol in text.split()})


def test_frequent_symbols_come_first_and_unknown_ones_are_unknown():
    tokenizer = SymbolTokenizer.train(["b a b c", "c b"], vocab_size=6)
    assert tokenizer.pieces([4, 5]) == ["b", "c"]
    assert tokenizer.tokenize(["a b bc </s> <pad>"]).to_list() == [[1, 4, 1, 1, 1]]
    assert decoded(tokenizer, ["a b"]) == ["\ufffd b"]


def test_twenty_thousand_symbols_have_ids_of_their_own():
    symbols = [f"s{i}" for i in range(20_000)]
    ids = SymbolTokenizer(symbols).tokenize([" ".join(symbols)]).to_list()[0]
    assert ids == list(range(4, 20_004))


def test_a_saved_one_is_the_same(tmp_path):
    tokenizer = SymbolTokenizer.train(TEXTS)
    tokenizer.save(tmp_path / "symbols")
    again = load_tokenizer(tmp_path / "symbols")
    assert type(again) is SymbolTokenizer
    assert again.to_bytes() == tokenizer.to_bytes()
    assert again.tokenize(TEXTS).to_list() == tokenizer.tokenize(TEXTS).to_list()


@pytest.mark.parametrize("symbols", [[], ["a", "a"], ["a b"], [""], [1], ["a\n"]])
def test_bad_symbols_raise(symbols):
    with pytest.raises(ValueError, match="`symbols` must be one or more distinct strings without"):
        SymbolTokenizer(symbols)


def test_bad_training_raises():
    with pytest.raises(ValueError, match="at least one symbol"):
        SymbolTokenizer.train([" "])
    with pytest.raises(ValueError, match="`vocab_size` must be at least 5"):
        SymbolTokenizer.train(["a"], vocab_size=4)


def test_learning_splits_where_tokenizing_does():
    texts = ["ab\u00a0cd ab\u3000\x1fx\x0by"]
    tokenizer = SymbolTokenizer.train(texts)
    assert tokenizer.vocab_size == 4 + 3
    assert 1 not in tokenizer.tokenize(texts).flat_values.numpy()


def test_one_that_reverses_has_the_ids_from_last_to_first_and_gives_the_same_texts(tmp_path):
    plain, reverse = (SymbolTokenizer.train(TEXTS, reverse=flag) for flag in (False, True))
    assert reverse.symbols == plain.symbols
    ids = plain.tokenize([*TEXTS, ""]).to_list()
    assert reverse.tokenize([*TEXTS, ""]).to_list() == [row[::-1] for row in ids]
    assert decoded(reverse, TEXTS) == TEXTS
    # Decoding ends at the first eos of the ids, whatever the order of the text.
    first, second, *rest = ids[0][::-1]
    assert reverse.detokenize([[first, second, 3, *rest]]).numpy()[0].decode() == "uː l"
    _, *offsets = plain.tokenize_with_offsets(TEXTS)
    turned, *turned_offsets = reverse.tokenize_with_offsets(TEXTS)
    assert turned.to_list() == [row[::-1] for row in ids[:-1]]
    for part, turned_part in zip(offsets, turned_offsets, strict=True):
        assert turned_part.to_list() == [row[::-1] for row in part.to_list()]
    reverse.save(tmp_path / "symbols")
    again = load_tokenizer(tmp_path / "symbols")
    assert again.reverse
    assert again.to_bytes() == reverse.to_bytes() != plain.to_bytes()
    assert again.tokenize(TEXTS).to_list() == reverse.tokenize(TEXTS).to_list()


@pytest.mark.parametrize("reverse", [1, None, "yes"])
def test_reverse_must_be_a_bool(reverse):
    with pytest.raises(ValueError, match="`reverse` must be True or False"):
        SymbolTokenizer(["a"], reverse)
