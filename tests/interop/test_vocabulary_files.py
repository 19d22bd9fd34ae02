"""Vocabularies of Marian, CTranslate2 and NLLB are read as these programs write them."""

import json

import pytest

from keras_transformer.interop.vocabulary_files import (
    read_ctranslate2_vocabulary,
    read_marian_vocabulary,
    read_sentencepiece_pieces,
)
from tests.interop.weight_files import refusal

MARIAN = r"""</s>: 0
<unk>: 1
",": 2
▁the: 3
yes: 4
~: 5
1: 6
"\"": 7
"\\": 8
'it''s': 9
":": 10
a:b: 11
"\x07": 12
"\u00a0": 13
"\U0001F600": 14
"\n": 15
? "long"
: 16
? plain
: 17
"#": 18
"'": 19
"""
TOKENS = ["</s>", "<unk>", ",", "▁the", "yes", "~", "1", '"', "\\", "it's", ":", "a:b", "\a"]
TOKENS += ["\xa0", "\U0001f600", "\n", "long", "plain", "#", "'"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_vocabulary_of_marian_is_read_line_by_line(tmp_path, end):
    path = tmp_path / "vocab.yml"
    path.write_bytes(MARIAN.replace("\n", end).encode())
    assert read_marian_vocabulary(path) == {token: n for n, token in enumerate(TOKENS)}


def test_separators_of_unicode_are_no_ends_of_lines(tmp_path):
    path = tmp_path / "vocab.yml"
    path.write_text("a\u2028b: 0\n\x85: 1\n\n\u3000: 4", encoding="utf-8")
    assert read_marian_vocabulary(path) == {"a\u2028b": 0, "\x85": 1, "\u3000": 4}


def test_a_vocabulary_of_marian_may_be_json(tmp_path):
    path = tmp_path / "vocab.json"
    path.write_text(json.dumps({token: n for n, token in enumerate(TOKENS)}), encoding="utf-8")
    assert read_marian_vocabulary(path) == {token: n for n, token in enumerate(TOKENS)}


@pytest.mark.parity
def test_marian_vocabularies_are_read_as_by_ctranslate2(tmp_path):
    marian = pytest.importorskip("ctranslate2.converters.marian")
    path = tmp_path / "vocab.yml"
    # It reads an escaped line feed as the letter, and escapes of u and U not at all.
    lines = [line for line in MARIAN.splitlines() if not line.startswith(('"\\n', '"\\u', '"\\U'))]
    path.write_text("\n".join(lines), encoding="utf-8")
    ours = read_marian_vocabulary(path)
    assert sorted(ours, key=ours.get) == marian.load_vocab(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a", "line 1 must be token: id. Received: 'a'"),
        (b"a: 0\nb: x", "line 2 must be token: id. Received: 'b: x'"),
        (b"a: -1", "line 1 must be token: id"),
        (b"a: 99999999999", "line 1 must be token: id"),
        (b"a: 0\na: 1", "must stand once. Received: 'a': 1 twice"),
        (b"a: 0\nb: 0", "must stand once. Received: 'b': 0 twice"),
        (b'"a: 0', "line 1 must end its quote"),
        (b"': 0", "line 1 must end its quote"),
        (b'"\\q": 0', "line 1 must escape as YAML does"),
        (b'"\\": 0', "line 1 must escape as YAML does"),
        (b'"\\x4": 0', "line 1 must escape as YAML does"),
        (b'"\\ud800": 0', "line 1 must escape as YAML does"),
        (b'"\\UFFFFFFFF": 0', "line 1 must escape as YAML does"),
        (b"? a\n", "a key must have an id. Received: 'a' at the end"),
        (b"? a\nb: 0", "line 2 must be token: id"),
        (b"\xff: 0", "must be UTF-8"),
        (b'{"a": "b"}', "must be an integer from 0 on. Received: 'a': 'b'"),
        (b'{"a": true}', "Received: 'a': True"),
        (b'{"a": -1}', "Received: 'a': -1"),
        (b'{"a": 0, "a": 1}', "the key 'a' stands twice"),
    ],
)
def test_a_wrong_vocabulary_of_marian_is_refused(tmp_path, data, message):
    assert message in refusal(read_marian_vocabulary, tmp_path / "vocab.yml", data)


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        (b"<s>\na\n", ["<s>", "a"]),
        (b"<s>\na", ["<s>", "a"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\n\r\nb\n", ["a\r", "\r", "b"]),
        ("a\u2028\n\x85\n".encode(), ["a\u2028", "\x85"]),
        (b"a\na\n", ["a", "a"]),
        (b"", []),
    ],
)
def test_lines_of_text_are_tokens(tmp_path, data, tokens):
    path = tmp_path / "source_vocabulary.txt"
    path.write_bytes(data)
    assert read_ctranslate2_vocabulary(path) == tokens


def test_a_json_list_is_tokens(tmp_path):
    path = tmp_path / "shared_vocabulary.json"
    path.write_text('["<s>", "a\\nb"]', encoding="utf-8")
    assert read_ctranslate2_vocabulary(path) == ["<s>", "a\nb"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("vocabulary.txt", b"a\n\xff\n", "must be UTF-8"),
        ("vocabulary.json", b'{"a": 0}', "must hold a JSON list. Received: {'a': 0}"),
        ("vocabulary.json", b'["a", 1]', "a token must be a string. Received: 1"),
        ("vocabulary.json", b'["a"', "must be JSON"),
    ],
)
def test_a_wrong_vocabulary_of_ctranslate2_is_refused(tmp_path, name, data, message):
    assert message in refusal(read_ctranslate2_vocabulary, tmp_path / name, data)


def test_a_damaged_sentencepiece_model_is_refused_with_its_path(tmp_path):
    message = refusal(read_sentencepiece_pieces, tmp_path / "sentencepiece.bpe.model", b"text")
    assert message.startswith("`model` must be a serialized sentencepiece model")


def test_a_genuine_vocabulary_is_read(shared):
    directory = shared("data/ctranslate2/aren_transliteration")
    tokens = read_ctranslate2_vocabulary(directory / "source_vocabulary.txt")
    assert tokens[:3] == ["<blank>", "<s>", "</s>"]
    assert len(tokens) == len(set(tokens))
