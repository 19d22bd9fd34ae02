"""WordPieceTokenizer: agreement with TF Text, honest sizes, known losses."""

import pytest

tf = pytest.importorskip("tensorflow")
tf_text = pytest.importorskip("tensorflow_text")

from keras_transformer.text import WordPieceTokenizer  # noqa: E402
from keras_transformer.text.wordpiece_tokenizer import trim  # noqa: E402

SPECIAL = ["[PAD]", "[UNK]", "[START]", "[END]"]


def there_and_back(tokenizer, texts):
    return [text.decode() for text in tokenizer.detokenize(tokenizer.tokenize(texts)).numpy()]


@pytest.mark.parametrize("vocab_size", [70, 75, 90, 120, 200, 8000])
def test_the_vocabulary_is_never_larger_than_asked(sentences, vocab_size):
    tokenizer = WordPieceTokenizer.train(sentences, vocab_size=vocab_size)
    assert tokenizer.vocab_size <= vocab_size
    assert tokenizer.vocab_size >= min(vocab_size - 1, 100)


def test_a_rare_word_is_spelt_and_not_unknown(tokenizers):
    ids = tokenizers["wordpiece"].tokenize(["dnammeh sworrom"]).flat_values.numpy()
    assert tokenizers["wordpiece"].unk_id not in ids


def test_trimming_keeps_single_characters_first():
    vocabulary = [*SPECIAL, "a", "b", "ab", "##ab", "ba", "##a", "##b"]
    assert trim(vocabulary, 9) == [*SPECIAL, "a", "b", "ab", "##a", "##b"]
    assert trim(vocabulary, 11) == vocabulary


def test_ids_and_text_equal_those_of_tf_text(tokenizers, sentences):
    tokenizer = tokenizers["wordpiece"]
    reference = tf_text.FastBertTokenizer(
        tokenizer.pieces(range(tokenizer.vocab_size)),
        token_out_type=tf.int32,
        support_detokenization=True,
    )
    ids = tokenizer.tokenize(sentences)
    assert ids.to_list() == reference.tokenize(sentences).to_list()
    expected = [text.decode() for text in reference.detokenize(ids).numpy()]
    assert there_and_back(tokenizer, sentences) == expected


def test_losses_are_the_documented_ones(tokenizers):
    texts = ["don't  ever", "a\tman", "caf\u00e9 \u732b", "a" * 101]
    expected = ["don ' t ever", "a man", "caf\u00e9 [UNK]", "[UNK]"]
    assert there_and_back(tokenizers["wordpiece"], texts) == expected
    assert there_and_back(tokenizers["lower_case"], ["A Caf\u00e9"]) == ["a cafe"]


def test_special_pieces_in_text_are_punctuation_and_letters():
    vocabulary = [*SPECIAL, "[", "]", "START", "END"]
    tokenizer = WordPieceTokenizer(vocabulary)
    assert tokenizer.tokenize(["[START] [END]"]).to_list() == [[4, 6, 5, 4, 7, 5]]


@pytest.mark.parametrize(
    "vocabulary",
    [[], ["a"], ["[UNK]", "[PAD]", "[START]", "[END]", "a"], [*SPECIAL, "a", "a"]]
    + [[*SPECIAL, piece] for piece in ("", "##", "a\nb")],
)
def test_a_bad_vocabulary_raises(vocabulary):
    with pytest.raises(ValueError, match="`vocabulary` must .* Received: vocabulary"):
        WordPieceTokenizer(vocabulary)


def test_a_bad_lower_case_raises(sentences):
    with pytest.raises(ValueError, match="`lower_case` must be .* Received: lower_case='no'"):
        WordPieceTokenizer.train(sentences, vocab_size=50, lower_case="no")


def test_a_vocab_size_without_room_for_a_character_raises(sentences):
    with pytest.raises(ValueError, match="`vocab_size` must be at least 6. Received: vocab_size=5"):
        WordPieceTokenizer.train(sentences, vocab_size=5)


@pytest.mark.parametrize(("text", "vocab_size"), [("\x01\x02", 90), ("a" * 60, 90), ("abcdef", 6)])
def test_texts_without_a_word_to_learn_raise(text, vocab_size):
    with pytest.raises(
        ValueError, match=f"no piece was learned. Received: vocab_size={vocab_size}"
    ):
        WordPieceTokenizer.train([text] * 5, vocab_size=vocab_size)
