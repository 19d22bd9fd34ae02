"""Groups of beams that avoid each other's tokens, against the same search by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer import BeamSearch
from tests.backends import BACKEND, arrays
from tests.decoding.problems import (
    assert_is_by_hand,
    fast,
    random_problem,
    run,
)
from tests.decoding.reference_search import Options
from tests.decoding.step_functions import EOS, A, B, table_of

seeds = st.integers(0, 2**32 - 1)
a_few = settings(max_examples=5 if BACKEND == "tensorflow" else 4)
bonuses = st.sampled_from([-3.0, 0.0, 2.0, 4.0])
OPTIONS = [
    {"beam_size": 6, "num_groups": 3, "diversity_penalty": 1.5, "num_hypotheses": 4},
    {"beam_size": 4, "num_groups": 2, "diversity_penalty": 1.0, "early_stopping": True},
    {
        "beam_size": 6,
        "num_groups": 2,
        "diversity_penalty": 2.0,
        "length_penalty": 1.0,
        "coverage_penalty": 0.4,
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 1,
        "min_length": 2,
        "return_alignments": True,
    },
]
MORE_OPTIONS = [
    {"beam_size": 4, "num_groups": 2, "diversity_penalty": 0.8},
    {"beam_size": 3, "num_groups": 3, "diversity_penalty": 50.0},
    {"beam_size": 4, "num_groups": 2, "diversity_penalty": 3.0, "allowed_ids": (A,)},
]


@pytest.mark.parametrize(
    "rules",
    [*OPTIONS, *(pytest.param(rules, marks=pytest.mark.slow) for rules in MORE_OPTIONS)],
    ids=str,
)
@a_few
@given(seed=seeds, eos_bonus=bonuses, prefixes=st.booleans())
def test_groups_are_the_search_by_hand(rules, seed, eos_bonus, prefixes):
    rules = {"length_penalty": 0.0, **rules}
    options = Options(**rules)
    problem = random_problem(seed, eos_bonus=eos_bonus, prefixes=prefixes)
    result = fast(BeamSearch, **rules)(problem)
    assert_is_by_hand(result, problem, options)


@a_few
@given(seed=seeds, eos_bonus=bonuses)
def test_groups_without_a_penalty_all_find_the_same(seed, eos_bonus):
    # Two groups of 2 find what a beam of 2 finds, and it is returned once.
    problem = random_problem(seed, eos_bonus=eos_bonus)
    narrow = fast(BeamSearch, beam_size=2)(problem)
    groups = fast(BeamSearch, beam_size=4, num_groups=2)(problem)
    assert (groups.ids[:, :2] == narrow.ids).all()
    assert (groups.lengths[:, 2:] == 0).all()
    np.testing.assert_allclose(groups.scores[:, :2], narrow.scores, atol=1e-6)


def test_the_penalty_is_in_the_choice_and_not_in_the_score():
    # The first group takes A (0.6). The second would too; for A now counts
    # log(0.6) - 1 = -1.51 and so B, log(0.3) = -1.20, comes first.
    table = table_of({(): {A: 0.6, B: 0.3, EOS: 0.1}, (A,): {EOS: 1.0}, (B,): {EOS: 1.0}}, 4)
    problem = random_problem(0, sentences=1, prefixes=False, limits=False)._replace(table=table)
    search = BeamSearch(2, length_penalty=0.0, num_groups=2, diversity_penalty=1.0)
    result = arrays(run(search, problem))
    assert result.ids[0].tolist() == [[A, EOS, 0, 0], [B, EOS, 0, 0]]
    np.testing.assert_allclose(np.exp(result.scores[0]), [0.6, 0.3], atol=1e-4)


def test_a_group_that_has_ended_takes_no_tokens():
    # The first group ends at once with `eos`. The second takes A for the penalty, and then `eos`
    # (0.6) before B (0.4): the group that has ended took no `eos` at this step.
    table = table_of({(): {EOS: 0.6, A: 0.4}, (A,): {EOS: 0.6, B: 0.4}}, 4)
    problem = random_problem(0, sentences=1, prefixes=False, limits=False)._replace(table=table)
    search = BeamSearch(2, length_penalty=0.0, num_groups=2, diversity_penalty=1.0)
    result = arrays(run(search, problem))
    assert result.ids[0].tolist() == [[EOS, 0, 0, 0], [A, EOS, 0, 0]]


def test_diversity_finds_different_hypotheses():
    problem = random_problem(7, sentences=50, prefixes=False, limits=False)
    first_tokens = []
    for penalty in (0.0, 50.0):
        search = BeamSearch(3, num_groups=3, diversity_penalty=penalty)
        ids = arrays(run(search, problem)).ids
        first_tokens.append(np.mean([len(set(of.tolist()) - {0}) for of in ids[:, :, 0]]))
    # Three groups of one beam: alike without a penalty, all different with a large one.
    assert first_tokens == [1.0, 3.0]
