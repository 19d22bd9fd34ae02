"""Logits of candidates: theirs, none of the others, and padding with the mass of all others."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import TokenEmbedding
from keras_transformer.layers.candidate_logits import NUM_SAMPLE, CandidateLogits
from tests.backends import array, normal, randomise

D_MODEL, PAD = 5, 2
HIDDEN = normal(2, 3, 7, D_MODEL)


def logits(vocab_size, candidates, **arguments):
    """Logits of all tokens, and those of `CandidateLogits`, both (batch, length, vocab)."""
    embedding = TokenEmbedding(vocab_size, D_MODEL, **arguments)
    embedding.build((None, None))
    randomise(embedding)
    hidden = ops.convert_to_tensor(HIDDEN)
    few = CandidateLogits(embedding, ops.convert_to_tensor(candidates), PAD)
    return array(embedding.logits(hidden)), array(few(hidden))


def mass(values):
    """The logarithm of the sum of exponentials along the last axis."""
    return np.log(np.exp(values).sum(axis=-1))


@pytest.mark.parametrize(
    "arguments", [{}, {"tie_output": False}, {"tie_output": False, "logits_bias": True}]
)
def test_padding_has_the_mass_of_all_tokens_that_are_no_candidates(arguments):
    candidates, rest = [3, 16, 0], [1, *range(4, 16)]
    whole, found = logits(17, candidates, **arguments)
    assert found.shape == (3, 7, 17)
    np.testing.assert_allclose(found[..., candidates], whole[..., candidates], atol=1e-5)
    assert (found[..., rest] == -1e9).all()
    # The sample of so small a vocabulary is all of it.
    expected = mass(whole[..., [PAD, *rest]])
    np.testing.assert_allclose(found[..., PAD], expected, atol=1e-5)


def test_a_sample_stands_for_the_others_of_a_large_vocabulary():
    size = 1000
    candidates = [0, 1, 500]
    whole, found = logits(size, candidates)
    sample = np.linspace(0, size - 1, NUM_SAMPLE).round().astype(int)
    sample = sample[~np.isin(sample, candidates)]
    # 997 tokens are left out. Each of the sample stands for 997 / len(sample) of them.
    expected = mass(whole[..., sample]) + np.log(997 / len(sample))
    np.testing.assert_allclose(found[..., PAD], expected, atol=1e-4)


def test_padding_is_no_candidate_even_where_it_is_given():
    whole, found = logits(17, [3, PAD])
    np.testing.assert_allclose(found[..., 3], whole[..., 3], atol=1e-5)
    expected = mass(np.delete(whole, 3, axis=-1))
    np.testing.assert_allclose(found[..., PAD], expected, atol=1e-5)
