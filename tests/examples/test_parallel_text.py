"""Reading line-aligned files: what is kept, and the one line that says what is wrong."""

import gzip

import pytest

from parallel_text import hold_out, read_lines, read_pairs, without_empty


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
    with pytest.raises(ValueError, match=f"{tmp_path.name}: is no file. Check the path."):
        read_lines(tmp_path)


def test_invalid_utf8_is_named_with_its_line_and_a_way_out(tmp_path):
    path = write(tmp_path / "latin", b"eins\nzwei\n" + "für\n".encode("latin-1"))
    with pytest.raises(ValueError, match="latin: line 3 is not valid UTF-8. Convert .*iconv"):
        read_lines(path)


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
