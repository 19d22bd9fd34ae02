"""The contract that every tokenizer keeps."""

import pickle

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras  # noqa: E402

from keras_transformer.text.tokenizer import Tokenizer  # noqa: E402
from tests.text.small_tokenizers import KINDS, train  # noqa: E402

# The default run traces those whose graphs hold what the others of their class hold, and more.
FULLEST = {"symbol", "lossless", "folded", "lower_case"}
traced = pytest.mark.parametrize(
    "tokenizer",
    [pytest.param(kind, marks=() if kind in FULLEST else pytest.mark.slow) for kind in KINDS],
    indirect=True,
)

INJECTIONS = [
    "</s>",
    "<s>",
    "<pad>",
    "<unk>",
    "[PAD]",
    "[UNK]",
    "[START]",
    "[END]",
    "a </s> b <pad><s>",
    "<0x41>",
    "[START][END]",
]
STRANGE = [
    b"",
    b" ",
    b"\x00",
    b"a\x00b\x00",
    b"\xff\xfe",
    b"a\xc3",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    bytes(range(1, 32)),
    b"\xc2\x85\xe2\x80\xa8",
    "\u2581\u2585\u2047\ue000\ufeff\U0010ffff".encode(),
    b"a" * 5000,
]


def lists(ragged):
    return ragged.to_list()


def test_special_ids_are_the_first_four(tokenizer):
    special = tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id
    assert special == (0, 1, 2, 3)
    assert isinstance(tokenizer.vocab_size, int)
    assert tokenizer.vocab_size > 4


def test_tokenize_gives_ragged_int32_without_bos_and_eos(tokenizer, sentences):
    ids = tokenizer.tokenize(sentences)
    assert isinstance(ids, tf.RaggedTensor)
    assert ids.dtype == tf.int32
    assert ids.shape.as_list() == [len(sentences), None]
    assert ids.flat_values.numpy().min() >= 4
    assert ids.flat_values.numpy().max() < tokenizer.vocab_size


def test_ordinary_sentences_round_trip(tokenizers, sentences):
    for name in ("character", "bpe", "unigram", "lossless"):
        texts = tokenizers[name].detokenize(tokenizers[name].tokenize(sentences)).numpy()
        assert [text.decode() for text in texts] == sentences, name


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_never_becomes_a_special_id(tokenizer, text):
    ids = tokenizer.tokenize([text]).flat_values.numpy()
    assert not {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id} & set(ids.tolist())


def test_any_bytes_are_accepted(tokenizer):
    ids = tokenizer.tokenize(STRANGE)
    assert ids.nrows() == len(STRANGE)
    assert lists(ids)[0] == []
    assert not {0, 2, 3} & set(ids.flat_values.numpy().tolist())
    for text in tokenizer.detokenize(ids).numpy():
        text.decode()  # valid UTF-8


def test_invalid_utf8_and_lone_surrogates_read_as_the_replacement_character(tokenizer):
    invalid = tokenizer.tokenize([b"a\xffb", "a\udc80b"])
    replaced = tokenizer.tokenize(["a\ufffdb", "a\ufffd\ufffd\ufffdb"])
    assert lists(invalid) == lists(replaced)


def test_no_strings_give_no_rows(tokenizer):
    assert lists(tokenizer.tokenize([])) == []
    assert tokenizer.detokenize(np.zeros((0, 5), "int32")).shape == (0,)
    assert tokenizer.detokenize(tokenizer.tokenize([])).shape == (0,)
    assert tokenizer.detokenize(np.zeros((2, 0), "int32")).numpy().tolist() == [b"", b""]


def test_detokenize_ends_at_eos_and_skips_pad_and_bos(tokenizer, sentences):
    row = lists(tokenizer.tokenize([sentences[0]]))[0]
    text = tokenizer.detokenize([row]).numpy()[0]
    framed = [2, *row[:2], 0, *row[2:], 3, *row, 3, 0]
    assert tokenizer.detokenize([framed, [3, *row]]).numpy().tolist() == [text, b""]
    dense = np.array([framed], "int64")
    assert tokenizer.detokenize(dense).numpy().tolist() == [text]


@pytest.mark.parametrize("wrong", [-1, -(2**31), 2**31 - 1, 2**40])
def test_ids_out_of_range_read_as_unknown(tokenizer, wrong):
    row = lists(tokenizer.tokenize(["a man"]))[0]
    unknown = tokenizer.detokenize([[*row, tokenizer.unk_id]]).numpy().tolist()
    assert tokenizer.detokenize([[*row, wrong]]).numpy().tolist() == unknown
    assert tokenizer.detokenize([[*row, tokenizer.vocab_size]]).numpy().tolist() == unknown
    assert tokenizer.pieces([wrong]) == tokenizer.pieces([tokenizer.unk_id])


def test_every_id_has_a_printable_piece(tokenizer):
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    assert len(pieces) == tokenizer.vocab_size
    assert all(isinstance(piece, str) and piece and piece.isprintable() for piece in pieces)


def test_strings_may_be_a_list_an_array_or_a_tensor(tokenizer, sentences):
    expected = lists(tokenizer.tokenize(sentences[:3]))
    assert lists(tokenizer.tokenize(tf.constant(sentences[:3]))) == expected
    assert lists(tokenizer.tokenize(np.array(sentences[:3]))) == expected
    assert lists(tokenizer.tokenize(tuple(sentences[:3]))) == expected


@traced
def test_graph_calls_equal_eager_calls(tokenizer, sentences):
    expected = lists(tokenizer.tokenize(sentences))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def there_and_back(strings):
        ids = tokenizer.tokenize(strings)
        return ids, tokenizer.detokenize(ids.to_tensor())

    ids, texts = there_and_back(tf.constant(sentences))
    assert lists(ids) == expected
    assert texts.numpy().tolist() == tokenizer.detokenize(expected).numpy().tolist()
    mapped = tf.data.Dataset.from_tensor_slices(sentences).batch(5).map(tokenizer.tokenize)
    assert [row for batch in mapped for row in lists(batch)] == expected


@pytest.mark.parametrize(
    "tokenizer",
    [pytest.param(kind, marks=() if kind == "folded" else pytest.mark.slow) for kind in KINDS],
    indirect=True,
)
def test_calls_survive_reseeding_and_a_cleared_session(tokenizer, sentences):
    expected = lists(tokenizer.tokenize(sentences))
    texts = tokenizer.detokenize(expected).numpy().tolist()
    dataset = tf.data.Dataset.from_tensor_slices(sentences).batch(7).map(tokenizer.tokenize)
    for disturb in (lambda: keras.utils.set_random_seed(1), keras.utils.clear_session):
        disturb()
        assert lists(tokenizer.tokenize(sentences)) == expected
        assert tokenizer.detokenize(expected).numpy().tolist() == texts
        assert [row for batch in dataset for row in lists(batch)] == expected


def test_a_saved_tokenizer_loads_equal(tokenizer, sentences, tmp_path):
    path = tmp_path / "text.tokenizer"
    tokenizer.save(path)
    assert [item.name for item in tmp_path.iterdir()] == ["text.tokenizer"]
    loaded = type(tokenizer).load(path)
    assert loaded.to_bytes() == tokenizer.to_bytes() == path.read_bytes()
    assert loaded.vocab_size == tokenizer.vocab_size
    assert lists(loaded.tokenize(sentences)) == lists(tokenizer.tokenize(sentences))


def test_a_tokenizer_pickles(tokenizer):
    assert pickle.loads(pickle.dumps(tokenizer)).to_bytes() == tokenizer.to_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic(tokenizers, kind):
    assert train(kind).to_bytes() == tokenizers[kind].to_bytes()


@pytest.mark.parametrize("texts", ["one string", ["text", 7], ["text", b"bytes"], ["text", None]])
def test_training_refuses_what_is_not_text(tokenizer, texts):
    with pytest.raises(TypeError, match="`texts` must be an iterable of strings. Received: texts"):
        type(tokenizer).train(texts, vocab_size=300)


@pytest.mark.parametrize("texts", [[], [""], ["", " \n "]])
def test_training_refuses_empty_texts(tokenizer, texts):
    if type(tokenizer).__name__ == "CharacterTokenizer" and any(texts):
        assert type(tokenizer).train(texts, vocab_size=300).tokenize([" "]).to_list() == [[4]]
        return  # a space is a character
    with pytest.raises(ValueError, match="`texts` must hold .* Received: only empty texts"):
        type(tokenizer).train(texts, vocab_size=300)


@pytest.mark.parametrize("vocab_size", [0, -3, 2.5, "8000", True])
def test_a_bad_vocab_size_raises(tokenizer, sentences, vocab_size):
    with pytest.raises(ValueError, match="Received: vocab_size="):
        type(tokenizer).train(sentences, vocab_size=vocab_size)


def test_bad_strings_raise_with_what_was_received(tokenizer):
    with pytest.raises(TypeError, match="put one string in a list. Received: strings='a man'"):
        tokenizer.tokenize("a man")
    with pytest.raises(TypeError, match=r"Received: strings\[1\]=7 of type int"):
        tokenizer.tokenize(["a", 7])
    with pytest.raises(TypeError, match="Received: strings with dtype=int32"):
        tokenizer.tokenize(tf.constant([1, 2]))
    with pytest.raises(ValueError, match=r"Received: strings with shape=\(1, 2\)"):
        tokenizer.tokenize(tf.constant([["a", "b"]]))


def test_whole_floats_are_ids(tokenizer, sentences):
    ids = tokenizer.tokenize(sentences[:2])
    wanted = tokenizer.detokenize(ids).numpy().tolist()
    rows = [[float(token) for token in row] for row in ids.to_list()]
    for floats in (tf.cast(ids, tf.float32), tf.cast(ids, tf.float64).to_tensor(), rows):
        assert tokenizer.detokenize(floats).numpy().tolist() == wanted
    assert tokenizer.pieces(rows[0]) == tokenizer.pieces(ids[0].numpy())


def test_bad_ids_raise_with_what_was_received(tokenizer):
    with pytest.raises(TypeError, match="Received: ids with dtype=bool"):
        tokenizer.detokenize(np.zeros((1, 2), "bool"))
    for ids in (np.full((1, 2), 4.5, "float32"), [[4.5], []]):
        with pytest.raises(ValueError, match="`ids` must be integers, or whole.* with 4.5"):
            tokenizer.detokenize(ids)
    with pytest.raises(ValueError, match="`ids` must be integers, or whole.* with 4.5"):
        tokenizer.pieces([4.5])
    with pytest.raises(ValueError, match=r"Received: ids with shape=\(3,\)"):
        tokenizer.detokenize(np.zeros(3, "int32"))
    with pytest.raises(ValueError, match=r"Received: ids with shape=\(1, 2\)"):
        tokenizer.pieces([[1, 2]])


def test_the_shared_class_is_abstract():
    with pytest.raises(TypeError):
        Tokenizer(["a"])
