"""Reading line-aligned files: what is kept, and the one line that says what is wrong."""

import bz2
import gzip
import io
import lzma
import zipfile

import pytest

from keras_transformer.line_files import check_is_text
from keras_transformer.recipes.parallel_text import (
    hold_out,
    read_lines,
    read_pairs,
    without_empty,
)


def write(path, data):
    path.write_bytes(data)
    return path


def test_lines_are_the_same_plain_and_compressed_with_either_line_end(tmp_path):
    plain = write(tmp_path / "a", "één\r\ntwo\n\nfour".encode())
    packed = write(tmp_path / "b", gzip.compress("één\ntwo\n\nfour\n".encode()))
    assert read_lines(plain) == read_lines(packed) == ["één", "two", "", "four"]


def test_only_line_feeds_end_a_line_and_a_byte_order_mark_is_no_text(tmp_path):
    path = write(tmp_path / "a", "\ufeffone\u2028still one\x0bstill\ntwo".encode())
    assert read_lines(path) == ["one\u2028still one\x0bstill", "two"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere.txt: there is no such file. Check the path."):
        read_lines(tmp_path / "nowhere.txt")
    with pytest.raises(ValueError, match=f"{tmp_path.name}: is not a file. Check the path."):
        read_lines(tmp_path)


def test_invalid_utf8_is_named_with_its_line_and_a_way_out(tmp_path):
    path = write(tmp_path / "latin", b"eins\nzwei\n" + "für\n".encode("latin-1"))
    with pytest.raises(ValueError, match="latin: line 3 is not valid UTF-8. Convert .*iconv"):
        read_lines(path)


SENTENCES = "één boek\nзелёный\n一本书\n" * 20
ASCII = "a book\nno, two\n"


def zipped(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("text", data)
    return file.getvalue()


OTHERS = {
    "xz": (lzma.compress(SENTENCES.encode()), "is compressed with xz. .* `xz -dk`"),
    "bzip2": (bz2.compress(SENTENCES.encode()), "is compressed with bzip2. .* `bzip2 -dk`"),
    "empty bzip2": (bz2.compress(b""), "is compressed with bzip2"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00ab", "is compressed with zstd. .* `zstd -d`"),
    "zip": (zipped(SENTENCES), "is a zip archive. .* `unzip`"),
    "twice gzip": (gzip.compress(gzip.compress(b"a")), "is compressed with gzip. .* `gzip -dk`"),
    "gzip of utf-16": (gzip.compress(SENTENCES.encode("utf-16")), "is text in UTF-16"),
    "utf-16": (SENTENCES.encode("utf-16"), "text in UTF-16. .* `iconv -f UTF-16 -t UTF-8`"),
    "utf-16-be mark": (b"\xfe\xff" + SENTENCES.encode("utf-16-be"), "is text in UTF-16"),
    "utf-32": (SENTENCES.encode("utf-32"), "text in UTF-32. .* `iconv -f UTF-32 -t UTF-8`"),
    "utf-16-le": (SENTENCES.encode("utf-16-le"), "`iconv -f UTF-16LE -t UTF-8`"),
    "utf-16-be": (SENTENCES.encode("utf-16-be"), "`iconv -f UTF-16BE -t UTF-8`"),
    "utf-32-le": (SENTENCES.encode("utf-32-le"), "`iconv -f UTF-32LE -t UTF-8`"),
    "utf-32-be": (SENTENCES.encode("utf-32-be"), "`iconv -f UTF-32BE -t UTF-8`"),
    "ascii in utf-16-le": (ASCII.encode("utf-16-le"), "`iconv -f UTF-16LE -t UTF-8`"),
    "ascii in utf-16-be": (ASCII.encode("utf-16-be"), "`iconv -f UTF-16BE -t UTF-8`"),
    "ascii in utf-32-le": (ASCII.encode("utf-32-le"), "`iconv -f UTF-32LE -t UTF-8`"),
    "Latin-1 with stray NULs": (
        b"caf\xe9 au lait, s'il vo\x00" * 9 + b"\n",
        "is not text: it holds 9 NUL",
    ),
    "a PDF": (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" + bytes(range(256)) * 9, "is not text"),
    "Chinese in utf-16-le": ("一本书\n".encode("utf-16-le"), "`iconv -f UTF-16LE -t UTF-8`"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_of_another_kind_is_named_with_what_converts_it(tmp_path, kind):
    data, message = OTHERS[kind]
    path = write(tmp_path / "file", data)
    with pytest.raises(ValueError, match=f"file: .*{message}"):
        read_lines(path)


def test_text_with_strange_characters_is_text(tmp_path):
    for text in ("a\x00b and more text", "BZh9", "PK and zip", "一本书"):
        assert read_lines(write(tmp_path / "file", f"{text}\n".encode())) == [text]
    assert read_lines(write(tmp_path / "file", b"")) == []
    check_is_text("é".encode()[:1], "a beginning, cut within a character")


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_broken_archive_is_named(tmp_path, damage):
    data = bytearray(gzip.compress(b"text" * 100))
    if damage == "changed":
        data[12] ^= 0xFF
    path = write(tmp_path / "broken.gz", bytes(data if damage == "changed" else data[:-9]))
    with pytest.raises(ValueError, match="broken.gz: cannot be read"):
        read_lines(path)


def test_files_of_unequal_length_are_refused_with_both_lengths(tmp_path):
    first, second = write(tmp_path / "a", b"1\n2\n3\n"), write(tmp_path / "b", b"1\n2\n")
    with pytest.raises(ValueError, match="a has 3 lines and .*b has 2. .*equal length"):
        read_pairs(first, second)


def test_an_empty_file_is_refused(tmp_path):
    path = write(tmp_path / "a", b"")
    with pytest.raises(ValueError, match="the file is empty"):
        read_pairs(path, path)


def test_pairs_with_an_empty_side_are_counted():
    pairs = [("a", "b"), (" ", "b"), ("a", ""), ("c", "d")]
    assert without_empty(pairs) == ([("a", "b"), ("c", "d")], 2)


def test_no_held_out_source_stays_among_the_rest():
    pairs = [(str(number % 50), str(number)) for number in range(200)]
    remaining, held_out = hold_out(pairs, share=0.05, seed=3)
    assert len(held_out) == 10
    assert not {source for source, _ in held_out} & {source for source, _ in remaining}
    assert hold_out(pairs, share=0.05, seed=3) == (remaining, held_out)


def test_too_few_pairs_to_hold_some_out_are_refused():
    with pytest.raises(ValueError, match="1 pairs are too few to hold some out"):
        hold_out([("a", "b")])
