"""Scores of given outputs: token by token, sums, perplexity, and which tokens count."""

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch
from tests.backends import arrays
from tests.models.small_transformer import BOS, SOURCE_IDS, VOCAB, built, logits_of
from tests.numpy_reference import log_softmax

TARGET_IDS = np.array([[5, 7, 4, 3, 0], [9, 3, 0, 0, 0]], "int32")


def score(model, *inputs, **options):
    return arrays(model.score(*inputs, **options))


def test_each_token_has_the_log_probability_of_the_decoder():
    model = built(scale=0.2)
    result = score(model, SOURCE_IDS, TARGET_IDS)
    inputs = np.concatenate([[[BOS], [BOS]], TARGET_IDS[:, :-1]], axis=1).astype("int32")
    log_probs = log_softmax(logits_of(model, SOURCE_IDS, inputs))
    expected = np.take_along_axis(log_probs, TARGET_IDS[..., None], -1)[..., 0]
    expected = np.where(TARGET_IDS != 0, expected, 0.0)
    np.testing.assert_allclose(result.token_log_probs, expected, atol=1e-5)
    np.testing.assert_allclose(result.log_prob, expected.sum(axis=1), atol=1e-5)
    assert result.lengths.tolist() == [4, 2]
    perplexity = np.exp(-expected.sum(axis=1) / [4, 2])
    np.testing.assert_allclose(result.perplexity, perplexity, rtol=1e-5)


def test_only_the_tokens_of_the_label_mask_count():
    model = built(scale=0.2)
    whole = score(model, SOURCE_IDS, TARGET_IDS)
    mask = np.array([[0, 1, 0, 1, 1], [0, 0, 1, 1, 1]], "bool")  # padding never counts
    part = score(model, SOURCE_IDS, TARGET_IDS, label_mask=mask)
    np.testing.assert_array_equal(part.token_log_probs, np.where(mask, whole.token_log_probs, 0.0))
    assert part.lengths.tolist() == [2, 0]
    assert part.log_prob[1] == 0
    assert part.perplexity[1] == 1
    np.testing.assert_allclose(
        part.perplexity[0], np.exp(-whole.token_log_probs[0, [1, 3]].mean()), rtol=1e-5
    )


def test_padding_and_neighbours_change_nothing():
    model = built(scale=0.2)
    whole = score(model, SOURCE_IDS, TARGET_IDS)
    alone = score(model, SOURCE_IDS[[1]], TARGET_IDS[[1], :2])
    np.testing.assert_allclose(alone.log_prob[0], whole.log_prob[1], atol=1e-5)


@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(3)])
def test_what_a_search_found_scores_what_it_said(search):
    model = built(scale=0.2)
    found = arrays(model.generate(SOURCE_IDS, search, max_length=5))
    sources = np.repeat(SOURCE_IDS, found.ids.shape[1], axis=0)
    rescored = score(model, sources, found.ids.reshape(-1, 5))
    expected = found.token_log_probs.reshape(-1, 5)
    np.testing.assert_allclose(rescored.token_log_probs, expected, atol=1e-4)
    assert (rescored.lengths == found.lengths.ravel()).all()


def test_bad_input_is_refused():
    model = built()
    with pytest.raises(ValueError, match=r"`target_ids` must be integers.*with \d+.5"):
        model.score(SOURCE_IDS, TARGET_IDS + 0.5)
    with pytest.raises(ValueError, match="`label_mask` must be boolean"):
        model.score(SOURCE_IDS, TARGET_IDS, label_mask=np.ones(TARGET_IDS.shape, "float32"))
    assert max(TARGET_IDS.max(), SOURCE_IDS.max()) < VOCAB


@pytest.mark.parametrize(
    ("source_ids", "target_ids", "label_mask", "message"),
    [
        ([[5, 3], [VOCAB, 3]], [[4, 3], [4, 3]], None, "`source_ids` must be ids .*0 to 16. .*17"),
        ([[5, 3], [4, 3]], [[4, 3], [4, -1]], None, "`target_ids` must be ids .*with -1"),
        ([[5, 3], [4, 3]], [[4, 3], [4, -100]], np.ones((2, 2), bool), "`target_ids` .*with -100"),
        ([[5, 3], [4, 3]], [[4, 3]], None, "go together, .*\\(2,\\) and \\(1,\\)"),
        ([5, 3], [[4, 3]], None, "`source_ids` must be \\(batch, length\\). .*shape \\(2,\\)"),
        ([[5, 3]], [4, 3], None, "`target_ids` must be \\(batch, length\\)"),
        (
            [[5, 3], [4, 3]],
            [[4, 3], [4, 3]],
            np.ones((1, 2), bool),
            "`label_mask` and `target_ids`",
        ),
        (
            [[5, 3], [4, 3]],
            [[4, 3], [4, 3]],
            np.ones((2, 1), bool),
            "`label_mask` and `target_ids`",
        ),
        ([[5, 3], [4, 3]], [[4, 3], [4, 3]], np.ones(2, bool), "`label_mask` and `target_ids`"),
    ],
)
def test_what_cannot_be_scored_is_refused(source_ids, target_ids, label_mask, message):
    with pytest.raises(ValueError, match=message):
        built(num_layers=1).score(source_ids, target_ids, label_mask)


def test_lists_are_scored_as_arrays_are():
    model = built(num_layers=1)
    lists, found = [SOURCE_IDS.tolist(), TARGET_IDS.tolist()], score(model, SOURCE_IDS, TARGET_IDS)
    np.testing.assert_array_equal(score(model, *lists).log_prob, found.log_prob)
