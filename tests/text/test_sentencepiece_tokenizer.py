"""SentencePieceTokenizer: lossless text, sizes of the vocabulary, options of training."""

import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_transformer import tokenizer_file  # noqa: E402
from keras_transformer.text import SentencePieceTokenizer, load_tokenizer  # noqa: E402
from keras_transformer.text.sentencepiece_library import read_types  # noqa: E402


def there_and_back(tokenizer, texts):
    return [text.decode() for text in tokenizer.detokenize(tokenizer.tokenize(texts)).numpy()]


@settings(max_examples=25)
@given(st.lists(st.text(max_size=30), max_size=8))
@example(["\u2581", "\ue000a", "\ue000b\u2581\ue000", "\ue000\ue000a", " \u2581 "])
@example(["", " ", "  a  b ", "\n", "\r\n\t", "\x00", "a\x00", "\ufeff", "\ufb01", "\u2585\u2047"])
@example(["</s><s><pad><unk>", "<0x41>", "e\u0301", "\U0010ffff\uffff\ufffe"])
def test_a_lossless_model_gives_every_string_back(tokenizers, texts):
    assert there_and_back(tokenizers["lossless"], texts) == texts


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_strange_training_text_is_still_lossless(model_type):
    texts = ["</s> <s> <pad> <unk> <0x41>", "\u2581\u2581 x\u2581", "a\x00b", "one\ntwo\r\nthree\t"]
    texts += ["\u2585\u2047", "\ue000a", "long " * 3000, "", "   "]
    tokenizer = SentencePieceTokenizer.train(
        texts * 4, vocab_size=400, model_type=model_type, lossless=True, shrink_to_fit=True
    )
    assert there_and_back(tokenizer, texts) == texts
    assert not {0, 1, 2, 3} & set(tokenizer.tokenize(texts).flat_values.numpy().tolist())


def test_a_model_with_the_usual_settings_is_lossy_in_known_ways(tokenizers):
    texts = ["  a   man ", "\ta\r\n\v\fman\n", "a \u732b", "a\u2581man"]
    assert there_and_back(tokenizers["bpe"], texts) == ["a man", "a man", "a  \u2047 ", "a man"]


RULE_FILE = "2026\t2E 2E 2E\n61 62\t63\n"  # "…" is "...", and "ab" is "c"


def test_a_rule_of_sentencepiece_replaces_what_it_says(sentences, tmp_path):
    path = tmp_path / "rules.tsv"
    path.write_text(RULE_FILE, encoding="ascii")
    for rule, changed in (
        ("nmt_nfkc", "a man... ab C"),
        ("nmt_nfkc_cf", "a man... ab c"),
        ("nfkc_cf", "a man... ab c"),
        (path, "a man... c C"),
        (str(path), "a man... c C"),
    ):
        options = {"vocab_size": 110, "shrink_to_fit": True, "normalization": rule}
        tokenizer = SentencePieceTokenizer.train([*sentences, "a man… ab C…"], **options)
        assert b"rules.tsv" not in tokenizer.to_bytes()
        assert there_and_back(tokenizer, ["a  man… ab C"]) == [changed]
        saved = SentencePieceTokenizer.from_bytes(tokenizer.to_bytes())
        assert there_and_back(saved, ["a  man… ab C"]) == [changed]


def test_sources_may_be_folded_more_than_targets_with_one_vocabulary(sentences):
    target = SentencePieceTokenizer.train(sentences, vocab_size=110)
    source = SentencePieceTokenizer(target.model, normalization="nfkc", lowercase=True)
    assert source.vocab_size == target.vocab_size
    ids = source.tokenize(["Ａ　ＭＡＮ rides"]).to_list()
    assert ids == target.tokenize(["a man rides"]).to_list() != [[1]]
    assert target.unk_id in target.tokenize(["Ａ"]).to_list()[0]
    again = SentencePieceTokenizer.from_bytes(source.to_bytes())
    assert (again.normalization, again.lowercase) == ("nfkc", True)
    assert again.tokenize(["Ａ　ＭＡＮ rides"]).to_list() == ids


def test_a_file_from_before_keeps_its_ids(sentences):
    """Its model folds case by a rule of its own, and no option says more."""
    options = {"vocab_size": 110, "shrink_to_fit": True, "normalization": "nmt_nfkc_cf"}
    model = SentencePieceTokenizer.train(sentences, **options).model
    old = tokenizer_file.pack("SentencePieceTokenizer", {"lossless": False}, model)
    tokenizer = SentencePieceTokenizer.from_bytes(old)
    assert tokenizer.to_bytes() == old
    processor = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_proto=model)
    texts = ["A\tMAN ｒides\u3000Σς", "x\vy\x01z"]
    assert tokenizer.tokenize(texts).to_list() == processor.encode(texts)


@pytest.mark.parametrize("rule", ["nfd", "", "missing.tsv", 3, None, ["nfc"]])
def test_another_rule_raises_with_the_received_value(sentences, rule):
    with pytest.raises(ValueError, match=r"`normalization` must be .*\.tsv.* Received: norm"):
        SentencePieceTokenizer.train(sentences, vocab_size=100, normalization=rule)


@pytest.mark.parametrize(
    "options", [{"lowercase": True}, {"normalization": "nfc"}, {"byte_fallback": False}]
)
def test_a_lossless_tokenizer_folds_nothing(sentences, options):
    with pytest.raises(ValueError, match="`lossless` keeps every .* Received: lossless=True, "):
        SentencePieceTokenizer.train(sentences, vocab_size=360, lossless=True, **options)


def test_rare_characters_are_spelled_in_bytes_where_they_have_no_piece():
    words = ["the brown horse", "the old road", "a dog watches the women"] * 2000
    many = [*words, "".join(map(chr, range(0x4E00, 0x4E00 + 400)))]
    options = {"vocab_size": 3000, "shrink_to_fit": True}
    unseen = ["a \u9fa0 and 😀", *many[-1:]]
    tokenizer = SentencePieceTokenizer.train(many, **options)
    assert there_and_back(tokenizer, unseen) == unseen
    without = SentencePieceTokenizer.train(many, byte_fallback=False, **options)
    assert all(1 in row for row in without.tokenize(unseen).to_list())
    latin = SentencePieceTokenizer.train(words, byte_fallback=True, **options)
    assert there_and_back(latin, unseen) == unseen
    assert 1 in SentencePieceTokenizer.train(words, **options).tokenize(unseen).to_list()[0]


def test_long_lines_are_learned_from():
    """sentencepiece alone leaves out lines of more than 4192 bytes."""
    tokenizer = SentencePieceTokenizer.train(["abcdefg " * 2000], vocab_size=40, shrink_to_fit=True)
    assert tokenizer.pieces(tokenizer.tokenize(["abcdefg"])[0]) == ["\u2581abcdefg"]


def test_a_vocabulary_too_large_raises_with_the_largest_possible(sentences):
    with pytest.raises(ValueError, match=r"at most \d+ for .* Received: vocab_size=8000") as caught:
        SentencePieceTokenizer.train(sentences, vocab_size=8000)
    largest = int(str(caught.value).split("at most ")[1].split()[0])
    assert SentencePieceTokenizer.train(sentences, vocab_size=largest).vocab_size == largest
    shrunk = SentencePieceTokenizer.train(sentences, vocab_size=8000, shrink_to_fit=True)
    assert shrunk.vocab_size == largest


def test_shrink_to_fit_keeps_a_size_that_fits(sentences):
    tokenizer = SentencePieceTokenizer.train(sentences, vocab_size=100, shrink_to_fit=True)
    assert tokenizer.vocab_size == 100


def test_a_vocabulary_too_small_raises_with_the_smallest_possible(sentences):
    with pytest.raises(ValueError, match=r"at least \d+ to hold .* Received: vocab_size=9"):
        SentencePieceTokenizer.train(sentences, vocab_size=9)
    with pytest.raises(ValueError, match=r"at least 3\d\d to hold .* Received: vocab_size=200"):
        SentencePieceTokenizer.train(sentences, vocab_size=200, lossless=True)


def test_split_digits_makes_each_digit_a_piece():
    texts = ["2024 2025 2026"] * 20
    options = {"vocab_size": 60, "shrink_to_fit": True}
    joined = SentencePieceTokenizer.train(texts, **options)
    split = SentencePieceTokenizer.train(texts, split_digits=True, **options)
    assert joined.pieces(joined.tokenize(["2024"])[0]) == ["\u25812024"]
    assert split.pieces(split.tokenize(["2024"])[0]) == ["\u2581", "2", "0", "2", "4"]


def test_rare_characters_are_known_unless_all_would_fill_the_vocabulary():
    words = ["the brown horse", "the old road", "a dog watches the women"] * 2000
    latin = [*words, "5 „weiße“ cafés (2)"]
    tokenizer = SentencePieceTokenizer.train(latin, 600, shrink_to_fit=True)
    assert tokenizer.detokenize(tokenizer.tokenize(latin[-1:])).numpy()[0].decode() == latin[-1]
    given = SentencePieceTokenizer.train(latin, 600, shrink_to_fit=True, character_coverage=0.9995)
    assert 1 in given.tokenize(latin[-1:]).to_list()[0]
    # 100 distinct ones are more than an eighth.
    many = [*words, "".join(map(chr, range(0x4E00, 0x4E00 + 100)))]
    tokenizer = SentencePieceTokenizer.train(many, 600, shrink_to_fit=True)
    assert 1 in tokenizer.tokenize(many[-1:]).to_list()[0]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("model_type", "word"),
        ("character_coverage", 0.0),
        ("character_coverage", 1.5),
        ("lossless", 1),
        ("split_digits", "yes"),
        ("shrink_to_fit", None),
        ("byte_fallback", 1),
    ],
)
def test_a_bad_option_raises_with_the_received_value(sentences, option, value):
    with pytest.raises(ValueError, match=f"`{option}` must be .* Received: {option}="):
        SentencePieceTokenizer.train(sentences, vocab_size=100, **{option: value})


@pytest.mark.parametrize("model", [b"", b"not a model", b"\x0a\x00\xff"])
def test_bytes_that_are_no_model_raise(model):
    with pytest.raises(ValueError, match="`model` must be a serialized sentencepiece model"):
        SentencePieceTokenizer(model)


def test_piece_types_are_those_that_the_library_reads(tokenizers):
    proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2").ModelProto
    for name in ("bpe", "unigram", "lossless"):
        pieces = proto.FromString(tokenizers[name].model).pieces
        expected = [piece.Type.Name(piece.type) for piece in pieces]
        assert read_types(tokenizers[name].model).types == expected


def test_training_writes_nothing(sentences, capfd):
    SentencePieceTokenizer.train(sentences, vocab_size=100)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_training_without_sentencepiece_names_the_install(sentences, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ImportError, match=r"pip install .*\[tensorflow\]"):
        SentencePieceTokenizer.train(sentences, vocab_size=100)


def test_a_saved_model_is_read_without_sentencepiece(tokenizers, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    loaded = SentencePieceTokenizer.from_bytes(tokenizers["bpe"].to_bytes())
    expected = tokenizers["bpe"].tokenize(["a man"]).to_list()
    assert loaded.tokenize(["a man"]).to_list() == expected


@pytest.mark.slow
def test_a_saved_model_loads_without_sentencepiece(tokenizers, tmp_path):
    path = tmp_path / "bpe.tokenizer"
    tokenizers["bpe"].save(path)
    program = (
        "import sys; sys.modules['sentencepiece'] = None\n"
        "from keras_transformer.text import load_tokenizer\n"
        f"print(load_tokenizer({str(path)!r}).vocab_size)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == tokenizers["bpe"].vocab_size


SEEN = ["la fin de la semaine", "un café à 10 euros", "les noms de la ville"] * 20


UNSEEN = {
    "10\u00a0euros": "10 euros",
    "un cafe\u0301": "un café",
    "a\u0300 la fin": "à la fin",
    "\ufeffla fin": "la fin",
    "la\u200b fin": "la fin",
    "la \ufb01n": "la fin",
    "ｌａ ｆｉｎ": "la fin",
    "\U0001d425a fin": "la fin",
}


@pytest.mark.parametrize("options", [{}, {"normalization": "nfc"}, {"model_type": "unigram"}])
def test_a_character_of_no_training_text_reads_as_what_it_stands_for(options):
    tokenizer = SentencePieceTokenizer.train(SEEN, 60, shrink_to_fit=True, **options)
    found, expected = (tokenizer.tokenize([*texts]) for texts in (UNSEEN, UNSEEN.values()))
    assert dict(zip(UNSEEN, found.to_list(), strict=True)) == dict(
        zip(UNSEEN, expected.to_list(), strict=True)
    )
    assert tokenizer.unk_id not in found.flat_values.numpy()


def test_a_character_that_stands_for_unseen_ones_is_unknown():
    tokenizer = SentencePieceTokenizer.train(SEEN, 60, shrink_to_fit=True)
    assert tokenizer.unk_id in tokenizer.tokenize(["\u00bd"]).to_list()[0]  # ½ is 1⁄2


def test_what_the_training_texts_hold_stays_as_it_is():
    texts = [f"{text} \ufb01\u00a0e\u0301\u200b\u00ad½" for text in SEEN]
    tokenizer = SentencePieceTokenizer.train(texts, 90, shrink_to_fit=True)
    assert tokenizer.detokenize(tokenizer.tokenize(texts[:3])).numpy().tolist() == [
        text.encode() for text in texts[:3]
    ]


SYMBOLS = ["__NUM__", "<2de>", 'a,b"c', "ü-ü", "日本"]
PLACEHOLDERS = [
    "<2de> a man __NUM__ rides",
    "__NUM____NUM__",
    'xa,b"cy ü-ü<2de>日本a',
    "a man",
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lossless": True},
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in (
                {"model_type": "unigram"},
                {"normalization": "nfc"},
                {"normalization": "nmt_nfkc"},
            )
        ),
    ],
)
def test_a_symbol_is_one_piece_that_nothing_splits_or_makes(sentences, options):
    texts = [*sentences, *PLACEHOLDERS, "_ N U M 2 d e < > , -"] * 3
    size = 420 if options.get("lossless") else 160
    tokenizer = SentencePieceTokenizer.train(
        texts, size, shrink_to_fit=True, user_defined_symbols=SYMBOLS, **options
    )
    ids = [tokenizer.pieces(range(tokenizer.vocab_size)).index(symbol) for symbol in SYMBOLS]
    assert ids == [4, 5, 6, 7, 8]
    found, starts, ends = tokenizer.tokenize_with_offsets(PLACEHOLDERS)
    assert found.to_list() == tokenizer.tokenize(PLACEHOLDERS).to_list()
    for text, row, *places in zip(
        PLACEHOLDERS, found.to_list(), starts.to_list(), ends.to_list(), strict=True
    ):
        data = text.encode()
        read = [data[a:b].decode() for i, a, b in zip(row, *places, strict=True) if i in ids]
        assert read == re.findall("|".join(SYMBOLS), text)
    assert there_and_back(tokenizer, PLACEHOLDERS) == PLACEHOLDERS
    others = ["__ NUM__", "_NUM_", "<2 de>", "2de", "<2DE>", "a,b", "ü-", "日 本", "_" * 9]
    assert not set(ids) & set(tokenizer.tokenize(others).flat_values.numpy())
    assert [tokenizer.surfaces()[index] for index in ids] == SYMBOLS
    assert tokenizer.tags == []
    again = SentencePieceTokenizer.from_bytes(tokenizer.to_bytes())
    assert again.tokenize(PLACEHOLDERS).to_list() == found.to_list()
    if options.get("model_type") != "unigram":
        for seed in range(5):
            dropped = tokenizer.tokenize_with_dropout(PLACEHOLDERS, 0.9, seed)
            for row, before in zip(dropped, found.to_list(), strict=True):
                assert [i for i in row if i in ids] == [i for i in before if i in ids]


def test_what_the_normalization_replaces_may_be_a_symbol(sentences):
    """The rule of the model reads full-width characters as others, before anything else."""
    options = {"user_defined_symbols": ["<2de>"], "shrink_to_fit": True}
    tokenizer = SentencePieceTokenizer.train(sentences, 110, normalization="nfkc", **options)
    assert 4 in tokenizer.tokenize(["＜２ｄｅ＞"]).flat_values.numpy()
    lower = SentencePieceTokenizer.train(sentences, 110, lowercase=True, **options)
    assert lower.tokenize(["<2DE> A"]).to_list() == lower.tokenize(["<2de> a"]).to_list()
    assert 4 in lower.tokenize(["<2DE> A"]).flat_values.numpy()


def test_an_escape_of_a_lossless_text_is_no_part_of_a_symbol(sentences):
    """U+2581 is spelled with an "a" behind it, U+E000 with a "b"."""
    texts = ["\u2581bc", "\ue000c", "abc", "bc", "\ue000abc\u2581"]
    tokenizer = SentencePieceTokenizer.train(
        sentences, 380, lossless=True, user_defined_symbols=["abc", "bc"]
    )
    assert there_and_back(tokenizer, texts) == texts
    found = [tokenizer.pieces(row) for row in tokenizer.tokenize(texts)]
    assert ["bc" in row for row in found] == [True, False, False, True, False]
    assert ["abc" in row for row in found] == [False, False, True, False, True]


@pytest.mark.parametrize(
    ("symbols", "options"),
    [
        (["a b"], {}),
        (["\u2581a"], {}),
        ([""], {}),
        (["a", "a"], {}),
        (["</s>"], {}),
        (["<0x41>"], {}),
        (["a\n"], {}),
        (["\ue000"], {}),
        (["<DE>"], {"lowercase": True}),
        (["ﬁ"], {"normalization": "nfkc"}),
    ],
)
def test_a_bad_symbol_raises_with_the_received_value(sentences, symbols, options):
    with pytest.raises(ValueError, match="`user_defined_symbols` must be .* Received: user_def"):
        SentencePieceTokenizer.train(sentences, 110, user_defined_symbols=symbols, **options)
    with pytest.raises(TypeError, match="`user_defined_symbols` must be an iterable"):
        SentencePieceTokenizer.train(sentences, 110, user_defined_symbols="abc")


def test_a_large_corpus_is_learned_from_a_sample_the_same_each_time(sentences):
    rare = [f"word{n} number{n}" for n in range(500)]
    options = {"vocab_size": 90, "shrink_to_fit": True}
    all_lines = SentencePieceTokenizer.train([*sentences, *rare], **options)
    made = [
        SentencePieceTokenizer.train(iter([*sentences, *rare]), input_sentence_size=60, **options)
        for _ in range(2)
    ]
    assert made[0].to_bytes() == made[1].to_bytes() != all_lines.to_bytes()
    enough = SentencePieceTokenizer.train([*sentences, *rare], input_sentence_size=542, **options)
    assert enough.to_bytes() == all_lines.to_bytes()
    with pytest.raises(ValueError, match="`input_sentence_size` must be .* Received: input_s"):
        SentencePieceTokenizer.train(sentences, 90, input_sentence_size=0)


TEXTS = ["a man rides a horse", "two dogs play with a ball", "a woman reads a book"] * 5


@pytest.mark.parametrize("kind", ["bpe", "unigram", "vocabulary"])
def test_more_pieces_are_whole_and_other_text_keeps_its_ids(kind, tmp_path):
    old = SentencePieceTokenizer.train(
        TEXTS, vocab_size=60, model_type="bpe" if kind == "vocabulary" else kind, shrink_to_fit=True
    )
    if kind == "vocabulary":  # of another order, with the special ids elsewhere and a hole
        listed = [*old.vocabulary[4:], "<pad>", None, "<unk>", "</s>", "<s>", ">>deu<<"]
        old = SentencePieceTokenizer(old.model, vocabulary=listed)
    larger = old.with_pieces(["xyzzy", "qux-1"])
    assert larger.vocabulary == [*old.vocabulary, "xyzzy", "qux-1"]
    for name in ("pad_id", "unk_id", "bos_id", "eos_id", "tags", "vocab_size"):
        more = 2 * (name == "vocab_size")
        assert getattr(larger, name) == (getattr(old, name) + more if more else getattr(old, name))
    assert larger.tokenize(TEXTS).to_list() == old.tokenize(TEXTS).to_list()
    text = f"{TEXTS[0]} xyzzy {TEXTS[1]} qux-1"
    (ids,) = larger.tokenize([text]).to_list()
    assert {old.vocab_size, old.vocab_size + 1} <= {*ids}
    assert larger.detokenize([ids]).numpy()[0].decode() == text
    larger.save(tmp_path / "file")
    assert load_tokenizer(tmp_path / "file").tokenize([text]).to_list() == [ids]


def test_a_code_that_text_becomes_stays_one_with_more_pieces():
    texts = ["a man rides a horse", "a man feeds a dog"] * 5
    symbols = {"user_defined_symbols": [">>fra<<"]}
    tokenizer = SentencePieceTokenizer.train(texts, vocab_size=30, **symbols)
    larger = tokenizer.with_pieces(["rides"])
    assert larger.tags == tokenizer.tags == [">>fra<<"]
    text = ">>fra<< a man"
    ids = larger.tokenize([text]).to_list()
    assert ids == tokenizer.tokenize([text]).to_list()
    assert larger.detokenize(ids).numpy()[0].decode() == text


def test_pieces_that_cannot_be_added_are_refused():
    tokenizer = SentencePieceTokenizer.train(TEXTS, vocab_size=60, shrink_to_fit=True)
    with pytest.raises(ValueError, match="`pieces` must be new.*"):
        tokenizer.with_pieces(["new", tokenizer.vocabulary[-1]])
    with pytest.raises(ValueError, match="`pieces` must be distinct strings.*'two words'"):
        tokenizer.with_pieces(["two words"])
    with pytest.raises(ValueError, match="`pieces` must be as `lowercase`"):
        SentencePieceTokenizer(tokenizer.model, lowercase=True).with_pieces(["Berlin"])
    lossless = SentencePieceTokenizer.train(
        TEXTS, vocab_size=320, lossless=True, shrink_to_fit=True
    )
    with pytest.raises(ValueError, match="lossless tokenizer gets symbols"):
        lossless.with_pieces(["new"])
