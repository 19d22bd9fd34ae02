"""Ids are rows where they can be, and else special tokens come first."""

import numpy as np

from keras_transformer.interop.token_rows import NEVER, number_tokens

TOKENS = ["<unk>", "<s>", "</s>", "a", "b"]
ROWS = {"pad_id": None, "unk_id": 0, "bos_id": 1, "eos_id": 2}
TABLE = np.arange(1, 11, dtype="float32").reshape(5, 2)


def test_ids_are_rows_and_padding_is_new():
    source, target = number_tokens([TOKENS, TOKENS], [ROWS, ROWS])
    assert source == target
    assert source.rows == [0, 1, 2, 3, 4, -1]
    assert source.special == {"pad_id": 5, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    assert source.take(TABLE).tolist() == [*TABLE.tolist(), [0, 0]]
    assert source.bias(TABLE[:, 0]).tolist() == [1, 3, 5, 7, 9, NEVER]
    assert source.bias(None).tolist() == [0, 0, 0, 0, 0, NEVER]


def test_padding_and_a_start_that_are_missing_are_one_id():
    (side, _) = number_tokens([TOKENS] * 2, [{**ROWS, "bos_id": None}] * 2)
    assert (side.special["pad_id"], side.special["bos_id"], side.never) == (5, 5, [5])


def test_where_nothing_is_missing_a_table_is_not_copied():
    (side, _) = number_tokens([TOKENS] * 2, [{**ROWS, "pad_id": 4}] * 2)
    assert side.is_identity
    assert side.take(TABLE) is TABLE


def test_sides_that_differ_get_their_special_tokens_first():
    target = ["<pad>", "c", "</s>", "<s>", "<unk>"]
    rows = {"pad_id": 0, "unk_id": 4, "bos_id": 3, "eos_id": 2}
    sides = number_tokens([TOKENS, target], [ROWS, rows])
    assert sides[0].rows == [-1, 0, 1, 2, 3, 4]
    assert sides[1].rows == [0, 4, 3, 2, 1]
    assert sides[0].tokens == [None, "<unk>", "<s>", "</s>", "a", "b"]
    assert (sides[0].never, sides[1].never) == ([0], [])


def test_a_start_that_is_the_end_is_a_copy_of_it_and_marks_come_last():
    rows = {**ROWS, "bos_id": 2}
    texts = [[False, False, False, True, True]] * 2
    (side, _) = number_tokens([TOKENS] * 2, [rows] * 2, texts)
    assert side.rows == [-1, 0, 2, 2, 3, 4, 1]
    assert side.tokens == [None, "<unk>", None, "</s>", "a", "b", "<s>"]
    assert side.never == [0, 2]


def test_of_equal_tokens_the_first_has_the_name():
    tokens = ["<unk>", "<s>", "</s>", "a", "a"]
    (side, _) = number_tokens([tokens] * 2, [ROWS] * 2)
    assert side.tokens == ["<unk>", "<s>", "</s>", "a", None, None]
