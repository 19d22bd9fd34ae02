"""Sampling: how often each token is drawn, and what every draw must keep to."""

import math
from collections import Counter

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import GreedySearch, Sampling
from tests.backends import BACKEND, arrays, on_tensorflow
from tests.decoding.problems import (
    MAX_LENGTH,
    SENTENCES,
    assert_is,
    fast,
    random_problem,
    run,
    sentence_of,
)
from tests.decoding.reference_search import (
    Hypothesis,
    Options,
    following,
    longest,
    sampling_distribution,
)
from tests.decoding.step_functions import EOS, PAD, A

SAMPLES = 5000
# A count of n draws is binomial: beyond 6 standard deviations is met once in 10 ** 8.
DEVIATIONS = 6
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=2 if BACKEND == "jax" else 3)
CUTS = [
    {"temperature": 0.5},
    {"top_p": 0.7},
    {"temperature": 2.0, "top_k": 3, "top_p": 0.8},
    {"temperature": 1.5, "top_p": 0.9, "min_p": 0.2},
    {"temperature": 1.3, "top_p": 0.8, "suppressed_ids": (A,), "repetition_penalty": 1.5},
    {"top_k": 2, "no_repeat_ngram_size": 1, "min_length": 2, "return_alignments": True},
    {"min_p": 0.4, "allowed_ids": (A,), "min_length_ratio": 0.3, "max_length_ratio": 0.5},
]
MORE_CUTS = [
    {},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 2},
    {"top_k": 100},
    {"top_p": 0.05},
    {"min_p": 0.3},
    {"temperature": 0.7, "top_k": 3, "top_p": 0.95, "min_p": 0.1},
]
all_cuts = pytest.mark.parametrize(
    "options",
    [*CUTS, *(pytest.param(options, marks=pytest.mark.slow) for options in MORE_CUTS)],
    ids=str,
)


def found_in(result, number):
    """The ids of every sample of a sentence, without padding."""
    pairs = zip(result.ids[number], result.lengths[number], strict=True)
    return [tuple(ids[:length].tolist()) for ids, length in pairs]


def assert_frequencies(drawn, probabilities):
    """Asserts that nothing else was drawn, and each as often as its probability says."""
    total = sum(drawn.values())
    assert set(drawn) <= set(probabilities)
    for token, probability in probabilities.items():
        deviation = math.sqrt(total * probability * (1 - probability))
        assert abs(drawn[token] - total * probability) <= DEVIATIONS * deviation + 1


@all_cuts
@few
@given(seed=seeds, prefixes=st.booleans())
def test_tokens_are_drawn_as_often_as_their_probability_says(options, seed, prefixes):
    problem = random_problem(seed, sentences=1, prefixes=prefixes)
    sentence, rules = sentence_of(problem, 0), Options(**options)
    search = Sampling(num_samples=SAMPLES, seed=seed, **options)
    samples = found_in(arrays(run(search, problem)), 0)
    drawn = {}
    for ids in samples:
        for position, token in enumerate(ids):
            drawn.setdefault(ids[:position], Counter())[token] += 1
    # The first token, and the second one after each first one.
    for begun, counts in drawn.items():
        assert_frequencies(counts, sampling_distribution(sentence, rules, begun))


@all_cuts
@few
@given(seed=seeds, eos_bonus=st.sampled_from([-3.0, 0.0]))
def test_samples_are_sorted_hypotheses_with_the_scores_of_the_model(options, seed, eos_bonus):
    problem = random_problem(seed, eos_bonus=eos_bonus)
    rules = Options(**options)
    result = fast(Sampling, num_samples=5, seed=7, **options)(problem)
    assert result.ids.shape == (SENTENCES, 5, MAX_LENGTH)
    assert (np.diff(result.scores, axis=1) <= 0).all()
    for number in range(SENTENCES):
        sentence = sentence_of(problem, number)
        for rank, ids in enumerate(found_in(result, number)):
            if not ids:
                assert result.scores[number, rank] == -1e9
                continue
            assert ids[-1] == EOS or len(ids) == longest(sentence, rules)
            assert EOS not in ids[:-1]
            log_probs, attention = [], []
            for position, token in enumerate(ids):
                allowed = following(sentence, rules, ids[:position])
                assert token in allowed
                log_probs.append(allowed[token])
                attention.append(sentence.attention(ids[:position]))
            assert_is(result, (number, rank), rules, Hypothesis(ids, log_probs, attention))
            assert (result.ids[number, rank, len(ids) :] == PAD).all()
            assert (result.token_log_probs[number, rank, len(ids) :] == 0).all()


@few
@given(seed=seeds)
def test_the_likeliest_token_alone_is_greedy_search(seed):
    problem = random_problem(seed)
    greedy = arrays(run(GreedySearch(), problem))
    for options in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
        sampled = arrays(run(Sampling(seed=3, **options), problem))
        assert (sampled.ids == greedy.ids).all()
        np.testing.assert_allclose(sampled.scores, greedy.scores, atol=1e-5)


def test_sentences_and_samples_are_drawn_independently():
    # 100 times the same sentence: each pair of samples would agree always if they shared a number.
    one = random_problem(5, sentences=1, prefixes=False, limits=False)
    problem = type(one)(*(np.repeat(values, 100, axis=0) for values in one))
    result = arrays(run(Sampling(num_samples=2, seed=1, temperature=2.0), problem))
    assert len({tuple(ids) for ids in result.ids[:, 0].tolist()}) > 10
    assert (result.ids[:, 0] != result.ids[:, 1]).any(axis=-1).mean() > 0.5


def test_a_seed_reproduces_and_another_one_differs():
    problem = random_problem(6, sentences=40, prefixes=False)
    ids = [arrays(run(Sampling(seed=s), problem)).ids for s in (3, 3, 4)]
    assert (ids[0] == ids[1]).all()
    assert (ids[0] != ids[2]).any()
    search = Sampling(seed=3)
    assert (arrays(run(search, problem)).ids == ids[0]).all()
    assert (arrays(run(search, problem)).ids == ids[0]).all()
    again = Sampling.from_config(search.get_config())
    assert (arrays(run(again, problem)).ids == ids[0]).all()


def test_without_a_seed_every_call_draws_anew():
    problem = random_problem(6, sentences=40, prefixes=False)
    search = Sampling()
    first, second = (arrays(run(search, problem)).ids for _ in range(2))
    assert (first != second).any()


@on_tensorflow
def test_without_a_seed_every_call_of_a_compiled_function_draws_anew():
    problem = random_problem(6)
    first, second = (fast(Sampling, temperature=3.0)(problem).ids for _ in range(2))
    assert (first != second).any()
    seeded = [fast(Sampling, temperature=3.0, seed=2)(problem).ids for _ in range(2)]
    assert (seeded[0] == seeded[1]).all()


@pytest.mark.parametrize("cut", [{}, pytest.param({"min_p": 0.5}, marks=pytest.mark.slow)], ids=str)
def test_what_is_ruled_out_is_never_drawn_from_a_large_vocabulary(cut):
    # One token in 50 is allowed, all alike but for noise. Sums over so many tokens are rounded,
    # which must not let a draw fall between them: with this seed some did.
    vocab, rows = 20011, 3000
    allowed = tuple(range(7, vocab, 50))
    random = np.random.default_rng(0)
    logits = random.normal(scale=0.1, size=(1, vocab)).astype("float32")
    search = Sampling(num_samples=rows, seed=0, allowed_ids=allowed, **cut)

    def call(logits):
        def step(tokens, index, state):
            return ops.repeat(logits, rows, axis=0), state

        return search(step, (), batch_size=1, max_length=4, bos_id=1, eos_id=EOS)

    result = arrays(in_one_kernel(call)(logits))
    assert (result.lengths > 0).all()
    ids = result.ids[result.ids != PAD]
    assert len(ids) > 3 * rows
    assert set(ids.tolist()) <= {*allowed, EOS}


@pytest.mark.parametrize("temperature", [1e-38, 1e-20, 1e9, 1e30])
def test_no_temperature_lets_through_what_is_ruled_out(temperature):
    logits = np.array([[0.0, 0.0, -2.0, 1.0, 0.5, 0.2]] * 200, "float32")

    def step(tokens, index, state):
        return ops.convert_to_tensor(logits), state

    search = Sampling(temperature, seed=1, suppressed_ids=(5,))
    found = arrays(search(step, (), batch_size=200, max_length=1, bos_id=1, eos_id=EOS))
    assert (found.lengths == 1).all()
    drawn = {3} if temperature < 1 else {2, 3, 4}
    assert set(found.ids.ravel().tolist()) == drawn


def in_one_kernel(function):
    """Compiles with XLA, which sums in another order, where the backend has it."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True, autograph=False)
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    return lambda *inputs: function(*map(ops.convert_to_tensor, inputs))
