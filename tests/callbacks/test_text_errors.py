import numpy as np
import pytest

from keras_transformer.callbacks.text_errors import count_errors, edit_distance, percentage


@pytest.mark.parametrize(
    ("ours", "theirs", "edits"),
    [
        ("", "", 0),
        ("abc", "", 3),
        ("", "ab", 2),
        ("abc", "abc", 0),
        ("xbc", "abcd", 2),
        ("ab", "ba", 2),
    ],
)
def test_edits_by_hand(ours, theirs, edits):
    assert edit_distance(ours, theirs) == edits
    assert edit_distance(ours.split(), theirs.split()) == (ours != theirs)


def test_each_text_has_its_count_and_out_of_how_many():
    texts, references = ["a b", "c"], ["a x", "c"]
    assert count_errors("exact_match", texts, references).tolist() == [[0, 1], [1, 1]]
    assert count_errors("word_error_rate", texts, references).tolist() == [[1, 2], [0, 1]]
    assert count_errors("character_error_rate", texts, references).tolist() == [[1, 3], [0, 1]]


def test_of_no_words_each_edit_is_a_whole():
    assert percentage(np.array([2, 0])) == 200.0
    assert percentage(np.array([1, 4])) == 25.0
