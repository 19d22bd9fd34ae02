"""Greedy search over tables whose best path is known."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import GreedySearch
from tests.backends import arrays, runs_loops_eagerly
from tests.decoding.step_functions import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    A,
    B,
    log_prob,
    log_probs_of,
    random_table,
    steps_of,
    table_of,
)


def search(table, max_length, step=None):
    own_step, state = steps_of(table)
    return GreedySearch()(
        step or own_step, state, batch_size=len(table), max_length=max_length, **SPECIAL
    )


def greedy_by_hand(table, sentence, max_length):
    following, ids = log_probs_of(table, sentence), ()
    while len(ids) < max_length and EOS not in ids:
        ids += (max((EOS, A, B), key=lambda token: following(ids)[token]),)
    return ids


@pytest.mark.parametrize("eos_bonus", [-20.0, 0.0, 2.0])
def test_appends_the_likeliest_token_until_the_end(eos_bonus):
    table = random_table(1, sentences=23, max_length=4, eos_bonus=eos_bonus)
    result = arrays(search(table, 4))
    assert result.ids.shape == (23, 1, 4)
    for sentence in range(23):
        expected = greedy_by_hand(table, sentence, 4)
        assert result.lengths[sentence, 0] == len(expected)
        padded = (*expected, *[PAD] * (4 - len(expected)))
        assert tuple(result.ids[sentence, 0]) == padded
        score = log_prob(table, sentence, expected)
        assert result.scores[sentence, 0] == pytest.approx(score, abs=1e-5)


def test_the_score_stops_growing_at_the_end_of_a_sentence():
    # The first sentence ends at once with probability 1/2, the second goes on.
    ends = table_of({(): {EOS: 0.5, A: 0.3, B: 0.2}}, 4)
    goes_on = table_of({(): {A: 0.5, B: 0.5}, (A,): {B: 0.75, A: 0.25}}, 4)
    result = arrays(search(np.concatenate([ends, goes_on]), 4))
    assert result.ids[:, 0].tolist() == [[EOS, PAD, PAD, PAD], [A, B, EOS, PAD]]
    np.testing.assert_allclose(result.scores[:, 0], np.log([0.5, 0.5 * 0.75]), atol=1e-5)
    assert result.lengths[:, 0].tolist() == [1, 3]


def test_padding_and_the_first_token_are_never_generated_but_count_in_the_score():
    # p(pad) = 0.4 and p(bos) = 0.3: the best of the rest is A with 0.2.
    table = table_of({(): {PAD: 0.4, BOS: 0.3, A: 0.2, EOS: 0.1}}, 2)
    result = arrays(search(table, 2))
    assert result.ids[0, 0].tolist() == [A, EOS]
    assert result.scores[0, 0] == pytest.approx(np.log(0.2), abs=1e-5)


@runs_loops_eagerly
def test_stops_when_every_sentence_has_ended():
    first = table_of({(): {A: 1.0}, (A,): {EOS: 1.0}}, 5)
    second = table_of({(): {EOS: 1.0}}, 5)
    table, positions = np.concatenate([first, second]), []
    step, _ = steps_of(table)

    def counted(tokens, index, state):
        positions.append(int(index))
        return step(tokens, index, state)

    result = arrays(search(table, 5, counted))
    assert positions == [0, 1]
    assert result.ids[:, 0].tolist() == [[A, EOS, 0, 0, 0], [EOS, 0, 0, 0, 0]]


def test_other_sentences_do_not_change_a_sentence():
    order = [3, 0, 4, 2, 1]
    table = random_table(2, sentences=5, max_length=3)
    whole, permuted = arrays(search(table, 3)), arrays(search(table[order], 3))
    assert (permuted.ids == whole.ids[order]).all()
    np.testing.assert_allclose(permuted.scores, whole.scores[order], atol=1e-6)
    alone = arrays(search(table[[3]], 3))
    assert (alone.ids[0] == whole.ids[3]).all()


def test_a_step_is_told_its_position_and_the_last_tokens():
    def step(tokens, index, state):
        # The next token is A after `bos`, then B at odd positions and A at even ones.
        wanted = ops.where(tokens == BOS, A, ops.where(index % 2 == 1, B, A))
        return 9.0 * ops.one_hot(wanted, 5), state

    result = GreedySearch()(step, (), batch_size=2, max_length=5, **SPECIAL)
    assert arrays(result).ids.tolist() == [[[A, B, A, B, A]]] * 2
