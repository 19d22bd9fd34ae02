"""SegmentSplitter: nothing lost, every part fits, breaks where sentences end."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.serving.segments import SegmentSplitter
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer

CHARACTERS = CharacterTokenizer("abcd ,.!?\n\"'”。…)")


@functools.cache
def splitter(tokenizer, longest, max_segments):
    return SegmentSplitter(tokenizer.surfaces(), longest, max_segments)


def parts(texts, longest, max_segments=16, tokenizer=CHARACTERS):
    """The segments of each text as strings; None for a text that is refused."""
    segments = splitter(tokenizer, longest, max_segments)(tokenizer.tokenize(texts))
    assert segments.tokens.bounding_shape()[1] <= longest
    found = [[] for _ in texts]
    read = tokenizer.detokenize(segments.tokens).numpy()
    for text, part, first in zip(segments.texts.numpy(), read, segments.first.numpy(), strict=True):
        assert first == (not found[text])
        found[text].append(part.decode())
    refused = segments.refused.numpy()
    assert all(found[text] == [""] for text in range(len(texts)) if refused[text])
    return [None if no else mine for mine, no in zip(found, refused, strict=True)]


def test_a_text_that_fits_is_one_segment_whatever_is_in_it():
    assert parts(["a. b. c.", "", "abcdabcd"], 8) == [["a. b. c."], [""], ["abcdabcd"]]
    assert parts([], 8) == []


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
        ("ab… ab cd, ab c", ["ab… ", "ab cd, ab ", "c"]),
    ],
)
def test_breaks_come_where_sentences_end_or_else_words(text, expected):
    assert parts([text], 10) == [expected]


def test_subwords_are_divided_at_their_spaces():
    texts = ["the dog ran . a man saw the dog . it was a dog"]
    tokenizer = SentencePieceTokenizer.train(texts * 9, 60, shrink_to_fit=True)
    sentences = [["the dog ran .", "a man saw the dog .", "it was a dog"]]
    count = max(len(row) for row in tokenizer.tokenize(sentences[0]).to_list())
    assert parts(texts, count, tokenizer=tokenizer) == sentences


def test_a_text_of_too_many_segments_is_refused_and_no_other():
    texts = ["abcdabcdabcdabcd", "abcd abcd abcd abcd", "abcd", "abcdabcdabcd"]
    assert parts(texts, 4, 3) == [None, None, ["abcd"], ["abcd", "abcd", "abcd"]]
    # 15 tokens would go in four segments of four, but not when breaks come at words.
    assert parts(["abc abc abc abc"], 4, 3) == [None]
    assert parts(["abcdabcd"], 4, 1) == [None]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.text("abcd ,.!?\n\"'”。…)", max_size=60), max_size=5),
    st.sampled_from([(1, 16), (3, 8), (7, 3), (20, 2)]),
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
