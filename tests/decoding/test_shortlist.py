"""Which target tokens a batch gets, how they are learned, and what a search makes of them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import BeamSearch, GreedySearch, RecurrentSeq2Seq, Transformer
from keras_transformer.decoding import Shortlist

SOURCES, TARGETS = [[5, 6], [5, 7], [6, 7], [7]], [[8, 9], [8, 4], [9, 4], [4]]
SIZES = {"num_layers": 1, "d_model": 16, "dropout": 0.0}
SOURCE_IDS = np.array([[7, 8, 3, 0], [9, 6, 5, 3]])
CANDIDATES = np.array([0, 2, 3, 5, 11, 12, 17])


def by_hand(sources, targets, vocab_size, rounds):
    """Model 1 in plain Python: t(target | source) after some rounds."""
    likely = {}
    for source, target in zip(sources, targets, strict=True):
        likely.update({(s, t): 1 / vocab_size for s in source for t in target})
    for _ in range(rounds):
        counts = dict.fromkeys(likely, 0.0)
        for source, target in zip(sources, targets, strict=True):
            for token in target:
                total = sum(likely[s, token] for s in set(source))
                for s in set(source):
                    counts[s, token] += likely[s, token] / total
        sums = {}
        for (s, _), count in counts.items():
            sums[s] = sums.get(s, 0.0) + count
        likely = {pair: count / sums[pair[0]] for pair, count in counts.items()}
    return likely


def test_probabilities_are_those_of_model_1_by_hand():
    generator = np.random.default_rng(1)
    sources = [generator.integers(0, 9, generator.integers(1, 6)).tolist() for _ in range(40)]
    targets = [generator.integers(0, 12, generator.integers(1, 6)).tolist() for _ in range(40)]
    shortlist = Shortlist.learn(sources, targets, 9, 12, num_targets=12)
    expected = by_hand(sources, targets, 12, 4)
    found = {}
    for source in range(9):
        values = shortlist.probabilities[source]
        assert (np.diff(values) <= 0).all()  # the most likely first
        pairs = zip(shortlist.target_ids[source], values, strict=True)
        found.update({(source, int(target)): value for target, value in pairs if value})
    assert found.keys() == expected.keys()
    for pair, value in found.items():
        assert value == pytest.approx(expected[pair], rel=1e-5)


def test_a_batch_gets_the_likely_the_frequent_and_those_it_always_needs():
    shortlist = Shortlist.learn(SOURCES, TARGETS, 8, 10, size=1, num_frequent=0)
    assert np.asarray(shortlist.candidate_ids([[6]], always=(0, 1))).tolist() == [0, 1, 9]
    # The mass of two sources: 4 and 8 are likely beside 7 and 5, and each row adds one.
    assert np.asarray(shortlist.candidate_ids([[5], [7]])).tolist() == [4, 8]
    assert np.asarray(shortlist.candidate_ids([[6]], further=[[2, 3]])).tolist() == [2, 3, 9]
    assert len(shortlist.candidate_ids([[5]] * 20)) == 10  # the whole vocabulary
    frequent = Shortlist.learn(SOURCES, TARGETS, 8, 10, size=1, num_frequent=1)
    assert frequent.frequent_ids.tolist() == [4]
    assert np.asarray(frequent.candidate_ids([[6]])).tolist() == [4, 9]


def test_bad_arguments_are_refused():
    good = {"target_ids": [[1, 2]], "probabilities": [[0.5, 0.5]], "frequent_ids": [0]}
    Shortlist(**good, vocab_size=3)
    for change, words in (
        ({"probabilities": [[0.5]]}, "must both be"),
        ({"probabilities": [[0.5, float("nan")]]}, "from 0 to 1"),
        ({"probabilities": [[0.5, 1.5]]}, "from 0 to 1"),
        ({"target_ids": [[1, 3]]}, "`target_ids` must be from 0 to below `vocab_size`, 3"),
        ({"frequent_ids": [-1]}, "`frequent_ids` must be from 0"),
        ({"frequent_ids": [[0]]}, "must be .frequent"),
        ({"size": 0}, "`size` must"),
    ):
        with pytest.raises(ValueError, match=words):
            Shortlist(**{"vocab_size": 3, **good, **change})
    with pytest.raises(ValueError, match="`target_rows` must be from 0 to below 9"):
        Shortlist.learn(SOURCES, TARGETS, 8, 9)
    with pytest.raises(ValueError, match="no pair of tokens"):
        Shortlist.learn([[]], [[]], 8, 9)


def model_of(kind):
    keras.utils.set_random_seed(3)
    if kind == "recurrent":
        return RecurrentSeq2Seq(20, **SIZES)
    options = {"untied": {"tie_output": False}, "with a bias": {"logits_bias": True}}
    model = Transformer(20, num_heads=2, d_ff=32, **SIZES, **options.get(kind, {}))
    model.build()
    if kind == "with a bias":
        bias = model.target_embedding.bias
        bias.assign(ops.linspace(-1.0, 1.0, 20))
    return model


@pytest.mark.parametrize("kind", ["tied", "untied", "with a bias", "recurrent"])
@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(3, num_hypotheses=3)])
def test_a_search_over_candidates_is_that_where_no_other_token_may_come(kind, search):
    model = model_of(kind)
    others = sorted(set(range(20)) - set(CANDIDATES.tolist()))
    rule = type(search)(**{**search.get_config(), "suppressed_ids": others})
    expected = model.generate(SOURCE_IDS, rule, max_length=6)
    found = model.generate(SOURCE_IDS, search, max_length=6, candidate_ids=CANDIDATES)
    np.testing.assert_array_equal(found.ids, expected.ids)
    # The sample of so small a vocabulary is all of it.
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    whole = model.generate(SOURCE_IDS, search, max_length=6, candidate_ids=np.arange(20))
    plain = model.generate(SOURCE_IDS, search, max_length=6)
    np.testing.assert_array_equal(whole.ids, plain.ids)
    np.testing.assert_allclose(whole.scores, plain.scores, atol=1e-5)


def test_candidates_that_are_no_ids_are_refused():
    model = model_of("tied")
    for candidates, words in (
        ([[3]], "`candidate_ids` must be .candidates,."),
        ([3, 20], "`candidate_ids` must be"),
        ([0.5], "must be integers"),
    ):
        with pytest.raises(ValueError, match=words):
            model.generate(SOURCE_IDS, GreedySearch(), max_length=3, candidate_ids=candidates)
