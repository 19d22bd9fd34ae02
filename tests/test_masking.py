"""Masks: their values, the one polarity, what is refused, and zeroing without NaN."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import masking
from keras_transformer.integer_ids import dtype_name
from tests.backends import array, compiled, gradients

MASKED_LIKE_PYTORCH = np.array([[0.0, -1e9], [0.0, 0.0]], "float32")


def test_padding_mask_is_true_at_real_tokens():
    ids = np.array([[7, 5, 0], [0, 9, 1]])
    assert array(masking.padding_mask(ids)).tolist() == [[True, True, False], [False, True, True]]
    assert array(masking.padding_mask(ids, pad_id=9)).tolist() == [[True] * 3, [True, False, True]]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_padding_mask_takes_any_integers(dtype):
    mask = masking.padding_mask(np.array([[1, 0]], dtype))
    assert dtype_name(mask) == "bool"
    assert array(mask).tolist() == [[True, False]]


def test_floats_say_what_integers_say_in_every_mask():
    numbers = np.array([[1, 1, 2], [2, 3, 3]])
    floats = numbers.astype("float32")
    for function in (masking.segment_mask, masking.segment_positions):
        assert (array(function(floats)) == array(function(numbers))).all()
    lengths = np.array([1, 2])
    prefix = masking.prefix_mask(lengths.astype("float32"), 3)
    assert (array(prefix) == array(masking.prefix_mask(lengths, 3))).all()


def test_causal_mask_is_the_lower_triangle():
    expected = [[[True, False, False], [True, True, False], [True, True, True]]]
    assert array(masking.causal_mask(3)).tolist() == expected


def test_causal_mask_with_another_number_of_keys_counts_both_from_the_same_start():
    expected = [[True, False, False, False, False], [True, True, False, False, False]]
    assert array(masking.causal_mask(2, 5)).tolist() == [expected]
    assert array(masking.causal_mask(3, 2)).tolist() == [[[True, False], [True, True], [True] * 2]]


def test_local_mask_is_a_band():
    mask = array(masking.local_mask(5, window=2))
    assert mask.shape == (1, 5, 5)
    for query in range(5):
        for key in range(5):
            assert mask[0, query, key] == (abs(query - key) <= 2)


@pytest.mark.parametrize("window", [-1, 1.5, True, None])
def test_a_window_that_is_no_integer_of_at_least_0_is_refused(window):
    with pytest.raises(ValueError, match=f"`window` must be .* Received: window={window!r}"):
        masking.local_mask(3, window)


def test_segment_mask_joins_positions_of_one_sentence():
    queries, keys = np.array([[1, 2], [3, 3]]), np.array([[2, 1, 2], [3, 1, 1]])
    expected = [
        [[False, True, False], [True, False, True]],
        [[True, False, False], [True, False, False]],
    ]
    assert array(masking.segment_mask(queries, keys)).tolist() == expected
    assert array(masking.segment_mask(queries))[1].all()


def test_positions_count_from_the_first_true_of_each_row():
    mask = np.array([[True, True, False], [False, False, True], [False] * 3, [False, True, False]])
    assert array(masking.has_begun(mask)).tolist() == [
        [True, True, True],
        [False, False, True],
        [False, False, False],
        [False, True, True],
    ]
    assert array(masking.count_positions(mask)).tolist() == [
        [0, 1, 2],
        [0, 0, 0],
        [0, 0, 0],
        [0, 0, 1],
    ]


def test_masks_of_a_length_known_only_at_run_time():
    def masks(ids):
        length = ops.shape(ids)[1]
        return masking.causal_mask(length), masking.local_mask(length, 1)

    run = compiled(masks, [np.ones((2, 3), "int32")])
    for length in (3, 7):
        causal, local = run(np.ones((2, length), "int32"))
        assert (array(causal) == array(masking.causal_mask(length))).all()
        assert (array(local) == array(masking.local_mask(length, 1))).all()


def test_combine_masks_allows_what_every_mask_allows():
    causal = masking.causal_mask(3)
    padding = np.array([[True, True, False], [True, False, False]])[:, None, :]
    combined = array(masking.combine_masks(None, causal, padding, None))
    assert combined.shape == (2, 3, 3)
    assert (combined == (array(causal) & padding)).all()


def test_combining_nothing_gives_none():
    assert masking.combine_masks() is None
    assert masking.combine_masks(None, None) is None


def test_combining_masks_of_different_ranks_names_both_shapes():
    with pytest.raises(ValueError, match=r"mask\[:, None, :\].*\(1, 3, 3\) and \(2, 3\)"):
        masking.combine_masks(masking.causal_mask(3), np.ones((2, 3), bool))


@pytest.mark.parametrize(
    "mask", [MASKED_LIKE_PYTORCH, np.ones((2, 2), "float16")], ids=["additive", "zeros and ones"]
)
def test_a_mask_of_floats_is_refused_with_the_fix(mask):
    with pytest.raises(ValueError, match=f"mask == 0.*mask != 0.*Received: .*{mask.dtype}"):
        masking.combine_masks(mask)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_count_as_booleans(dtype):
    mask = np.array([[1, 0], [3, 1]], dtype)
    combined = masking.combine_masks(mask, np.array([[True, True], [True, False]]))
    assert dtype_name(combined) == "bool"
    assert array(combined).tolist() == [[True, False], [True, False]]
    values = ops.convert_to_tensor(np.full((2, 2, 1), 5.0, "float32"))
    zeroed = array(masking.zero_masked(values, ops.convert_to_tensor(mask)))
    assert zeroed[:, :, 0].tolist() == [[5, 0], [5, 5]]


def test_the_fix_in_the_message_gives_the_right_polarity():
    fixed = masking.combine_masks(MASKED_LIKE_PYTORCH == 0)
    assert array(fixed).tolist() == [[True, False], [True, True]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_zero_masked_selects_nan_away_in_values_and_gradients(bad):
    values = np.array([[[1.0, 2.0], [bad, 3.0]]], "float32")
    mask = np.array([[True, False]])
    zeroed = masking.zero_masked(ops.convert_to_tensor(values), ops.convert_to_tensor(mask))
    assert array(zeroed).tolist() == [[[1.0, 2.0], [0.0, 0.0]]]

    def square_sum(x):
        return ops.sum(ops.square(masking.zero_masked(x, ops.convert_to_tensor(mask))))

    (gradient,), _ = gradients(square_sum, [values])
    assert gradient.tolist() == [[[2.0, 4.0], [0.0, 0.0]]]


# --- Prefixes and packed rows.


def test_a_prefix_sees_itself_whole_and_what_follows_only_the_past():
    mask = array(masking.prefix_mask(np.array([0, 2, 3]), 3)).astype(int)
    assert mask[0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert mask[1].tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert mask[2].tolist() == [[1, 1, 1], [1, 1, 1], [1, 1, 1]]
    with pytest.raises(ValueError, match="`prefix_lengths` must be integers.*with 1.5"):
        masking.prefix_mask(np.array([1.5]), 3)


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ([[1, 1, 2, 2, 2]], [[0, 1, 0, 1, 2]]),
        ([[7]], [[0]]),
        ([[1, 2, 1, 1], [0, 0, 0, 0]], [[0, 0, 0, 1], [0, 1, 2, 3]]),
    ],
)
def test_positions_restart_with_each_segment(segments, expected):
    positions = masking.segment_positions(np.array(segments))
    assert dtype_name(positions) == "int32"
    assert array(positions).tolist() == expected


def test_a_local_mask_of_queries_and_keys_of_two_lengths():
    mask = array(masking.local_mask(2, 1, key_length=4)).astype(int)[0]
    assert mask.tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]
    assert array(masking.local_mask(3, 0)).astype(int)[0].tolist() == np.eye(3, dtype=int).tolist()
