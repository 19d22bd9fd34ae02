"""Alignments along each hypothesis, and steps that keep their state where it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import BeamSearch, GreedySearch, Sampling
from tests.backends import arrays
from tests.decoding.problems import MAX_LENGTH, SOURCE, fast, random_problem, run
from tests.decoding.step_functions import StepsThatStay, number_of, steps_of
from tests.selection import spread

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=2)
SEARCHES = [
    (GreedySearch, {"no_repeat_ngram_size": 2, "repetition_penalty": 1.5}),
    (BeamSearch, {"beam_size": 5}),
    (BeamSearch, {"beam_size": 4, "num_hypotheses": 2, "no_repeat_ngram_size": 2}),
    (BeamSearch, {"beam_size": 6, "num_groups": 3, "diversity_penalty": 1.0}),
    (BeamSearch, {"beam_size": 5, "coverage_penalty": 0.7, "early_stopping": True}),
    (Sampling, {"seed": 4, "num_samples": 7, "temperature": 2.0}),
]
MORE_SEARCHES = [(GreedySearch, {}), (BeamSearch, {"beam_size": 1}), (Sampling, {"seed": 3})]


def id_of(value):
    return getattr(value, "__name__", str(value))


all_searches = pytest.mark.parametrize(
    ("search_class", "options"),
    [*SEARCHES, *(pytest.param(*search, marks=pytest.mark.slow) for search in MORE_SEARCHES)],
    ids=id_of,
)


@all_searches
@few
@given(seed=seeds, eos_bonus=st.sampled_from([-3.0, 0.0]))
def test_alignments_are_what_the_step_attended_to_along_the_path(
    search_class, options, seed, eos_bonus
):
    problem = random_problem(seed, eos_bonus=eos_bonus)
    result = fast(search_class, return_alignments=True, **options)(problem)
    assert result.alignments.shape == (*result.ids.shape, SOURCE)
    for number, rank in np.ndindex(result.lengths.shape):
        length, place = result.lengths[number, rank], (number, rank)
        ids = result.ids[place][:length].tolist()
        read = [
            problem.attention[number, number_of(ids[:t], problem.table.shape[-1])]
            for t in range(length)
        ]
        np.testing.assert_allclose(
            result.alignments[place][:length], np.reshape(read, (length, SOURCE)), atol=1e-6
        )
        assert (result.alignments[place][length:] == 0).all()


@all_searches
def test_asking_for_alignments_changes_nothing_else(search_class, options):
    problem = random_problem(2)
    with_them = fast(search_class, return_alignments=True, **options)(problem)
    without = arrays(run(search_class(**options), problem))
    assert without.alignments is None
    for part, other in zip(with_them[:-1], without[:-1], strict=True):
        np.testing.assert_allclose(part, other, atol=1e-6)


def test_attention_that_nobody_asked_for_is_let_go():
    problem = random_problem(1)
    result = arrays(run(BeamSearch(3), problem, steps=steps_of(problem.table, problem.attention)))
    plain = arrays(run(BeamSearch(3), problem))
    assert result.alignments is None
    assert (result.ids == plain.ids).all()


@pytest.mark.parametrize(("search", "alignments"), spread(SEARCHES, [False, True]), ids=id_of)
@few
@given(seed=seeds, eos_bonus=st.sampled_from([-3.0, 0.0]))
def test_a_step_that_follows_paths_gives_the_same(search, alignments, seed, eos_bonus):
    search_class, options = search
    problem = random_problem(seed, eos_bonus=eos_bonus)
    search = search_class(return_alignments=alignments, **options)
    step = StepsThatStay(problem.table, problem.attention if search.needs_attention else None)
    state = step.first_state(len(problem.table), search.slots_per_sentence, MAX_LENGTH)
    stays = arrays(run(search, problem, steps=(step, state)))
    moves = arrays(run(search, problem))
    assert (stays.alignments is not None) == alignments
    for name, part, other in zip(stays._fields, stays, moves, strict=True):
        if part is not None:
            np.testing.assert_allclose(part, other, atol=1e-6, err_msg=name)


def test_paths_say_where_each_hypothesis_was():
    # The paths of position `index` are the slots themselves, the position of `bos` included.
    problem = random_problem(4, eos_bonus=-3.0)
    steps = StepsThatStay(problem.table)

    def step(tokens, index, state, paths):
        logits, state = steps(tokens, index, state, paths)
        here = ops.take(paths, ops.reshape(index, (1,)), axis=2)[:, :, 0]
        right = ops.all(here == ops.arange(3, dtype="int32"))
        return ops.where(right, logits, float("nan")), state

    step.follows_paths = True
    state = steps.first_state(len(problem.table), 3, MAX_LENGTH)
    result = arrays(run(BeamSearch(3), problem, steps=(step, state)))
    assert (result.ids == arrays(run(BeamSearch(3), problem)).ids).all()
    assert np.isfinite(result.token_log_probs).all()
