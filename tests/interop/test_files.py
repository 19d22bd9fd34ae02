"""Directories and JSON are checked, and what is missing or wrong is said in a line."""

import json

import pytest

from keras_transformer.interop.files import (
    checked_directory,
    checked_file,
    file_beside,
    read_json,
    read_text,
    shown,
)
from tests.interop.weight_files import refusal


def test_a_directory_with_its_files_is_given_back(tmp_path):
    (tmp_path / "config.json").touch()
    (tmp_path / "model.npz").touch()
    assert checked_directory(str(tmp_path), "config.json") == tmp_path
    assert checked_directory(tmp_path, "config.json", ("other", "model.npz")) == tmp_path


def test_a_missing_file_is_named_with_what_is_there(tmp_path):
    with pytest.raises(ValueError, match="must hold config.json. Received: an empty directory"):
        checked_directory(tmp_path, "config.json")
    for number in range(23):
        (tmp_path / f"{number:02}").touch()
    with pytest.raises(ValueError, match="must hold a, b or c. Received: 00, .*, 19 and 3 more"):
        checked_directory(tmp_path, "a", "00", ("b", "c"))
    with pytest.raises(ValueError, match="`directory` must be a directory. Received: '.*/00'"):
        checked_directory(tmp_path / "00")


def test_a_file_beside_another_has_a_plain_name(tmp_path):
    (tmp_path / "a..b").touch()
    assert file_beside(tmp_path, "a..b") == tmp_path / "a..b"
    for name in ("", ".", "..", "../a", "/a", "b/a", "\\a", "c:a", "a\0", None, 3, ["a"]):
        with pytest.raises(ValueError, match="must be named without a path. Received: "):
            file_beside(tmp_path, name)


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(ValueError, match="must be a file. .*, which is not an ordinary file"):
        checked_file(tmp_path)


def test_json_is_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + '{"d_model": 512, "é": [1.5, null]}'.encode())
    assert read_json(path) == {"d_model": 512, "é": [1.5, None]}
    path.write_text("[1]", encoding="utf-8")
    assert read_json(path, list) == [1]
    assert read_json(path, (list, dict)) == [1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "must be JSON. Received: ''"),
        (b"{", "must be JSON"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice"),
        (b'{"a": {"b": 1, "b": 1}}', "the key 'b' stands twice"),
        (b"[1, 2]", "must hold a JSON dict. Received: [1, 2]"),
        (b"3", "must hold a JSON dict. Received: 3"),
        (b"\xff", "must be UTF-8. Received: invalid start byte at 0"),
        (b'{"a":' * 100_000, "nested too deep"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "must be JSON"),
        (b'{"a": 1}' + b" " * 2000, "must have at most 1000 bytes. Received: 2008 bytes"),
    ],
)
def test_wrong_json_is_refused(tmp_path, data, message):
    limit = 1000 if data.endswith(b" ") else 10**6

    def open_file(path):
        return read_json(path, max_bytes=limit)

    assert message in refusal(open_file, tmp_path / "config.json", data)


def test_text_is_utf8(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("ü\r\n\u2028".encode())
    assert read_text(path) == "ü\r\n\u2028"


def test_a_value_is_shown_in_a_line():
    assert shown("a\nb") == r"'a\nb'"
    deep = []
    for _ in range(60):
        deep = [deep] * 60
    for value in ("x" * 10**6, [*range(10**6)], deep, dict.fromkeys(map(str, range(99)))):
        assert len(shown(value)) < 600
    assert json.loads(shown([1, 2])) == [1, 2]
