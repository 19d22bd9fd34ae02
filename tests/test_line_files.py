"""Lines of files one at a time: what ends a line, what is cut, and what is refused in one line."""

import gzip

import pytest

from keras_transformer.line_files import each_line

LINES = ["één", "two ", "", "fo\x85ur\u2028five"]


def write(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_are_those_between_line_feeds(tmp_path, end, last, pack, mark):
    data = mark + end.join(line.encode() for line in LINES) + end * last
    found = each_line(write(tmp_path / "a", pack(data)), 100)
    assert [line.decode() for line in found] == LINES


@pytest.mark.parametrize("size", [6, 7, 8, 9, 10, 100])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_long_line_is_cut_and_the_next_one_is_whole(tmp_path, size, end):
    data = b"x" * size + end + b"abc" * bool(end)
    found = list(each_line(write(tmp_path / "a", data), 7))
    assert found == [b"x" * min(size, 8), b"abc"][: 1 + bool(end)]


def test_an_empty_file_has_no_line(tmp_path):
    assert list(each_line(write(tmp_path / "a", b""), 7)) == []
    assert list(each_line(write(tmp_path / "b", gzip.compress(b"")), 7)) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("abc\n".encode("utf-16"), "is text in UTF-16"),
        (gzip.compress(b"abc\n" * 9000, mtime=0)[:60], "cannot be read"),
        (b"\x1f\x8b" + b"abc" * 20, "cannot be read"),
    ],
)
def test_a_file_that_is_no_text_is_named(tmp_path, data, said):
    path = write(tmp_path / "a", data)
    with pytest.raises(ValueError, match=said) as caught:
        list(each_line(path, 100))
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no such file"):
        list(each_line(tmp_path / "a", 100))
    with pytest.raises(ValueError, match="is not a file"):
        list(each_line(tmp_path, 100))
