"""When a beam search stops: not before the best is certain, and no later than asked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import BeamSearch
from keras_transformer.decoding.beam_search import length_normaliser
from keras_transformer.decoding.hypotheses import Pool
from tests.backends import BACKEND, arrays
from tests.decoding.problems import assert_is_by_hand, peaked_problem, run
from tests.decoding.reference_search import Options
from tests.decoding.step_functions import EOS, SPECIAL, A, B, steps_of, table_of

# A sentence that stops too soon may go on as long as its batch does: some searches are of one.
SENTENCES, MAX_LENGTH = 12, 6
PENALTIES = (0.0, 0.6, 2.0, 5.0)
drawn = settings(max_examples={"tensorflow": 12, "torch": 10, "jax": 4}[BACKEND])
# The end has the probability 0.45 and the score -0.80. A B B and the end have 0.3, divided by 2.25
# under a penalty of 2: -0.54. B B and the end have 0.25, divided by 1.78: -0.78.
OVERTAKEN = {
    (): {EOS: 0.45, A: 0.3, B: 0.25},
    (A,): {B: 1.0},
    (A, B): {B: 1.0},
    (B,): {B: 1.0},
}


@pytest.mark.parametrize("own", [False, True])
def test_a_long_hypothesis_may_overtake_as_many_finished_as_are_asked_for(own):
    step, state = steps_of(table_of(OVERTAKEN, 5))
    search = BeamSearch(3, length_penalty=0.0 if own else 2.0, num_hypotheses=1)
    given = {"length_penalty": [2.0]} if own else {}
    result = arrays(search(step, state, batch_size=1, max_length=5, **given, **SPECIAL))
    assert result.ids[0, 0].tolist() == [A, B, B, EOS, 0]
    assert result.scores[0, 0] == pytest.approx(np.log(0.3) / 1.5**2, abs=1e-4)


def test_an_early_stop_waits_for_as_many_as_there_are_beams():
    step, state = steps_of(table_of(OVERTAKEN, 5))
    search = BeamSearch(3, length_penalty=2.0, num_hypotheses=1, early_stopping=True)
    result = arrays(search(step, state, batch_size=1, max_length=5, **SPECIAL))
    assert result.ids[0, 0, 0] != EOS


# `eos` has 0.4 and the score -0.92, B and `eos` 0.35 and, divided by 1.36, -0.77. A B has 0.25: at
# its two tokens -1.02. A B B and `eos` have -1.39 / 2.25: -0.62.
FOLLOWING = {
    (): {EOS: 0.4, B: 0.35, A: 0.25},
    (A,): {B: 1.0},
    (A, B): {B: 1.0},
}
# Goes on to the largest length, as a beam with a second hypothesis that ends at once.
LONG = {(): {A: 0.9, EOS: 0.1}, (A,): {B: 1.0}, (A, B): {B: 1.0}, (A, B, B): {B: 1.0}}


@pytest.mark.parametrize("in_a_batch", [False, True])
def test_a_stop_by_the_current_length_stays_though_a_live_hypothesis_becomes_better(in_a_batch):
    # At three tokens A B B has -1.39 / 1.78 = -0.78, which is above -0.92 again.
    table = table_of(FOLLOWING, 5)
    if in_a_batch:
        table = np.concatenate([table, table_of(LONG, 5)])
    step, state = steps_of(table)
    sizes = {"batch_size": len(table), "max_length": 5, **SPECIAL}
    options = {"length_penalty": 2.0, "num_hypotheses": 1}
    guess = BeamSearch(2, early_stopping="current_length", **options)
    found = arrays(guess(step, state, **sizes))
    assert found.ids[0, 0].tolist() == [B, EOS, 0, 0, 0]
    assert found.scores[0, 0] == pytest.approx(np.log(0.35) / (7 / 6) ** 2, abs=1e-4)
    exact = arrays(BeamSearch(2, **options)(step, state, **sizes))
    assert exact.ids[0, 0].tolist() == [A, B, B, EOS, 0]
    if in_a_batch:
        assert found.ids[1, 0].tolist() == [A, B, B, B, EOS]


def test_a_stop_by_the_current_length_goes_on_while_a_live_hypothesis_is_better_now():
    # As many are finished as there are beams, -0.80 and -1.02, and A B has -1.20 / 1.36 = -0.88.
    step, state = steps_of(table_of(OVERTAKEN | {(B,): {EOS: 1.0}}, 5))
    options = {"length_penalty": 2.0, "num_hypotheses": 1}
    sizes = {"batch_size": 1, "max_length": 5, **SPECIAL}
    guess = BeamSearch(2, early_stopping="current_length", **options)
    assert arrays(guess(step, state, **sizes)).ids[0, 0].tolist() == [A, B, B, EOS, 0]
    early = BeamSearch(2, early_stopping=True, **options)
    assert arrays(early(step, state, **sizes)).ids[0, 0].tolist() == [EOS, 0, 0, 0, 0]


@drawn
@given(
    seed=st.integers(0, 2**32 - 1),
    beam_size=st.integers(2, 5),
    num_hypotheses=st.integers(1, 2),
    length_penalty=st.sampled_from(PENALTIES),
    early_stopping=st.sampled_from([False, True, "current_length"]),
    own=st.booleans(),
    sentences=st.sampled_from([1, SENTENCES]),
)
def test_a_beam_stops_as_the_search_by_hand_says(
    seed, beam_size, num_hypotheses, length_penalty, early_stopping, own, sentences
):
    problem = peaked_problem(seed, sentences, MAX_LENGTH)
    options = dict(
        beam_size=beam_size, num_hypotheses=num_hypotheses, length_penalty=length_penalty
    )
    options["early_stopping"] = early_stopping
    own = np.resize(PENALTIES, sentences).tolist() if own else None
    result = run(BeamSearch(**options), problem, MAX_LENGTH, length_penalty=own)
    assert_is_by_hand(arrays(result), problem, Options(**options), own)


class StopsByThePresentLength(BeamSearch):
    """As if what a live hypothesis scores now were the best that it can reach."""

    def _active(self, now, longest):
        return super()._active(now, length_normaliser(now.index + 1, self.length_penalty))


class StopsByItsOwnPenalty(BeamSearch):
    """As if no sentence had a penalty of its own."""

    def _active(self, now, longest):
        length = ops.ones_like(longest) * MAX_LENGTH
        return super()._active(now, length_normaliser(length, self.length_penalty))


class StopsWhenAllThatIsAskedForIsFinished(BeamSearch):
    """As if `num_hypotheses`, not `beam_size`, had to be finished for an early stop."""

    def _first_beams(self, task, state):
        pool = Pool.empty(task, self.num_groups, self.num_hypotheses)
        return super()._first_beams(task, state)._replace(pool=pool)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "options", "own"),
    [
        (StopsByThePresentLength, {"length_penalty": 5.0}, None),
        (StopsByItsOwnPenalty, {"length_penalty": 0.0}, [5.0]),
        (
            StopsWhenAllThatIsAskedForIsFinished,
            {"length_penalty": 5.0, "early_stopping": True},
            None,
        ),
    ],
)
def test_these_sentences_tell_a_wrong_stop(wrong, options, own):
    differ = 0
    for seed in range(30):
        problem = peaked_problem(seed, 1, MAX_LENGTH)
        right, other = (
            arrays(
                run(search(3, num_hypotheses=1, **options), problem, MAX_LENGTH, length_penalty=own)
            )
            for search in (BeamSearch, wrong)
        )
        differ += (right.ids != other.ids).any()
    assert differ >= 3
