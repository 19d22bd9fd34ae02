"""CharacterTokenizer: code points to ids and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_transformer.text import CharacterTokenizer  # noqa: E402


@settings(max_examples=8)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=6).filter(any))
def test_known_characters_round_trip(texts):
    tokenizer = CharacterTokenizer.train(texts)
    ids = tokenizer.tokenize(texts)
    assert [len(row) for row in ids.to_list()] == [len(text) for text in texts]
    assert [text.decode() for text in tokenizer.detokenize(ids).numpy()] == texts


def test_ids_are_ordered_by_frequency_then_by_code_point():
    # b 3 times, then a and c twice each, then d once: ids 4, 5, 6, 7.
    tokenizer = CharacterTokenizer.train(["bcb", "acbad"])
    assert tokenizer.tokenize(["abcd"]).to_list() == [[5, 4, 6, 7]]
    assert CharacterTokenizer.train(["acbad", "bcb"]).to_bytes() == tokenizer.to_bytes()


def test_vocab_size_keeps_the_most_frequent():
    tokenizer = CharacterTokenizer.train(["bcb", "acbad"], vocab_size=6)
    assert tokenizer.vocab_size == 6
    assert tokenizer.tokenize(["abcd"]).to_list() == [[5, 4, 1, 1]]
    assert tokenizer.detokenize([[5, 4, 1]]).numpy()[0].decode() == "ab\ufffd"


def test_vocab_size_without_room_for_a_character_raises():
    with pytest.raises(ValueError, match="`vocab_size` must be at least 5. Received: vocab_size=4"):
        CharacterTokenizer.train(["a"], vocab_size=4)


@pytest.mark.parametrize("characters", ["", "aba", ["ab"], ["a", 1], ["\ud800"]])
def test_bad_characters_raise(characters):
    with pytest.raises(ValueError, match="`characters` must be .* Received: characters="):
        CharacterTokenizer(characters)


def test_pieces_show_spaces_and_control_characters():
    tokenizer = CharacterTokenizer("a \n\x00\u00e9")
    shown = ["<pad>", "<unk>", "<s>", "</s>", "a", "\u2581", "\\n", "\\x00", "\u00e9"]
    assert tokenizer.pieces(range(9)) == shown
