"""A subclass of BeamSearch that looks at every step: what it sees is what the search did."""

import numpy as np
import pytest

from keras_transformer import BeamSearch
from keras_transformer.decoding.search import IMPOSSIBLE
from tests.backends import array, arrays
from tests.decoding.problems import random_problem, run


class Watched(BeamSearch):
    """Loops in Python, and keeps the beams and what may follow them."""

    def loop(self, unfinished, advance, beams):
        self.beams, self.following = [beams], []
        while unfinished(beams):
            beams = advance(beams)
            self.beams.append(beams)
        return beams

    def next_log_probs(self, task, now, logits):
        self.following.append(array(super().next_log_probs(task, now, logits)))
        return super().next_log_probs(task, now, logits)


OPTIONS = {
    "plain": {"beam_size": 3},
    "groups": {"beam_size": 4, "num_groups": 2, "diversity_penalty": 0.5},
    "current": {"beam_size": 3, "early_stopping": "current_length"},
    "early": {"beam_size": 3, "early_stopping": True, "coverage_penalty": 0.3},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_loop_in_python_finds_the_same(name):
    problem = random_problem(4)
    expected = arrays(run(BeamSearch(**OPTIONS[name]), problem))
    found = arrays(run(Watched(**OPTIONS[name]), problem))
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_live_hypothesis_adds_what_followed_its_parent(name):
    search = Watched(**OPTIONS[name])
    run(search, random_problem(4))
    assert len(search.following) == len(search.beams) - 1 > 1
    met = 0
    for before, after, following in zip(
        search.beams[:-1], search.beams[1:], search.following, strict=True
    ):
        index, parents = int(before.index), array(after.paths)[:, :, int(before.index)]
        assert int(after.index) == index + 1
        tokens = array(after.tokens).reshape(parents.shape)
        sentences = np.arange(len(parents))[:, None]
        total = array(before.log_probs)[sentences, parents] + following[sentences, parents, tokens]
        live = array(after.log_probs) > IMPOSSIBLE / 2
        np.testing.assert_allclose(array(after.log_probs)[live], total[live], atol=1e-5)
        met += live.sum()
    assert met > 10
