"""Beam search against every sequence there is, written down in plain Python."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import BeamSearch, GreedySearch
from tests.backends import BACKEND, arrays, compiled, runs_loops_eagerly
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
from tests.numpy_reference import all_hypotheses, length_normaliser

SENTENCES, MAX_LENGTH = 5, 4
# Two tokens that are not the end: 1 + 2 + 4 sequences end before position 4, 8 with eos at 4 and
# 16 are cut there.
NUM_SEQUENCES = 1 + 2 + 4 + 8 + 16
PENALTIES = (0.0, 0.6, 3.0)
seeds = st.integers(0, 2**32 - 1)
# Each example is a batch of sentences, each with a table of its own.
a_few = settings(max_examples=8 if BACKEND == "tensorflow" else 6)
bonuses = st.sampled_from([-3.0, 0.0, 2.0])


def run(search, table, max_length=MAX_LENGTH, step=None):
    own_step, state = steps_of(table)
    return search(
        step or own_step, state, batch_size=table.shape[0], max_length=max_length, **SPECIAL
    )


@functools.cache
def fast(search_class, **arguments):
    """Compiles the search once; every later table of the same shape is an argument."""
    search = search_class(**arguments)
    example = random_table(0, SENTENCES, MAX_LENGTH)
    shape = example.shape
    run_compiled = compiled(lambda table: run(search, ops.reshape(table, shape)), [example])
    return lambda table: arrays(run_compiled(table))


def hypotheses(result, sentence):
    """Gives (score, ids without padding) of each hypothesis found."""
    found = zip(
        result.scores[sentence], result.ids[sentence], result.lengths[sentence], strict=True
    )
    return [(score, tuple(ids[:length].tolist())) for score, ids, length in found if length]


@a_few
@given(seed=seeds, eos_bonus=bonuses)
def test_a_beam_of_1_is_greedy_search(seed, eos_bonus):
    table = random_table(seed, SENTENCES, MAX_LENGTH, eos_bonus=eos_bonus)
    greedy = fast(GreedySearch)(table)
    for length_penalty in (0.0, 0.6):
        beam = fast(BeamSearch, beam_size=1, length_penalty=length_penalty)(table)
        assert (beam.ids == greedy.ids).all()
        assert (beam.lengths == greedy.lengths).all()
        normaliser = length_normaliser(greedy.lengths, length_penalty)
        np.testing.assert_allclose(beam.scores, greedy.scores / normaliser, atol=1e-5)


@pytest.mark.parametrize("length_penalty", PENALTIES)
@a_few
@given(seed=seeds, eos_bonus=bonuses)
def test_a_beam_of_all_sequences_ranks_them_as_brute_force_does(length_penalty, seed, eos_bonus):
    table = random_table(seed, SENTENCES, MAX_LENGTH, eos_bonus=eos_bonus)
    search = fast(BeamSearch, beam_size=NUM_SEQUENCES, length_penalty=length_penalty)
    result = search(table)
    for sentence in range(SENTENCES):
        every = all_hypotheses(
            log_probs_of(table, sentence), (EOS, A, B), EOS, MAX_LENGTH, length_penalty
        )
        found = hypotheses(result, sentence)
        assert len(found) == len(every) == NUM_SEQUENCES
        assert {ids for _, ids in found} == {ids for _, ids in every}
        np.testing.assert_allclose(
            [score for score, _ in found], [score for score, _ in every], atol=1e-4
        )


@pytest.mark.parametrize("beam_size", [pytest.param(2, marks=pytest.mark.slow), 3])
@a_few
@given(seed=seeds, eos_bonus=bonuses, length_penalty=st.sampled_from([0.0, 0.6]))
def test_hypotheses_are_sorted_distinct_and_score_what_the_model_gives(
    beam_size, seed, eos_bonus, length_penalty
):
    table = random_table(seed, SENTENCES, MAX_LENGTH, eos_bonus=eos_bonus)
    result = fast(BeamSearch, beam_size=beam_size, length_penalty=length_penalty)(table)
    for sentence in range(SENTENCES):
        found = hypotheses(result, sentence)
        assert len({ids for _, ids in found}) == len(found) == beam_size
        assert [score for score, _ in found] == sorted((s for s, _ in found), reverse=True)
        for score, ids in found:
            assert not {PAD, BOS} & set(ids)
            assert EOS not in ids[:-1]
            assert ids[-1] == EOS or len(ids) == MAX_LENGTH
            total = log_prob(table, sentence, ids)
            assert score == pytest.approx(
                total / length_normaliser(len(ids), length_penalty), abs=1e-4
            )
        padding = result.ids[sentence][np.arange(MAX_LENGTH) >= result.lengths[sentence][:, None]]
        assert (padding == PAD).all()


def test_a_finished_hypothesis_is_frozen():
    # Ending at once has log(1/2) = -0.693. A search that goes on adding log-probabilities after
    # the end compares A with `-0.693 + log(0.594) = -1.214`. It returns A, which has
    # `log(0.3) + log(1.0) = -1.204`.
    after_the_end = {(EOS,): {EOS: 0.594, A: 0.406}, (EOS, EOS): {EOS: 0.594, A: 0.406}}
    table = table_of({(): {EOS: 0.5, A: 0.3, B: 0.2}, **after_the_end}, MAX_LENGTH)
    for length_penalty in (0.0, 0.6):
        search = BeamSearch(beam_size=2, length_penalty=length_penalty)
        result = arrays(run(search, table))
        assert result.ids[0, 0].tolist() == [EOS, PAD, PAD, PAD]
        # ((5 + 1) / 6) ** penalty = 1 for a single token.
        assert result.scores[0, 0] == pytest.approx(np.log(0.5), abs=1e-5)
        assert result.lengths[0, 0] == 1


def test_the_length_penalty_by_hand():
    # Ending at once: log(0.4) = -0.916. Three tokens: log(0.35) = -1.050, and with penalty 1
    # divided by (5 + 3) / 6 = 4/3: -0.787. So the longer one wins with the penalty alone.
    table = table_of({(): {EOS: 0.4, A: 0.35, B: 0.25}, (A,): {B: 1.0}, (B,): {B: 1.0}}, 4)
    plain = arrays(run(BeamSearch(3, length_penalty=0.0), table))
    assert plain.ids[0, 0].tolist() == [EOS, PAD, PAD, PAD]
    longer = arrays(run(BeamSearch(3, length_penalty=1.0), table))
    assert longer.ids[0, 0].tolist() == [A, B, EOS, PAD]
    assert longer.scores[0, 0] == pytest.approx(np.log(0.35) * 3 / 4, abs=1e-4)


def test_a_wider_beam_finds_what_greedy_search_misses():
    # Greedily A (0.6), then at best 0.5: 0.3. B (0.4) is followed by a certain end: 0.4.
    table = table_of({(): {A: 0.6, B: 0.4}, (A,): {A: 0.5, B: 0.5}, (B,): {EOS: 1.0}}, 4)
    greedy = arrays(run(GreedySearch(), table))
    beam = arrays(run(BeamSearch(2, length_penalty=0.0), table))
    assert np.exp(greedy.scores[0, 0]) == pytest.approx(0.3, abs=1e-4)
    assert beam.ids[0, 0].tolist() == [B, EOS, PAD, PAD]
    assert np.exp(beam.scores[0, 0]) == pytest.approx(0.4, abs=1e-4)


def test_padding_and_the_first_token_are_never_generated_but_count_in_the_score():
    table = table_of({(): {PAD: 0.4, BOS: 0.3, A: 0.2, EOS: 0.1}}, 2)
    result = arrays(run(BeamSearch(2, length_penalty=0.0), table, max_length=2))
    assert result.ids[0].tolist() == [[A, EOS], [EOS, PAD]]
    np.testing.assert_allclose(np.exp(result.scores[0]), [0.2, 0.1], atol=1e-5)


def test_missing_hypotheses_are_padding_with_an_impossible_score():
    # At length 1 there are 3 sequences; the beam asks for 5.
    table = table_of({(): {EOS: 0.5, A: 0.3, B: 0.2}}, 1)
    result = arrays(run(BeamSearch(5), table, max_length=1))
    assert result.ids[0, :, 0].tolist() == [EOS, A, B, PAD, PAD]
    assert result.lengths[0].tolist() == [1, 1, 1, 0, 0]
    assert result.scores[0, 3:].tolist() == [-1e9, -1e9]


def steps_taken(table, search, max_length):
    step, _ = steps_of(table)
    positions = []

    def counted(tokens, index, state):
        positions.append(int(index))
        return step(tokens, index, state)

    return arrays(run(search, table, max_length, counted)), positions


@runs_loops_eagerly
def test_stops_when_no_live_hypothesis_can_win_and_not_before():
    # After two steps the beam of 2 holds "eos" (0.6) and "A eos" (0.396). What is alive has at
    # most 0.4 * 0.01 and only loses from there.
    following = {(): {EOS: 0.6, A: 0.4}, (A,): {EOS: 0.99, A: 0.01}}
    table = table_of(following, 5)
    result, positions = steps_taken(table, BeamSearch(2, length_penalty=0.0), 5)
    assert positions == [0, 1]
    assert result.ids[0].tolist() == [[EOS, 0, 0, 0, 0], [A, EOS, 0, 0, 0]]
    # With a penalty so large that length forgives everything, the search must go on.
    _, positions = steps_taken(table, BeamSearch(2, length_penalty=9.0), 5)
    assert len(positions) > 2


@runs_loops_eagerly
def test_one_unfinished_sentence_keeps_the_batch_going():
    done = table_of({(): {EOS: 1.0}}, 4)
    late = table_of({(): {A: 1.0}, (A,): {A: 1.0}, (A, A): {A: 1.0}}, 4)
    search = BeamSearch(1, length_penalty=0.0)
    assert steps_taken(done, search, 4)[1] == [0]
    together, positions = steps_taken(np.concatenate([done, late]), search, 4)
    assert positions == [0, 1, 2, 3]
    assert together.ids[:, 0].tolist() == [[EOS, 0, 0, 0], [A, A, A, EOS]]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_other_sentences_do_not_change_a_sentence(beam_size):
    table = random_table(7, SENTENCES, MAX_LENGTH)
    search = BeamSearch(beam_size)
    whole = arrays(run(search, table))
    order = [3, 0, 4, 2, 1]
    permuted = arrays(run(search, table[order]))
    assert (permuted.ids == whole.ids[order]).all()
    assert (permuted.lengths == whole.lengths[order]).all()
    np.testing.assert_allclose(permuted.scores, whole.scores[order], atol=1e-6)
    for sentence in (0, 3):
        alone = arrays(run(search, table[[sentence]]))
        assert (alone.ids[0] == whole.ids[sentence]).all()
        np.testing.assert_allclose(alone.scores[0], whole.scores[sentence], atol=1e-6)


def test_state_may_be_any_nest_and_follows_its_hypothesis():
    # The state writes down the tokens read so far; at the end the ids must be the same.
    table = random_table(8, 2, MAX_LENGTH)
    step, state = steps_of(table)
    history = ops.zeros((2, MAX_LENGTH), "int32")
    seen = []

    def writing(tokens, index, state):
        logits, inner = step(tokens, index, state[0])
        written = ops.slice_update(state[1]["history"], (0, index), tokens[:, None])
        # `bos` is followed by what the prefix number says, digit by digit.
        number = written[:, 0]
        for position in range(1, MAX_LENGTH):
            digit = written[:, position]
            number = ops.where(position <= index, number * 5 + digit, number)
        seen.append(None)
        agree = ops.equal(number, inner["prefix"])
        return ops.where(agree[:, None], logits, float("nan")), (inner, {"history": written})

    search = BeamSearch(3)
    result = arrays(
        search(
            writing,
            (state, {"history": history}),
            batch_size=2,
            max_length=MAX_LENGTH,
            **SPECIAL,
        )
    )
    assert (result.ids == arrays(run(search, table)).ids).all()
    assert np.isfinite(result.scores).all()
    assert seen


def test_brute_force_itself_counts_every_sequence_once():
    every = all_hypotheses(lambda prefix: np.zeros(5), (EOS, A, B), EOS, MAX_LENGTH, 0.0)
    assert len(every) == len(set(every)) == NUM_SEQUENCES
    cut = [ids for _, ids in every if EOS not in ids]
    assert sorted(cut) == sorted(itertools.product((A, B), repeat=MAX_LENGTH))


def test_scores_are_divided_by_a_power_of_the_length():
    table = random_table(3, SENTENCES, MAX_LENGTH, eos_bonus=1.0)
    found = fast(BeamSearch, beam_size=3, length_penalty=0.8, length_formula="power")(table)
    sums = found.token_log_probs.sum(axis=-1)
    np.testing.assert_allclose(found.scores, sums / found.lengths**0.8, atol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert BeamSearch(length_formula="power").get_config()["length_formula"] == "power"
    with pytest.raises(ValueError, match="`length_formula` must be one of 'wu', 'power'"):
        BeamSearch(length_formula="gnmt")
