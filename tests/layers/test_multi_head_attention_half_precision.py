"""Attention in half precision: blocks stay blocks, and large products do not overflow."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import ALiBi, MultiHeadAttention
from tests.backends import BACKEND, array, compiled, normal

HALF = ("mixed_float16", "mixed_bfloat16")


@pytest.mark.skipif(BACKEND == "torch", reason="torch has no lengths known only at run time")
@pytest.mark.parametrize(
    "policy",
    [
        "mixed_float16",
        *(pytest.param(p, marks=pytest.mark.slow) for p in ("float32", "mixed_bfloat16")),
    ],
)
def test_long_rows_never_make_a_full_matrix_under_any_policy(policy, monkeypatch):
    shapes, softmax = [], ops.softmax

    def seen(scores, *args, **kwargs):
        shapes.append(tuple(scores.shape))
        return softmax(scores, *args, **kwargs)

    monkeypatch.setattr("keras.ops.softmax", seen)
    layer = MultiHeadAttention(1, 4, window=10, position=ALiBi(), dtype=policy)
    layer.build((None, None, 8), (None, None, 8))
    hidden = normal(1, 1, 1000, 8)
    array(compiled(lambda x: layer(x, x), [hidden])(ops.convert_to_tensor(hidden)))
    inputs = keras.Input((None, 8))
    array(keras.Model(inputs, layer(inputs, inputs))(hidden))
    assert len(shapes) >= 2
    assert all(shape[-1] == 192 for shape in shapes)


@pytest.mark.parametrize("policy", HALF)
def test_a_product_too_large_for_float16_is_scaled_first(policy):
    layer = MultiHeadAttention(1, 64, use_bias=False, dtype=policy)
    layer.build((None, None, 64), (None, None, 64))
    layer.set_weights([1.5 * np.eye(64).reshape(shape.shape) for shape in layer.get_weights()])
    inputs = np.stack([np.full(64, 30.0), np.zeros(64)])[None]  # 64 * 45 * 45 = 129,600
    plain, _ = layer(inputs, inputs, return_attention_scores=True)
    np.testing.assert_allclose(array(layer(inputs, inputs)), array(plain), rtol=2e-2)
    assert np.isfinite(array(plain)).all()


@pytest.mark.parametrize("policy", ["float32", *HALF])
def test_rows_without_positions_have_no_output(policy):
    layer = MultiHeadAttention(2, 4, window=3, dtype=policy)
    layer.build((None, None, 8), (None, None, 8))
    empty = np.zeros((2, 0, 8), "float32")
    assert tuple(layer(empty, empty).shape) == (2, 0, 8)
