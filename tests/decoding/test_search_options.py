"""Every option of the searches against its definition, over every sequence there is."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import BeamSearch, GreedySearch, Sampling
from tests.backends import BACKEND, arrays, runs_loops_eagerly
from tests.decoding.problems import (
    NUM_SEQUENCES,
    SENTENCES,
    assert_is_by_hand,
    assert_ranks,
    fast,
    random_problem,
    run,
    sentence_of,
)
from tests.decoding.reference_search import Options, every_hypothesis
from tests.decoding.step_functions import EOS, PAD, SPECIAL, A, B, steps_of, table_of

C = 5
seeds = st.integers(0, 2**32 - 1)
bonuses = st.sampled_from([-3.0, 0.0, 2.0])
# Each example is a batch of sentences, each with a table of its own.
a_few = settings(max_examples=5 if BACKEND == "tensorflow" else 3)
# A loop outside of a compiled function is compiled at every call on JAX.
drawn = settings(max_examples=4 if BACKEND == "jax" else 10)
RULES = [
    {"min_length_ratio": 0.5, "max_length_ratio": 0.7},
    {"repetition_penalty": 0.6, "length_penalty": 1.3},
    {"no_repeat_ngram_size": 2, "min_length": 4},
    {"allowed_ids": (B, C), "suppressed_ids": (C,)},
    {
        "min_length_ratio": 0.4,
        "max_length_ratio": 0.6,
        "repetition_penalty": 1.4,
        "no_repeat_ngram_size": 2,
        "suppressed_ids": (A,),
        "coverage_penalty": 0.3,
        "length_penalty": 1.0,
        "return_alignments": True,
    },
    # No token is left after B and C.
    {"no_repeat_ngram_size": 1, "suppressed_ids": (EOS, A), "return_alignments": True},
]
MORE_RULES = [
    {},
    {"min_length": 3},
    {"max_length_ratio": 0.3},
    {"repetition_penalty": 1.7},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 3},
    {"suppressed_ids": (A, C)},
    {"suppressed_ids": (EOS,)},
    {"allowed_ids": ()},
    {"coverage_penalty": 0.9, "length_penalty": 0.6},
]
COMBINATIONS = st.fixed_dictionaries(
    {"length_penalty": st.sampled_from([0.0, 0.6, 2.0])},
    optional={
        "min_length": st.integers(1, 5),
        "min_length_ratio": st.sampled_from([0.3, 0.5, 1.1]),
        "max_length_ratio": st.sampled_from([0.2, 0.6, 1.0]),
        "repetition_penalty": st.sampled_from([0.5, 1.2, 3.0]),
        "no_repeat_ngram_size": st.integers(1, 3),
        "suppressed_ids": st.sampled_from([(A,), (EOS,), (B, C)]),
        "allowed_ids": st.sampled_from([(), (A,), (A, B), (EOS, C)]),
        "coverage_penalty": st.sampled_from([0.2, 1.5]),
        "return_alignments": st.just(True),
    },
)
GROUPS = st.sampled_from(
    [{}, {"num_groups": 2}, {"num_groups": 2, "diversity_penalty": 0.8}, {"num_groups": 3}]
)


def by_default(some):
    """A test of all rules; the default run tries these."""
    return pytest.mark.parametrize(
        "rules",
        [
            pytest.param(rules, marks=() if rules in some else pytest.mark.slow)
            for rules in RULES + MORE_RULES
        ],
        ids=str,
    )


def assert_finds_all(result, problem, rules):
    options = Options(**rules)
    for number in range(len(problem.table)):
        expected = every_hypothesis(sentence_of(problem, number), options)
        assert_ranks(result, number, options, expected)


@by_default(RULES)
@a_few
@given(seed=seeds, eos_bonus=bonuses, prefixes=st.booleans(), limits=st.booleans())
def test_a_beam_of_all_sequences_ranks_them_as_brute_force_does(
    rules, seed, eos_bonus, prefixes, limits
):
    problem = random_problem(seed, eos_bonus=eos_bonus, prefixes=prefixes, limits=limits)
    rules = {"length_penalty": 0.0, **rules}
    result = fast(BeamSearch, beam_size=NUM_SEQUENCES, **rules)(problem)
    assert_finds_all(result, problem, rules)


@drawn
@given(seed=seeds, eos_bonus=bonuses, rules=COMBINATIONS, prefixes=st.booleans())
def test_any_combination_of_rules_ranks_all_sequences(seed, eos_bonus, rules, prefixes):
    problem = random_problem(seed, eos_bonus=eos_bonus, prefixes=prefixes)
    result = arrays(run(BeamSearch(NUM_SEQUENCES, **rules), problem))
    assert_finds_all(result, problem, rules)


@drawn
@given(
    seed=seeds,
    eos_bonus=bonuses,
    rules=COMBINATIONS,
    beam_size=st.integers(1, 6),
    fewer=st.integers(0, 3),
    groups=GROUPS,
    early_stopping=st.sampled_from([False, True, "current_length"]),
    prefixes=st.booleans(),
)
def test_any_narrow_beam_is_the_search_by_hand(
    seed, eos_bonus, rules, beam_size, fewer, groups, early_stopping, prefixes
):
    beam_size *= groups.get("num_groups", 1)
    rules = {**rules, **groups, "beam_size": beam_size, "early_stopping": early_stopping}
    rules["num_hypotheses"] = max(1, beam_size - fewer)
    problem = random_problem(seed, sentences=30, eos_bonus=eos_bonus, prefixes=prefixes)
    result = arrays(run(BeamSearch(**rules), problem))
    assert_is_by_hand(result, problem, Options(**rules))


@by_default(RULES[-2:])
@a_few
@given(seed=seeds, eos_bonus=bonuses)
def test_greedy_search_is_a_beam_of_1_under_every_rule(rules, seed, eos_bonus):
    penalties = {"length_penalty", "coverage_penalty"}
    rules = {name: value for name, value in rules.items() if name not in penalties}
    problem = random_problem(seed, eos_bonus=eos_bonus)
    greedy = fast(GreedySearch, **rules)(problem)
    beam = fast(BeamSearch, beam_size=1, length_penalty=0.0, **rules)(problem)
    for name, of_greedy, of_beam in zip(greedy._fields, greedy, beam, strict=True):
        if of_greedy is not None:
            np.testing.assert_allclose(of_greedy, of_beam, atol=1e-5, err_msg=name)
    assert_is_by_hand(greedy, problem, Options(**rules))


@pytest.mark.parametrize("search_class", [GreedySearch, BeamSearch])
def test_where_the_rules_leave_no_token_there_is_no_hypothesis(search_class):
    rules = {"no_repeat_ngram_size": 1, "suppressed_ids": (EOS, A), "return_alignments": True}
    # B and C, and then nothing; a limit of 2 ends in time.
    problem = random_problem(1, prefixes=False, limits=False)
    problem.length_limits[:2] = 2
    result = arrays(run(search_class(**rules), problem))
    assert (result.lengths[:2, 0] == 2).all()
    assert (result.lengths[2:] == 0).all()
    assert (result.scores[2:] == -1e9).all()
    assert (result.ids[2:] == 0).all()
    assert (result.token_log_probs[2:] == 0).all()
    assert (result.alignments[2:] == 0).all()


@pytest.mark.parametrize("search_class", [GreedySearch, BeamSearch])
@pytest.mark.parametrize(
    ("renormalize", "expected"),
    [
        (False, [math.log(0.4), math.log(0.3), 0]),
        (True, [0, math.log(0.3 / 0.5), 0]),  # B and the end share the 0.5 of A
        ("prefix", [0, math.log(0.3), 0]),
    ],
)
def test_a_token_of_a_prefix_costs_nothing_where_asked(search_class, renormalize, expected):
    # B is forced, and A may not come.
    following = {(): {A: 0.6, B: 0.4}, (B,): {A: 0.5, B: 0.3, EOS: 0.2}, (B, B): {EOS: 1.0}}
    step, state = steps_of(table_of(following, max_length=3))
    search = search_class(suppressed_ids=(A,), renormalize=renormalize)
    prefix = np.array([[B]])
    result = arrays(search(step, state, batch_size=1, max_length=3, prefix_ids=prefix, **SPECIAL))
    assert result.ids[0, 0].tolist() == [B, B, EOS]
    np.testing.assert_allclose(result.token_log_probs[0, 0], expected, atol=1e-5)


@settings(max_examples=2)
@given(seed=seeds, num_hypotheses=st.sampled_from([1, 3]), groups=st.sampled_from([1, 2]))
def test_fewer_hypotheses_are_the_first_of_all(seed, num_hypotheses, groups):
    problem = random_problem(seed)
    options = {"beam_size": 4, "num_groups": groups, "diversity_penalty": 0.5 * (groups - 1)}
    every = arrays(run(BeamSearch(**options), problem))
    fewer = arrays(run(BeamSearch(num_hypotheses=num_hypotheses, **options), problem))
    assert fewer.ids.shape[1] == num_hypotheses
    assert (fewer.ids == every.ids[:, :num_hypotheses]).all()
    assert (fewer.lengths == every.lengths[:, :num_hypotheses]).all()
    np.testing.assert_allclose(fewer.scores, every.scores[:, :num_hypotheses], atol=1e-6)


@a_few
@given(seed=seeds, eos_bonus=bonuses, length_penalty=st.sampled_from([0.0, 2.0]))
def test_stopping_at_enough_hypotheses_is_the_search_by_hand(seed, eos_bonus, length_penalty):
    rules = {"beam_size": 3, "length_penalty": length_penalty, "early_stopping": True}
    problem = random_problem(seed, eos_bonus=eos_bonus)
    result = fast(BeamSearch, **rules)(problem)
    assert_is_by_hand(result, problem, Options(**rules))


@a_few
@given(seed=seeds)
def test_coverage_is_of_real_positions_and_each_sentence_has_its_own_length_penalty(seed):
    problem, random = random_problem(seed), np.random.default_rng(seed)
    source_mask = random.random(problem.attention[:, 0].shape) < 0.6
    source_mask[:, 0] = True
    penalties = random.uniform(0, 2, SENTENCES)
    search = BeamSearch(NUM_SEQUENCES, coverage_penalty=0.7)
    given = {"length_penalty": penalties, "source_mask": source_mask}
    result = arrays(run(search, problem, **given))
    for number, (real, penalty) in enumerate(zip(source_mask, penalties, strict=True)):
        whole = sentence_of(problem, number)
        sentence = whole._replace(
            attention=lambda ids, whole=whole, real=real: whole.attention(ids)[real]
        )
        options = Options(coverage_penalty=0.7, length_penalty=penalty)
        assert_ranks(result, number, options, every_hypothesis(sentence, options))


@pytest.mark.slow
def test_both_ways_of_stopping_differ_somewhere():
    # Otherwise the tests above would not tell one from the other.
    problem = random_problem(3, eos_bonus=2.0)
    options = {"beam_size": 3, "length_penalty": 2.0}
    exact, early = fast(BeamSearch, **options), fast(BeamSearch, early_stopping=True, **options)
    assert (exact(problem).ids != early(problem).ids).any()


@pytest.mark.parametrize(
    "options",
    [
        {"early_stopping": True, "length_penalty": 2.0},
        {"early_stopping": "current_length", "length_penalty": 2.0},
        {"num_groups": 2, "diversity_penalty": 1.0},
        {"coverage_penalty": 0.5, "no_repeat_ngram_size": 2},
    ],
    ids=str,
)
def test_the_other_sentences_of_the_batch_change_nothing(options):
    search = BeamSearch(4, **options)
    problem = random_problem(11, eos_bonus=1.0)
    whole = arrays(run(search, problem))
    for chosen in ([3], [10, 7, 3, 0]):
        part = arrays(run(search, type(problem)(*(values[chosen] for values in problem))))
        assert (part.ids == whole.ids[chosen]).all()
        np.testing.assert_allclose(part.scores, whole.scores[chosen], atol=1e-5)
        np.testing.assert_allclose(part.token_log_probs, whole.token_log_probs[chosen], atol=1e-5)


@pytest.mark.parametrize("search_class", [GreedySearch, BeamSearch])
def test_a_limit_beyond_the_maximum_length_is_the_maximum_length(search_class):
    problem = random_problem(5, eos_bonus=-3.0, prefixes=False, limits=False)
    expected = arrays(run(search_class(), problem))
    beyond = arrays(run(search_class(), problem._replace(length_limits=problem.length_limits + 3)))
    assert (beyond.ids == expected.ids).all()
    assert (beyond.lengths > 0).all()


@runs_loops_eagerly
@pytest.mark.parametrize("padding", [0, 2, 30])
def test_padding_of_the_source_costs_no_coverage_and_no_steps(padding):
    steps = 0

    def step(tokens, index, state):
        nonlocal steps
        steps += 1
        logits = np.where(np.arange(6) == EOS, 6.0, 0.0).astype("float32")
        attention = np.pad(np.full(3, 1 / 3, "float32"), (0, padding))
        rows = (len(tokens), 1)
        return ops.tile(logits[None], rows), state, ops.tile(attention[None], rows)

    found = BeamSearch(2, 0.0, num_hypotheses=1, coverage_penalty=0.5)(
        step,
        (),
        batch_size=1,
        max_length=20,
        source_mask=ops.convert_to_tensor(np.arange(3 + padding)[None] < 3),
        **SPECIAL,
    )
    # One step is thrown away, to see how wide the attention is.
    assert steps == 1 + 1
    log_prob = -np.log(1 + 5 * np.exp(-6.0))
    expected = log_prob + 0.5 * 3 * np.log(1 / 3)
    np.testing.assert_allclose(arrays(found.scores), [[expected]], atol=1e-5)


@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(4), Sampling(num_samples=4)])
def test_a_model_may_rule_tokens_out_by_minus_infinity(search):
    # 300 is not a multiple of the chunks in which the best of a vocabulary are looked for.
    logits = np.full((1, 300), -np.inf, "float32")
    logits[0, [5, 299, EOS]] = 0.0, 1.0, -3.0
    met = []

    def step(tokens, index, state):
        if BACKEND != "jax":
            met.extend(arrays(tokens).tolist())
        return ops.repeat(ops.convert_to_tensor(logits), len(tokens), axis=0), state

    search = type(search)(**{**search.get_config(), "suppressed_ids": [5]})
    found = arrays(search(step, (), batch_size=2, max_length=3, **SPECIAL))
    assert set(met) <= {*range(300)}
    assert set(found.ids.ravel().tolist()) <= {299, EOS, PAD}
    assert (found.lengths[:, 0] > 0).all()


@pytest.mark.parametrize(
    "search",
    [
        GreedySearch(),
        BeamSearch(2),
        Sampling(num_samples=2),
        Sampling(top_p=0.5),
        Sampling(top_k=2),
    ],
)
@pytest.mark.parametrize("broken", [[np.nan] * 6, [0, 0, 0, 1, np.nan, 2], [0, 0, 0, 1, np.inf, 2]])
def test_a_sentence_whose_logits_are_not_finite_has_no_hypothesis(search, broken):
    sound = np.log([0.1, 0.1, 0.1, 0.4, 0.2, 0.1]).astype("float32")
    logits = np.stack([sound, np.array(broken, "float32")])

    def step(tokens, index, state):
        return ops.repeat(ops.convert_to_tensor(logits), len(tokens) // 2, axis=0), state

    found = arrays(search(step, (), batch_size=2, max_length=3, **SPECIAL))
    assert (found.lengths[0] > 0).any()
    assert np.isfinite(found.scores).all()
    assert (found.lengths[1] == 0).all()
    assert (found.scores[1] == -1e9).all()
    assert (found.ids[1] == PAD).all()


@pytest.mark.parametrize(
    "options",
    [
        {"num_groups": 2},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"early_stopping": True}, marks=pytest.mark.slow),
    ],
)
def test_each_sentence_may_have_a_length_penalty_of_its_own(options):
    problem = random_problem(31, sentences=3)
    penalties = [0.0, 0.7, 2.5]
    together = arrays(run(BeamSearch(4, **options), problem, length_penalty=penalties))
    for row, penalty in enumerate(penalties):
        alone = arrays(run(BeamSearch(4, length_penalty=penalty, **options), problem))
        np.testing.assert_array_equal(together.ids[row], alone.ids[row])
        np.testing.assert_allclose(together.scores[row], alone.scores[row], rtol=1e-5)


def test_a_search_without_a_length_penalty_refuses_one():
    with pytest.raises(ValueError, match="`length_penalty` must be None for a search that has"):
        run(GreedySearch(), random_problem(31, sentences=2), length_penalty=[0.5, 1.0])
