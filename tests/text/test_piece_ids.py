"""Vocabularies that people bring: any sentencepiece model, and ids of another list than its own."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
pytest.importorskip("sentencepiece")

from keras_transformer.text import SentencePieceTokenizer, load_tokenizer  # noqa: E402
from keras_transformer.text.sentencepiece_library import read_types  # noqa: E402
from tests.text.sentencepiece_models import (  # noqa: E402
    MODEL,
    processor,
    shuffled_vocabulary,
    texts_of,
    train,
)
from tests.text.small_tokenizers import SENTENCES  # noqa: E402

SPECIAL = ("pad_id", "unk_id", "bos_id", "eos_id")
# Special ids and other settings, and the ids that the tokenizer then has.
FOREIGN = {
    "sentencepiece's own": ({}, (110, 0, 1, 2)),
    "end first": (
        {"eos_id": 0, "unk_id": 1, "bos_id": -1, "byte_fallback": True},
        (370, 1, 371, 0),
    ),
    "unknown alone": ({"bos_id": -1, "eos_id": -1}, (110, 0, 111, 112)),
    "all, elsewhere": ({"pad_id": 3, "bos_id": 2, "eos_id": 1, "unk_id": 0}, (3, 0, 2, 1)),
    "other names": (
        {
            "pad_id": 3,
            "pad_piece": "[P]",
            "eos_piece": "[E]",
            "unk_piece": "[U]",
            "bos_piece": "[B]",
        },
        (3, 0, 1, 2),
    ),
    "symbols": (
        {
            "control_symbols": ["<2de>"],
            "user_defined_symbols": ["__X__", "a,b"],
            "normalization_rule_name": "nmt_nfkc_cf",
        },
        (110, 0, 1, 2),
    ),
    "text with special names": (
        {"user_defined_symbols": ["<pad>", "</s>"], "eos_id": -1},
        (110, 0, 1, 111),
    ),
}
HOSTILE = [
    "",
    " ",
    "  a  man\t\n",
    "</s> <s> <unk> <pad> [E]",
    "\u2581a\u2581",
    "日本語 a 😀😀",
    "½ ﬁ Ａ e\u0301 \u200b\u00ad x",
    "__X__a,b__X__ <2de> a",
    "<0x41> a\x00b",
    ">>fra<< a man",
    "\u2047 ??",
]


def special_of(tokenizer):
    return tuple(getattr(tokenizer, name) for name in SPECIAL)


def assert_reads_and_writes_as_the_library(tokenizer, model, texts):
    library = processor(model)
    expected = library.encode(texts)
    apart = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    assert not apart & {index for row in expected for index in row}
    found, starts, ends = tokenizer.tokenize_with_offsets(texts)
    assert found.to_list() == tokenizer.tokenize(texts).to_list()
    for ours, theirs in zip(found.to_list(), expected, strict=True):
        # TF Text has another release of the library: two ways of the same score are a tie.
        assert ours == theirs or (sorted(ours) == sorted(theirs) and len(expected) > 1000)
    assert texts_of(tokenizer, tf.ragged.constant(expected, tf.int32)) == library.decode(expected)
    for text, *offsets in zip(texts, starts.to_list(), ends.to_list(), strict=True):
        flat = [place for pair in zip(*offsets, strict=True) for place in pair]
        assert flat == sorted(flat)
        assert not flat or (flat[0] >= 0 and flat[-1] <= len(text.encode()))


@pytest.fixture(scope="module", params=FOREIGN)
def foreign(request):
    options, special = FOREIGN[request.param]
    return train(**options), special, request.param


def test_a_model_has_its_own_special_ids_and_new_ones_where_it_has_none(foreign):
    model, special, name = foreign
    tokenizer = SentencePieceTokenizer(model)
    assert special_of(tokenizer) == special
    assert tokenizer.vocab_size == max(processor(model).vocab_size(), *(i + 1 for i in special))
    assert tokenizer.tags == (["<2de>"] if name == "symbols" else [])
    for index in tokenizer.tokenize(HOSTILE).flat_values.numpy():
        assert index not in {special[0], *special[2:]}
    assert len(tokenizer.surfaces()) == len(tokenizer.pieces(range(tokenizer.vocab_size)))
    assert [tokenizer.surfaces()[index] for index in special] == [""] * 4


def test_a_model_reads_and_writes_as_the_library(foreign):
    model, special, name = foreign
    texts = [*SENTENCES[:7], *HOSTILE]
    if name == "text with special names":  # pieces of these names are ordinary text there
        assert processor(model).encode("</s>")[-1] != special[3]
    assert_reads_and_writes_as_the_library(SentencePieceTokenizer(model), model, texts)


def test_a_saved_one_is_the_same(foreign, tmp_path):
    model, special, _ = foreign
    file = tmp_path / "foreign.model"
    file.write_bytes(model)
    tokenizer = SentencePieceTokenizer.from_file(file, tags=["<new>"], bos_id=special[2])
    tokenizer.save(tmp_path / "tokenizer")
    again = load_tokenizer(tmp_path / "tokenizer")
    assert special_of(again) == special_of(tokenizer)
    assert again.tags == tokenizer.tags == ["<new>"]
    assert again.to_bytes() == tokenizer.to_bytes()
    assert again.tokenize(HOSTILE).to_list() == tokenizer.tokenize(HOSTILE).to_list()


@pytest.mark.parametrize("kind", ["bpe", "unigram", "lossless"])
def test_our_own_files_stay_as_they_were(tokenizers, kind):
    tokenizer = tokenizers[kind]
    assert b"vocabulary" not in tokenizer.to_bytes().partition(b"\n")[0]
    assert (special_of(tokenizer), tokenizer.tags) == ((0, 1, 2, 3), [])
    numbered = tokenizer._numbered
    assert (numbered.from_model, numbered.to_model, numbered.to_text) == (None, None, None)


def test_detokenize_ends_at_the_end_and_skips_what_is_no_text():
    tokenizer = SentencePieceTokenizer(train(eos_id=0, unk_id=1, bos_id=-1), tags=["<2de>"])
    row = tokenizer.tokenize(["a man"]).to_list()[0]
    pad_id, unk_id, bos_id, eos_id = special_of(tokenizer)
    tag = tokenizer.tag_id("<2de>")
    assert len({pad_id, unk_id, bos_id, eos_id, tag}) == 5
    rows = [[bos_id, tag, *row, pad_id, tag, eos_id, *row], [*row, unk_id], [*row, 10**6], [eos_id]]
    assert texts_of(tokenizer, rows) == ["a man", "a man \u2047 ", "a man \u2047 ", ""]


def test_the_types_and_names_are_those_that_the_library_reads(foreign):
    model, *_ = foreign
    proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2").ModelProto
    read = proto.FromString(model)
    types, names = read_types(model)
    assert types == [piece.Type.Name(piece.type) for piece in read.pieces]
    spec = read.trainer_spec
    assert [names[n] for n in ("pad_id", "bos_id", "eos_id")] == [
        spec.pad_piece, spec.bos_piece, spec.eos_piece,
    ]  # fmt: skip


def test_given_special_ids_win_and_text_becomes_none_of_them():
    model = MODEL
    man = processor(model).piece_to_id("\u2581man")
    tokenizer = SentencePieceTokenizer(model, pad_id=man, bos_id=man, eos_id=1, unk_id=5)
    assert special_of(tokenizer) == (man, 5, man, 1)
    assert man not in tokenizer.tokenize(["a man"]).flat_values.numpy()
    assert tokenizer.vocab_size == 180
    # Ids between the model's and a given one have no piece: they read as the unknown one.
    behind = SentencePieceTokenizer(model, bos_id=183)
    assert special_of(behind) == (184, 0, 183, 2)
    assert texts_of(behind, [[182]]) == texts_of(behind, [[0]]) == [" \u2047 "]
    assert behind.pieces([181, 183, 184]) == ["<unk>", "<s>", "<pad>"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"unk_id": 2},
            r"`unk_id` must differ .* Received: pad_id=180, unk_id=2, bos_id=1, eos_id",
        ),
        ({"pad_id": 2}, r"`pad_id` from `eos_id`\. Received: pad_id=2"),
        ({"pad_id": -1}, r"`pad_id` must be .* Received: pad_id=-1"),
        ({"bos_id": 2**40}, r"`bos_id` must be below 4,194,304\. Received: bos_id=1099511627776"),
        ({"vocabulary": {"a": 0}}, r"must have the piece '<unk>', or `unk_id` .* 1 pieces"),
        ({"vocabulary": {"<unk>": 10**9}}, r"`vocabulary` must be below 4,194,304"),
        ({"vocabulary": {"<unk>": 0, "a": 0}}, r"1 distinct pieces of 2, in a dict"),
        ({"vocabulary": ["<unk>", "a", "a"]}, r"2 distinct pieces of 3, in a list"),
        ({"vocabulary": ["<unk>", 3]}, r"1 distinct pieces of 2, in a list"),
        ({"vocabulary": []}, r"0 distinct pieces of 0, in a list"),
        ({"vocabulary": 3}, r"0 distinct pieces of 0, in a int"),
        ({"tags": ["a", "a"]}, r"`tags` must be distinct .* Received: tags=\['a', 'a'\]"),
        ({"tags": [""]}, r"`tags` must be distinct strings, none empty"),
        ({"leading_tags": 1}, r"`leading_tags` must be .* Received: leading_tags=1"),
    ],
)
def test_bad_options_raise_with_what_was_received(options, message):
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer(MODEL, **options)


@pytest.mark.parametrize("text", ["{", "3", '{"<unk>": 0, "a": 1, "a": 2}', '{"<unk>": "x"}'])
def test_a_bad_file_of_a_vocabulary_raises(tmp_path, text):
    path = tmp_path / "vocab.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="`vocabulary` "):
        SentencePieceTokenizer(MODEL, vocabulary=path)


def test_a_file_that_is_no_model_raises_with_its_name(tmp_path):
    path = tmp_path / "no.model"
    path.write_bytes(b"text")
    with pytest.raises(ValueError, match="no.model: `model` must be a serialized sentencepiece"):
        SentencePieceTokenizer.from_file(path)


def field(number, kind, data=b""):
    """A field of a protocol buffer message: its number and form in two bytes, and its bytes."""
    key = number << 3 | kind
    return bytes([key & 127 | 128, key >> 7]) + data


def piece(*fields):
    """A piece of a sentencepiece model: "zzz" with a score, and other fields."""
    message = b"\x0a\x03zzz\x15\0\0\0\0" + b"".join(fields)
    return field(1, 2, bytes([len(message)]) + message)


HOSTILE = {
    "a group": field(100, 3) + field(100, 4),
    "a group in a piece": piece(field(100, 3), field(100, 4)),
    "a type of 0": piece(field(3, 0, b"\0")),
    "a type of 99": piece(field(3, 0, b"\x63")),
    "a type that is text": piece(field(3, 2, b"\1a")),
    "a name that is a number": field(2, 2, b"\3" + field(46, 0, b"\1")),
    "a name that is no text": field(2, 2, b"\4" + field(46, 2, b"\1\xff")),
    "a piece that is a number": field(1, 0, b"\1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_model_with_odd_fields_raises_with_its_name(name, tmp_path):
    # The library itself reads over most of them.
    path = tmp_path / "odd.model"
    path.write_bytes(MODEL + HOSTILE[name])
    with pytest.raises(ValueError, match="odd.model: `model` must be a serialized") as caught:
        SentencePieceTokenizer.from_file(path)
    assert f" of {len(MODEL + HOSTILE[name])} bytes" in str(caught.value)


def test_an_unknown_tag_raises_with_those_there_are():
    tokenizer = SentencePieceTokenizer(MODEL, tags=[f"<{n}>" for n in range(7)])
    message = r"one of the tokenizer's 7 `tags`: <0>, <1>, <2>, <3>, <4>, \.\.\.\. Received: '<9>'"
    with pytest.raises(ValueError, match=message):
        tokenizer.tag_id("<9>")
    with pytest.raises(ValueError, match="0 `tags`: none"):
        SentencePieceTokenizer(MODEL).tag_id("x")


def test_a_vocabulary_says_the_ids():
    """Each piece of the library has the id that the dictionary gives it."""
    vocabulary = shuffled_vocabulary(MODEL, lacking=["\u2581man", "\u2581dogs"])
    texts = [*SENTENCES[:7], *HOSTILE]
    expected = [
        [vocabulary.get(piece, vocabulary["<unk>"]) for piece in row]
        for row in processor(MODEL).encode(texts, out_type=str)
    ]
    assert any(vocabulary["<unk>"] in row for row in expected[:7])
    tokenizer = SentencePieceTokenizer(MODEL, vocabulary=vocabulary)
    assert tokenizer.tokenize(texts).to_list() == expected
    assert tokenizer.tokenize_with_offsets(texts)[0].to_list() == expected
    special = [vocabulary[piece] for piece in ("<pad>", "<unk>", "</s>")]
    assert special_of(tokenizer) == (*special[:2], len(vocabulary), special[2])
    assert tokenizer.vocab_size == len(vocabulary) + 1  # "<s>" is new
    assert sorted(tokenizer.tags) == [">>deu<<", ">>fra<<"]


def test_a_vocabulary_may_be_a_list_or_a_file_and_have_holes(tmp_path):
    vocabulary = shuffled_vocabulary(MODEL)
    moved = {piece: index + 5 for piece, index in vocabulary.items()}
    listed = [None] * 5 + sorted(vocabulary, key=vocabulary.get)
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps(moved), encoding="utf-8")
    expected = SentencePieceTokenizer(MODEL, vocabulary=moved)
    ids = expected.tokenize(SENTENCES).to_list()
    for form in (listed, tuple(listed), path, str(path)):
        tokenizer = SentencePieceTokenizer(MODEL, vocabulary=form)
        assert tokenizer.to_bytes() == expected.to_bytes()
        assert tokenizer.tokenize(SENTENCES).to_list() == ids
    assert texts_of(expected, [[0, ids[0][0]]])[0].startswith(" \u2047 ")
    assert expected.pieces([0]) == ["<unk>"]
    assert expected.surfaces()[0] == ""


def test_pieces_that_the_model_lacks_read_as_their_text():
    vocabulary = shuffled_vocabulary(MODEL)
    tokenizer = SentencePieceTokenizer(MODEL, vocabulary=vocabulary)
    rows = ["\u2581zork a", "\u2581a ing-zork \u2581zork >>fra<< \u2581man", "<unk> ing-zork"]
    ids = [[vocabulary[piece] for piece in row.split()] for row in rows]
    assert texts_of(tokenizer, ids) == ["zorka", "aing-zork zork man", " \u2047 ing-zork"]
    assert tokenizer.surfaces()[vocabulary["\u2581zork"]] == " zork"


def test_a_joint_vocabulary_serves_a_model_of_each_side():
    """As Hugging Face's Marian has it: each side reads and writes by its own model."""
    halves = [SENTENCES[0:3], SENTENCES[3:7]]
    models = [train(half * 5, vocab_size=60) for half in halves]
    pieces = [p for model in models for p in processor(model).id_to_piece(list(range(3, 60)))]
    vocabulary = {p: n for n, p in enumerate(["</s>", "<unk>", *dict.fromkeys(pieces), "<pad>"])}
    sides = [SentencePieceTokenizer(model, vocabulary=vocabulary) for model in models]
    assert special_of(sides[0]) == special_of(sides[1])
    for side, half in zip(sides, halves, strict=True):
        assert texts_of(side, side.tokenize(half)) == half
    assert texts_of(sides[1], sides[0].tokenize(halves[0])) == halves[0]


# The option of dropout is Python's, so the same model is enough.
@pytest.mark.parametrize("with_vocabulary", [False, True])
def test_dropout_spells_the_same_texts_in_ids_of_the_vocabulary(with_vocabulary):
    options = {"vocabulary": shuffled_vocabulary(MODEL)} if with_vocabulary else {}
    tokenizer = SentencePieceTokenizer(MODEL, **options)
    texts = SENTENCES[:7]
    plain = tokenizer.tokenize(texts).to_list()
    assert tokenizer.tokenize_with_dropout(texts, 0.0, 1) == plain
    dropped = tokenizer.tokenize_with_dropout(texts, 0.5, 1)
    assert sum(map(len, dropped)) > sum(map(len, plain))
    assert texts_of(tokenizer, tf.ragged.constant(dropped, dtype=tf.int32)) == texts


def test_dropout_makes_no_piece_that_the_vocabulary_lacks():
    vocabulary = shuffled_vocabulary(MODEL, lacking=["\u2581ri", "gs"])
    tokenizer = SentencePieceTokenizer(MODEL, vocabulary=vocabulary)
    assert {"\u2581ri", "gs"} < set(processor(MODEL).id_to_piece(list(range(180))))
    texts = ["a man rides", "two dogs play"]
    assert tokenizer.unk_id not in tokenizer.tokenize(texts).flat_values.numpy()
    for seed in range(20):
        ids = tokenizer.tokenize_with_dropout(texts, 0.4, seed)
        assert tokenizer.unk_id not in {index for row in ids for index in row}


def test_segments_and_warm_up_texts_find_words_whatever_the_special_ids_are():
    from keras_transformer.serving.segments import SegmentSplitter
    from keras_transformer.serving.server_files import texts_of_lengths

    tokenizer = SentencePieceTokenizer(MODEL, vocabulary=shuffled_vocabulary(MODEL))
    splitter = SegmentSplitter(tokenizer, longest=4, max_segments=9)
    segments = splitter.split(tf.constant(["a man rides a brown horse."]), tf.constant([False]))
    parts = texts_of(tokenizer, segments.tokens)
    assert " ".join(parts) == "a man rides a brown horse."
    assert all(texts_of_lengths(tokenizer, [8, 16]))


MULTI30K = ("en", "de")


def corpus(shared, count):
    return [
        line
        for language in MULTI30K
        for line in shared(f"data/multi30k/train.{language}")
        .read_text(encoding="utf-8")
        .split("\n")[:count]
    ]


@pytest.mark.parametrize("count", [300, pytest.param(29_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["unigram_1000.model", "marian_style.spm"])
def test_models_of_others_read_and_write_as_the_library(shared, name, count):
    path = shared(f"data/sentencepiece/{name}")
    tokenizer = SentencePieceTokenizer.from_file(path)
    special = {"unigram_1000.model": (1000, 0, 1, 2), "marian_style.spm": (1000, 1, 1001, 0)}
    assert special_of(tokenizer) == special[name]
    lines = [*corpus(shared, count), *HOSTILE]
    assert_reads_and_writes_as_the_library(tokenizer, path.read_bytes(), lines)


@pytest.mark.parametrize("name", ["unigram_1000.model", "marian_style.spm"])
def test_models_of_others_read_any_text_as_the_library(shared, name):
    model = shared(f"data/sentencepiece/{name}").read_bytes()
    tokenizer, library = SentencePieceTokenizer(model), processor(model)

    @settings(max_examples=30)
    @given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
    def check(texts):
        ids = library.encode(texts)
        assert tokenizer.tokenize(texts).to_list() == ids
        assert texts_of(tokenizer, tf.ragged.constant(ids, tf.int32, 1)) == library.decode(ids)

    check()


def test_byte_pieces_and_symbols_of_a_foreign_model_keep_their_meaning(shared):
    tokenizer = SentencePieceTokenizer.from_file(shared("data/sentencepiece/marian_style.spm"))
    texts = ["日本 😀", "a __source__ b"]
    assert texts_of(tokenizer, tokenizer.tokenize(texts)) == texts
    assert "__source__" in tokenizer.pieces(tokenizer.tokenize(texts)[1])
    surfaces = tokenizer.surfaces()
    assert surfaces[tokenizer.pieces(range(1000)).index("<0x41>")] == "A"
    with pytest.raises(ValueError, match="dropout needs .* Received: one of type 'unigram'"):
        tokenizer.tokenize_with_dropout(texts, 0.1, 1)
