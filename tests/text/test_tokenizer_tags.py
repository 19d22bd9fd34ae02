"""Tags at the beginning of a text: their ids, their bytes, and what is not one."""

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
pytest.importorskip("sentencepiece")

from keras_transformer.text import SentencePieceTokenizer  # noqa: E402
from tests.text.small_tokenizers import train  # noqa: E402

TAGS = [">>fra<<", ">>deu_Latn<<", "__en__", "__en__x", "a.c", "<2 de>", "\\d+", "日"]


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer(train("bpe").model, tags=TAGS, leading_tags=True)


@pytest.fixture(scope="module")
def plain(tokenizer):
    return tokenizer.without_leading_tags()


def read(tokenizer, text):
    """The pieces of a text, each with the bytes that it was read from."""
    ids, starts, ends = tokenizer.tokenize_with_offsets([text])
    assert ids.to_list() == tokenizer.tokenize([text]).to_list()
    data = text.encode()
    places = zip(starts[0].numpy(), ends[0].numpy(), strict=True)
    return list(zip(tokenizer.pieces(ids[0]), [data[a:b].decode() for a, b in places], strict=True))


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("rest", [" a man rides", "a man", "", "\n", " >>fra<< a", "é a"])
def test_a_tag_is_one_piece_and_the_rest_is_split_alone(tokenizer, plain, tag, rest):
    first, *others = read(tokenizer, tag + rest)
    assert first == (tokenizer.pieces([tokenizer.tag_id(tag)])[0], tag)
    assert others == read(plain, rest)
    assert tokenizer.tag_id(tag) >= plain.vocab_size - len(TAGS)
    shown = tokenizer.detokenize(tokenizer.tokenize([tag + rest])).numpy().tolist()
    assert shown == plain.detokenize(plain.tokenize([rest])).numpy().tolist()


@pytest.mark.parametrize("code", [">>xxx<<", ">><<", ">> a man <<", ">>a\n<<", ">>>fra<<"])
def test_an_unknown_code_is_one_unknown_piece(tokenizer, plain, code):
    first, *others = read(tokenizer, f"{code} a man")
    assert first == ("<unk>", code)
    assert others == read(plain, " a man")


@pytest.mark.parametrize(
    "text",
    ["", "a man", " >>fra<< a", ">>fra a", ">fra<<", "a >>fra<<", "abc", "5", "__EN__ a", "<<"],
)
def test_a_text_without_a_tag_at_its_beginning_is_as_ever(tokenizer, plain, text):
    assert read(tokenizer, text) == read(plain, text)
    tags = {tokenizer.tag_id(tag) for tag in TAGS}
    assert not tags & {*tokenizer.tokenize([text]).flat_values.numpy()}


def test_without_the_option_a_tag_is_text(plain):
    assert not plain.leading_tags
    assert plain.tags == TAGS
    ids = plain.tokenize(TAGS).flat_values.numpy()
    assert not {plain.tag_id(tag) for tag in TAGS} & {*ids}
    assert plain.without_leading_tags() is plain


def test_the_longest_tag_wins(tokenizer):
    assert read(tokenizer, "__en__xa")[0] == ("__en__x", "__en__x")


@pytest.mark.slow
def test_a_tag_is_found_before_the_text_is_folded():
    tokenizer = SentencePieceTokenizer(
        train("bpe").model, lowercase=True, normalization="nfkc", tags=["<DE½>"], leading_tags=True
    )
    pieces = read(tokenizer, "<DE½> A ＭＡＮ")
    assert pieces[0] == ("<DE½>", "<DE½>")
    assert "".join(text for _, text in pieces[1:]).strip() == "A ＭＡＮ"
    assert read(tokenizer, "<de½> a")[0][0] != "<DE½>"


def test_the_option_is_saved(tokenizer):
    again = SentencePieceTokenizer.from_bytes(tokenizer.to_bytes())
    assert again.leading_tags
    assert again.tokenize([">>fra<< a"]).to_list() == tokenizer.tokenize([">>fra<< a"]).to_list()


def test_batches_mix_texts_with_and_without_a_tag(tokenizer, plain):
    texts = ["a man", ">>fra<< a man", "", "__en__", ">>x<<a"]
    expected = [tokenizer.tokenize([text]).to_list()[0] for text in texts]
    assert tokenizer.tokenize(texts).to_list() == expected
    assert tokenizer.tokenize([]).to_list() == []
    assert [part.to_list() for part in tokenizer.tokenize_with_offsets([])] == [[], [], []]
    cut = tokenizer.cut_leading_tags(tf.constant(texts))
    assert cut.ids.numpy().tolist() == [
        -1, tokenizer.tag_id(">>fra<<"), -1, tokenizer.tag_id("__en__"), tokenizer.unk_id,
    ]  # fmt: skip
    assert cut.sizes.numpy().tolist() == [0, 7, 0, 6, 5]
    assert cut.texts.numpy().tolist() == [b"a man", b" a man", b"", b"", b"a"]
    found = tokenizer.tag_ids(tf.constant(["__en__", "", "a"])).numpy().tolist()
    assert found == [tokenizer.tag_id("__en__"), -1, -1]


def test_a_tag_of_the_text_comes_before_one_that_is_asked_for_and_that_before_the_default(
    tokenizer, plain
):
    given = tf.constant([b">>fra<< a", b"a\xff", b"a", b">>x<<a"])
    asked = tf.constant(["__en__", "__en__", "", "none"])
    default, english = tokenizer.tag_id("a.c"), tokenizer.tag_id("__en__")
    found = tokenizer.read_tags(given, default, asked)
    assert found.tags.numpy().tolist() == [
        tokenizer.tag_id(">>fra<<"), english, default, tokenizer.unk_id,
    ]  # fmt: skip
    assert found.texts.numpy().tolist() == [b" a", "a\ufffd".encode(), b"a", b"a"]
    assert found.begins.numpy().tolist() == [7, 0, 0, 5]
    assert tokenizer.read_tags(given).tags.numpy().tolist()[1:3] == [-1, -1]
    # Without `leading_tags` a text keeps what it begins with.
    kept = plain.read_tags(given, default, asked)
    assert kept.tags.numpy().tolist() == [english, english, default, -1]
    assert kept.texts.numpy().tolist()[:2] == [b">>fra<< a", "a\ufffd".encode()]
    assert plain.read_tags(given).tags is None
    assert plain.read_tags(given).texts.numpy().tolist()[1] == "a\ufffd".encode()


def test_subword_dropout_leaves_the_tag(tokenizer):
    ids = tokenizer.tokenize_with_dropout([">>fra<< a man rides"], 0.9, seed=1)[0]
    assert ids[0] == tokenizer.tag_id(">>fra<<")
    assert len(ids) > len(tokenizer.tokenize([">>fra<< a man rides"])[0])
    assert tokenizer.detokenize([ids]).numpy()[0] == b"a man rides"
