"""The line of docs/attention.md's table that is about JAX alone."""

import keras
import numpy as np
import pytest

from keras_transformer.layers import MultiHeadAttention
from tests.backends import array, normal, on_jax, randomise

pytestmark = on_jax


def test_values_may_be_wider_than_keys_on_the_fused_path():
    query, memory = normal(1, 2, 5, 8), normal(2, 2, 7, 8)
    theirs = keras.layers.MultiHeadAttention(2, 4, value_dim=6)
    theirs.build(query.shape, memory.shape)
    randomise(theirs, scale=0.7)
    ours = MultiHeadAttention.from_keras(theirs)
    with pytest.raises(Exception, match="shape"):
        theirs(query, memory)
    expected, _ = theirs(query, memory, return_attention_scores=True)
    # Four units in the last place of outputs near 5, as another order of the sums makes them.
    found = array(ours(query, memory))
    np.testing.assert_allclose(found, array(expected), rtol=1e-6, atol=1e-6)
