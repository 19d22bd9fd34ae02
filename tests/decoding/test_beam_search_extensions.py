"""The best extensions of a large vocabulary: two stages against one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import BeamSearch, GreedySearch
from keras_transformer.decoding.beam_search import top_extensions
from tests.backends import BACKEND, arrays
from tests.decoding.problems import (
    Problem,
    assert_is_by_hand,
    run,
)
from tests.decoding.reference_search import Options
from tests.decoding.step_functions import EOS, PAD, random_table

IMPOSSIBLE = -1e9
# Up to 256 tokens there is one stage; 256 is divisible by 64 and the primes are not.
VOCABULARIES = [1, 5, 63, 64, 65, 256, 257, 293, 320, 509, 1021]
vocabularies = st.sampled_from(VOCABULARIES)
seeds = st.integers(0, 2**32 - 1)


def best_in_order(totals, size):
    """The largest of each sentence, among equals the first beam and token: (batch, size) each."""
    batch, beams, vocab = totals.shape
    flat = totals.reshape(batch, beams * vocab)
    places = np.argsort(-flat, axis=1, kind="stable")[:, :size]
    return np.take_along_axis(flat, places, axis=1), places // vocab, places % vocab


def assert_best(totals, size):
    found = arrays(top_extensions(ops.convert_to_tensor(totals), size))
    expected = best_in_order(totals, size)
    assert (found[0] == expected[0]).all()
    sentences = np.arange(len(totals))[:, None]
    assert (totals[sentences, found[1], found[2]] == found[0]).all()
    places = found[1] * totals.shape[2] + found[2]
    assert all(len(set(row)) == size for row in places.tolist())
    if BACKEND != "torch":  # which does not say in what order it gives equals
        assert (found[1] == expected[1]).all()
        assert (found[2] == expected[2]).all()


@settings(max_examples=60)
@given(
    seed=seeds,
    vocab=vocabularies,
    beams=st.sampled_from([1, 2, 5]),
    size=st.sampled_from([1, 2, 5, 8, 40]),
    different=st.sampled_from([1, 3, 30, 10**6]),
)
def test_two_stages_find_what_one_does_ties_included(seed, vocab, beams, size, different):
    random = np.random.default_rng(seed)
    totals = -random.integers(0, different, (7, beams, vocab)).astype("float32")
    # Some tokens are ruled out, and some beams are dead.
    totals[random.random(totals.shape) < random.choice([0.0, 0.5, 0.99])] = IMPOSSIBLE
    totals[:, random.random(beams) < 0.3] += IMPOSSIBLE
    assert_best(totals, min(size, beams * vocab))


@pytest.mark.parametrize("vocab", [293, 320, 1021])
def test_all_of_the_best_in_one_chunk_or_each_in_its_own(vocab):
    together = np.zeros((1, 2, vocab), "float32")
    together[0, 1, 70:78] = np.arange(1, 9)
    assert_best(together, 8)
    apart = np.zeros((1, 2, vocab), "float32")
    apart[0, :, 63::64] = np.arange(1, 1 + apart[0, :, 63::64].size).reshape(2, -1)
    assert_best(apart, 8)
    last = np.zeros((1, 2, vocab), "float32")
    last[0, :, -1] = [1, 2]
    assert_best(last, 8)


@settings(max_examples=3 if BACKEND == "jax" else 8)
@given(
    seed=seeds,
    rules=st.sampled_from(
        [
            {"beam_size": 1},
            {"beam_size": 4, "no_repeat_ngram_size": 1},
            {"beam_size": 4, "num_groups": 2, "diversity_penalty": 0.7},
            {"beam_size": 5, "min_length": 2, "repetition_penalty": 1.8},
            {"beam_size": 3, "allowed_ids": (290, 64, 63), "suppressed_ids": (64,)},
        ]
    ),
)
def test_a_search_of_a_large_vocabulary_is_the_search_by_hand(seed, rules):
    rules = {"length_penalty": 0.6, **rules}
    problem = large_problem(seed)
    result = arrays(run(BeamSearch(**rules), problem, max_length=2))
    assert_is_by_hand(result, problem, Options(**rules))
    if rules["beam_size"] == 1:
        assert (result.ids == arrays(run(GreedySearch(), problem, max_length=2)).ids).all()


def large_problem(seed, sentences=4, vocab=293):
    random = np.random.default_rng(seed)
    table = random_table(seed, sentences, 2, vocab=vocab)
    table[..., EOS] += 4.0
    prefix_ids = np.full((sentences, 1), PAD, "int32")
    prefix_ids[0] = random.integers(1, vocab)
    limits = random.integers(1, 3, sentences).astype("int32")
    return Problem(table, table[..., :1], limits, limits, prefix_ids)
