"""SegmentSplitter: nothing lost, every part fits, breaks where sentences end."""

import functools

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.serving.segments import Segments, SegmentSplitter
from keras_transformer.serving.sentences import find_sentences
from keras_transformer.text import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    WordPieceTokenizer,
)
from keras_transformer.text.strings import string_tensor

CHARACTERS = CharacterTokenizer("abcd ,.!?\n\"'”。…)")


@functools.cache
def splitter(tokenizer, longest, max_segments):
    return SegmentSplitter(tokenizer, longest, max_segments)


def parts(texts, longest, max_segments=16, tokenizer=CHARACTERS, by_sentence=False):
    """The segments of each text as strings; None for a text that is refused."""
    strings = string_tensor(texts)
    segments = splitter(tokenizer, longest, max_segments).split(
        strings, tf.fill([len(texts)], by_sentence)
    )
    assert len(texts) == 0 or segments.tokens.bounding_shape()[1] <= longest
    found = [[] for _ in texts]
    read = tokenizer.detokenize(segments.tokens).numpy()
    for text, part, first in zip(segments.texts.numpy(), read, segments.first.numpy(), strict=True):
        assert first == (not found[text])
        found[text].append(part.decode())
    refused = segments.refused.numpy()
    assert all(found[text] == [""] for text in range(len(texts)) if refused[text])
    return [None if no else mine for mine, no in zip(found, refused, strict=True)]


@pytest.mark.usefixtures("eagerly")
def test_a_text_that_fits_is_one_segment_whatever_is_in_it():
    assert parts(["a. b. c.", "", "abcdabcd"], 8) == [["a. b. c."], [""], ["abcdabcd"]]
    assert parts([], 8) == []


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab cd. ab cd. ab", ["ab cd. ", "ab cd. ab"]),  # the last sentence end that fits
        ("ab! ab cd ab cd ab", ["ab! ", "ab cd ab ", "cd ab"]),  # then the last word
        ("abcdabcdabcda", ["abcdabcdab", "cda"]),  # and then anywhere
        ('a "ab." ab cd ab', ['a "ab." ', "ab cd ab"]),  # behind closing quotes
        ("ab.cd ab.cd ab", ["ab.cd ", "ab.cd ab"]),  # a point within a word ends nothing
        ("abc。abc。abcd", ["abc。abc。", "abcd"]),
        ("ab cd\nab cd abc", ["ab cd\n", "ab cd abc"]),
        ("ab… ab cd, ab c", ["ab… ab ", "cd, ab c"]),  # which goes on in small letters
    ],
)
def test_breaks_come_where_sentences_end_or_else_words(text, expected):
    assert parts([text], 10) == [expected]


@pytest.mark.usefixtures("eagerly")
def test_subwords_are_divided_at_their_spaces():
    texts = ["the dog ran . a man saw the dog . it was a dog"]
    tokenizer = SentencePieceTokenizer.train(texts * 9, 60, shrink_to_fit=True)
    sentences = [["the dog ran .", "a man saw the dog .", "it was a dog"]]
    count = max(len(row) for row in tokenizer.tokenize(sentences[0]).to_list())
    assert parts(texts, count, tokenizer=tokenizer) == sentences


@pytest.mark.usefixtures("eagerly")
def test_a_text_of_too_many_segments_is_refused_and_no_other():
    texts = ["abcdabcdabcdabcd", "abcd abcd abcd abcd", "abcd", "abcdabcdabcd"]
    assert parts(texts, 4, 3) == [None, None, ["abcd"], ["abcd", "abcd", "abcd"]]
    # 15 tokens would go in four segments of four, but not when breaks come at words.
    assert parts(["abc abc abc abc"], 4, 3) == [None]
    assert parts(["abcdabcd"], 4, 1) == [None]


@pytest.mark.usefixtures("eagerly")
def test_sentences_are_segments_whatever_their_length_and_spaces_between_them_go():
    texts = ["ab. cd!  abc ", "", "abc", " ab.", "a。b。\nab cd"]
    expected = [["ab.", "cd!", "abc"], [""], ["abc"], [" ab."], ["a。", "b。", "ab cd"]]
    assert parts(texts, 8, by_sentence=True) == expected
    assert parts([], 8, by_sentence=True) == []


@pytest.mark.usefixtures("eagerly")
def test_a_sentence_that_does_not_fit_is_divided_like_any_text():
    assert parts(["ab. abcd ab cd ab! a"], 10, by_sentence=True) == [
        ["ab.", "abcd ab ", "cd ab!", "a"]
    ]


@pytest.mark.usefixtures("eagerly")
def test_the_number_of_sentences_has_no_limit_but_the_tokens_of_a_text():
    sentences = ["ab."] * 10
    assert parts([" ".join(sentences)], 15, 2, by_sentence=True) == [sentences]
    assert parts([" ".join(sentences), "ab. ab."], 7, 4, by_sentence=True) == [None, ["ab."] * 2]
    assert parts(["abcdabcda. a"], 8, 1, by_sentence=True) == [None]


@pytest.mark.usefixtures("eagerly")
def test_each_text_of_a_batch_may_be_divided_or_not():
    segments = splitter(CHARACTERS, 9, 4).split(
        string_tensor(["ab. cd.", "ab. cd.", "abcd. abcd. a"]), tf.constant([True, False, False])
    )
    assert segments.texts.numpy().tolist() == [0, 0, 1, 2, 2]
    read = CHARACTERS.detokenize(segments.tokens).numpy().tolist()
    assert read == [b"ab.", b"cd.", b"ab. cd.", b"abcd. ", b"abcd. a"]


@pytest.mark.usefixtures("eagerly")
def test_a_sentence_without_tokens_is_no_segment():
    tokenizer = SymbolTokenizer(["a", "b"])
    text = "a\n\u3000\x1c\nb"  # white space to the tokenizer alone, or to the sentences alone
    assert parts([text], 8, tokenizer=tokenizer, by_sentence=True)[0][-1] == "b"


ABBREVIATED = "He saw Dr. Smith . He has 3.14 of it ."


@pytest.fixture(scope="module")
def tokenizers():
    texts = [ABBREVIATED] * 9
    return [
        CharacterTokenizer.train(texts),
        WordPieceTokenizer.train(texts, 80),
        SentencePieceTokenizer.train(texts, 40, shrink_to_fit=True),
        SentencePieceTokenizer.train(texts, 300, lossless=True),
    ]


@pytest.mark.usefixtures("eagerly")
def test_long_texts_keep_abbreviations_and_numbers_together(tokenizers):
    for tokenizer in tokenizers:
        count = len(tokenizer.tokenize([ABBREVIATED[:18]])[0])
        found = parts([ABBREVIATED], count + 1, tokenizer=tokenizer)[0]
        assert found[0].replace(" ", "").lower() == "hesawdr.smith."


@pytest.mark.usefixtures("eagerly")
def test_where_tokens_were_read_is_told_for_each_segment():
    texts = ["ab. cd. abcdabcd dcba", "abc", "", "ä. ab"]
    for by_sentence in (True, False):
        located = splitter(CHARACTERS, 9, 4).locate(string_tensor(texts), tf.fill([4], by_sentence))
        segments = located.segments
        tokens = segments.tokens.to_list()
        assert list(map(len, located.starts.to_list())) == list(map(len, tokens))
        columns = zip(
            tokens,
            segments.texts.numpy(),
            located.strings.numpy(),
            located.begins.numpy(),
            located.starts.to_list(),
            located.ends.to_list(),
            strict=True,
        )
        for ids, text, string, begin, starts, ends in columns:
            whole = texts[text].encode()
            assert whole[begin : begin + len(string)] == string
            for token, start, end in zip(ids, starts, ends, strict=True):
                written = CHARACTERS.detokenize([[token]]).numpy()[0]
                assert string[start:end] == written or written == "\ufffd".encode()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text("abcd ,.!?\n\"'”。…)", max_size=40), max_size=4))
def test_each_sentence_is_read_as_it_is_alone(texts):
    together = parts(texts, 8, by_sentence=True)
    for text, found in zip(texts, together, strict=True):
        sentences = [one.decode() for one in find_sentences([text.encode()]).strings.numpy()]
        expected = sum(parts(sentences, 8), []) if len(sentences) > 1 else parts([text], 8)[0]
        assert found == (expected if len(expected) <= 16 else None)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text("abcd ,.!?\n\"'”。…)", max_size=60), max_size=5),
    st.sampled_from([(1, 16), (7, 3)]),
)
def test_nothing_is_lost_and_no_text_changes_another(texts, sizes):
    longest, max_segments = sizes
    together = parts(texts, longest, max_segments)
    for text, segments in zip(texts, together, strict=True):
        assert segments is None or "".join(segments) == text
        assert parts([text], longest, max_segments) == [segments]
        if len(text) <= longest:
            assert segments == [text]
        if segments is None:
            assert len(text) > max_segments  # at least one token goes into each


@pytest.mark.parametrize("separator", [" ", "", "·—·"])
def test_parts_without_a_translation_are_joined_by_nothing(separator):
    parts = [["", "x", "", "éy", ""], ["", ""], ["a"], ["b", "", "c"]]
    segments = Segments(
        None,
        tf.repeat(tf.range(4), [5, 2, 1, 3]),
        tf.constant([number == 0 for row in parts for number in range(len(row))]),
        tf.zeros([4], tf.bool),
    )
    flat = tf.constant([part for row in parts for part in row])
    joined = [text.decode() for text in segments.join(flat, separator).numpy()]
    assert joined == [separator.join(part for part in row if part) for row in parts]
    starts = iter(segments.first_bytes(flat, separator).numpy())
    for text, row in zip(joined, parts, strict=True):
        for part, start in zip(row, starts, strict=False):
            assert text.encode()[start:].startswith(part.encode())
    both = segments.join(tf.stack([flat, flat], axis=1), separator).numpy()
    assert [row[0].decode() for row in both] == [row[1].decode() for row in both] == joined
