"""Saved tokenizers: the right class from the file, and clear errors for other files."""

import json

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_transformer import tokenizer_file  # noqa: E402
from keras_transformer.text import (  # noqa: E402
    CharacterTokenizer,
    SentencePieceTokenizer,
    load_tokenizer,
)


def test_load_tokenizer_picks_the_class(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "file")
    loaded = load_tokenizer(str(tmp_path / "file"))
    assert type(loaded) is type(tokenizer)
    assert loaded.to_bytes() == tokenizer.to_bytes()


def test_the_first_line_describes_the_file(tokenizer):
    header = json.loads(tokenizer.to_bytes().partition(b"\n")[0])
    assert header["format"] == "keras_transformer.tokenizer"
    assert header["version"] == 1
    assert header["kind"] == type(tokenizer).__name__


def test_another_class_refuses_the_file(tmp_path):
    CharacterTokenizer("abc").save(tmp_path / "letters")
    with pytest.raises(ValueError, match="Received: kind='CharacterTokenizer'"):
        SentencePieceTokenizer.load(tmp_path / "letters")


@pytest.mark.parametrize("content", [b"", b"hello\nworld", b"[1, 2]\n", b"\xff\x00", b"{}\n"])
def test_another_kind_of_file_raises_and_is_named(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    for load in (load_tokenizer, CharacterTokenizer.load):
        with pytest.raises(ValueError, match="other: `data` must be a tokenizer written by"):
            load(path)


def test_a_damaged_file_raises(tmp_path):
    data = CharacterTokenizer("abc").to_bytes()
    for damaged in (data[:-1], data + b"d", data[:-1] + b"x"):
        (tmp_path / "file").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged or cut short. Received: num_bytes=\d"):
            load_tokenizer(tmp_path / "file")


def test_a_later_version_and_an_unknown_kind_raise(tmp_path):
    data = CharacterTokenizer("abc").to_bytes()
    (tmp_path / "file").write_bytes(data.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(ValueError, match="Received: version=2"):
        load_tokenizer(tmp_path / "file")
    (tmp_path / "file").write_bytes(tokenizer_file.pack("Other", {}, b""))
    with pytest.raises(ValueError, match="kind must be one of .* Received: kind='Other'"):
        load_tokenizer(tmp_path / "file")


def test_a_missing_file_raises(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_tokenizer(tmp_path / "missing")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    CharacterTokenizer("abc").save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(tokenizer_file.os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        CharacterTokenizer("xyz").save(path)
    assert [item.name for item in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == before
