import re

import pytest

from keras_transformer.recipes.pair_formats import (
    decode_target,
    encode_source,
    encode_sources,
    encode_target,
    read_file,
)


@pytest.mark.parametrize(
    ("format", "line", "expected"),
    [
        ("inflection", "go on\twent\tV;PST", ("g o ▁ o n <V> <PST>", "w e n t")),
        ("inflection", "ház\tházban\tN;IN+ESS", ("h á z <N> <IN> <ESS>", "h á z b a n")),
        ("inflection", "ab\tabom\tN;SG;PSS1S", ("a b <N> <SG> <PSS> <1> <S>", "a b o m")),
        ("inflection", "a\tb\tARGAC3P+ARGNO1S", ("a <ARGAC> <3> <P> <ARGNO> <1> <S>", "b")),
        ("inflection", "a\tb\tLGSPEC02;IN+ABL", ("a <LGSPEC02> <IN> <ABL>", "b")),
        ("g2p", "ab\tɒ  pː", ("a b", "ɒ pː")),
        ("scan", "IN: run twice OUT: I_RUN I_RUN", ("run twice", "I_RUN I_RUN")),
        ("scan", "IN: run  twice  OUT:  I_RUN I_RUN ", ("run twice", "I_RUN I_RUN")),
        ("characters", "ab c\tx", ("a b ▁ c", "x")),
        ("characters", "a\u00a0b\tx", ("a ▁ b", "x")),
        ("characters", "e\u0301\tx", ("\u00e9", "x")),  # NFC
        ("text", "e\u0301\tשּׁ", ("e\u0301", "שּׁ")),  # as it is
        ("text", "A man.\tEin\tMann.", ("A man.", "Ein Mann.")),
    ],
)
def test_each_format_is_read(tmp_path, format, line, expected):
    file = tmp_path / "pairs"
    file.write_text(f"{line}\n\n{line}\n", encoding="utf-8")
    assert read_file(file, format) == [expected] * 2


@pytest.mark.parametrize(
    ("format", "line"),
    [
        ("inflection", "go\twent"),
        ("g2p", "ab"),
        ("scan", "OUT: x"),
        ("characters", "a\t"),
        ("text", "A man."),
    ],
)
def test_a_bad_line_is_named(tmp_path, format, line):
    file = tmp_path / "pairs"
    file.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"line 2 must .*, in the format '{format}'. Received: '"):
        read_file(file, format)


def test_one_file_of_whole_sentences_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "train.en").write_text("A man rides a horse.\n", encoding="utf-8")
    told = (
        "line 1 must have 2 columns .*: 'A man rides a horse.'. Or give two files, one of sources"
    )
    with pytest.raises(ValueError, match=told):
        read_file(tmp_path / "train.en", "text")
    with pytest.raises(ValueError, match="Received: 'A man rides a horse.'$"):
        read_file(tmp_path / "train.en", "characters")  # which has no two files


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "pairs").write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no line has a pair"):
        read_file(tmp_path / "pairs", "characters")


@pytest.mark.parametrize(
    ("format", "name", "number"),
    [
        ("inflection", "inflection/kat.dev", 1000),
        ("g2p", "g2p/hun_dev.tsv", 1000),
        ("scan", "scan/tasks_test_simple.txt", 4182),
    ],
)
def test_real_files_are_read(shared, format, name, number):
    found = read_file(shared(f"data/{name}"), format)
    assert len(found) == number
    for source, target in found:
        if format == "inflection":
            assert "<" in source
            assert "<" not in target
        elif format == "scan":
            assert "I_" not in source
            assert "I_" in target
        else:
            assert max(map(len, source.split())) == 1
    if format == "g2p":
        assert max(len(phone) for _, target in found for phone in target.split()) > 1


@pytest.mark.parametrize(
    ("format", "line", "encoded"),
    [
        ("g2p", "tool", "t o o l"),
        ("characters", "ab c", "a b ▁ c"),
        ("characters", "e\u0301", "\u00e9"),
        ("inflection", "go on\tV;PST", "g o ▁ o n <V> <PST>"),
        ("inflection", "go", "g o"),
        ("scan", "run twice", "run twice"),
        ("text", "e\u0301 tool", "e\u0301 tool"),
        ("dates", "May 3", "May 3"),
    ],
)
def test_a_source_is_read_as_those_of_the_training_were(format, line, encoded):
    assert encode_source(line, format) == encoded


@pytest.mark.parametrize(
    ("format", "line", "encoded"),
    [
        ("g2p", "t uː l", "t uː l"),
        ("characters", " ab c", "a b ▁ c"),
        ("inflection", "e\u0301 a", "\u00e9 ▁ a"),
        ("scan", "I_RUN I_RUN", "I_RUN I_RUN"),
        ("text", " e\u0301 tool", " e\u0301 tool"),
        ("dates", "3 mai", "3 mai"),
    ],
)
def test_a_target_is_read_as_those_of_the_training_were(format, line, encoded):
    assert encode_target(line, format) == encoded


@pytest.mark.parametrize("line", ["go\twent\tV;PST", "\tV;PST", "go\tV;PST\t"])
def test_a_source_of_other_columns_is_refused_by_its_file_and_line(line):
    rule = (
        "words: line 8 must have a lemma, or a lemma and its tags with a tab between them, in the "
        f"format 'inflection'. Received: {line!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(rule)}$"):
        encode_sources(["go\tV;PST", line], "inflection", "words", first=7)


@pytest.mark.parametrize(
    ("format", "text", "decoded"),
    [
        ("characters", "a b ▁ c", "ab c"),
        ("inflection", "w e n t", "went"),
        ("g2p", "t uː l", "t uː l"),
        ("scan", "I_RUN I_RUN", "I_RUN I_RUN"),
        ("text", "a ▁ b", "a ▁ b"),
    ],
)
def test_a_target_is_written_as_a_user_reads_it(format, text, decoded):
    assert decode_target(text, format) == decoded
