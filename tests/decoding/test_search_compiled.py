"""The same hypotheses whichever way a search is run: eagerly, as a graph, in one XLA kernel."""

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, Sampling
from tests.backends import arrays
from tests.decoding.problems import Problem, random_problem, run
from tests.decoding.step_functions import A
from tests.decoding.ways_to_compile import WAYS, in_way

RULES = {
    "min_length": 2,
    "min_length_ratio": 0.3,
    "max_length_ratio": 0.8,
    "repetition_penalty": 1.3,
    "no_repeat_ngram_size": 2,
    "suppressed_ids": (A,),
    "return_alignments": True,
}
SEARCHES = {
    "greedy": GreedySearch(),
    "greedy with rules": GreedySearch(**RULES),
    "beam": BeamSearch(3),
    "beam with rules": BeamSearch(4, num_hypotheses=2, coverage_penalty=0.3, **RULES),
    "a stop by the current length": BeamSearch(3, early_stopping="current_length"),
    "groups": BeamSearch(6, num_groups=3, diversity_penalty=0.7, early_stopping=True),
    "sampling": Sampling(top_k=3, top_p=0.9, min_p=0.1, seed=5),
    "samples with rules": Sampling(num_samples=4, temperature=2.0, seed=5, **RULES),
}
DEFAULT_CASES = {
    ("greedy with rules", "graph"),
    ("beam with rules", "xla"),
    ("a stop by the current length", "xla"),
    ("groups", "graph"),
    ("samples with rules", "xla"),
}


# By default those with rules, and groups: all others do less of the same.
CASES = [
    pytest.param(
        name,
        way,
        marks=() if (name, way) in DEFAULT_CASES or way == "compiled" else pytest.mark.slow,
    )
    for name in SEARCHES
    for way in WAYS
]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_compiled_and_eager_searches_agree(name, way):
    # The graph leaves the number of sentences open; XLA would compile the second batch anew.
    search, example = SEARCHES[name], random_problem(1, sentences=4)
    call = in_way(way, lambda *problem: run(search, Problem(*problem)), list(example))
    for seed, sentences in ((2, 4),) if way == "xla" else ((2, 4), (3, 7)):
        problem = random_problem(seed, sentences=sentences)
        fast = arrays(call(*problem))
        # XLA has random numbers of its own, though the same at every call.
        other_numbers = way == "xla" and isinstance(search, Sampling)
        expected = arrays(call(*problem) if other_numbers else run(search, problem))
        for field, part, other in zip(expected._fields, fast, expected, strict=True):
            assert (part is None) == (other is None)
            if part is not None:
                assert part.shape == other.shape
                np.testing.assert_allclose(part, other, atol=1e-5, err_msg=field)


@pytest.mark.parametrize("name", SEARCHES)
def test_the_result_has_its_documented_shapes_and_dtypes(name):
    result = arrays(run(SEARCHES[name], random_problem(1, sentences=4)))
    count = result.ids.shape[1]
    search = SEARCHES[name]
    assert count == getattr(search, "num_hypotheses", getattr(search, "num_samples", 1))
    assert count == search.hypotheses_per_sentence
    shapes = {
        "ids": (4, count, 4),
        "scores": (4, count),
        "lengths": (4, count),
        "token_log_probs": (4, count, 4),
    }
    for field, shape in shapes.items():
        assert getattr(result, field).shape == shape
        expected = "int32" if field in ("ids", "lengths") else "float32"
        assert getattr(result, field).dtype == expected
    assert (result.alignments is not None) == search.return_alignments


def test_an_empty_prefix_and_no_options_are_the_plain_call():
    problem = random_problem(1, prefixes=False, limits=False)
    padded = arrays(run(BeamSearch(3), problem))
    empty = arrays(run(BeamSearch(3), problem._replace(prefix_ids=problem.prefix_ids[:, :0])))
    longer = np.pad(problem.prefix_ids, [(0, 0), (0, 5)])
    long = arrays(run(BeamSearch(3), problem._replace(prefix_ids=longer)))
    for other in (empty, long):
        assert (other.ids == padded.ids).all()
        np.testing.assert_allclose(other.scores, padded.scores, atol=1e-6)
