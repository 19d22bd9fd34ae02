"""The products of one decoding step: equal to the layer's own, and computed on their own."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import MultiHeadAttention
from keras_transformer.layers.dense import PositionwiseDense, Projection, given_barrier
from tests.backends import POLICIES, array, normal, on_tensorflow, randomise

LAYERS = {
    "dense": (lambda **kwargs: PositionwiseDense(6, "relu", **kwargs), (2, 1, 8)),
    "no bias": (lambda **kwargs: Projection("bld,dhe->blhe", (None, 2, 3), **kwargs), (2, 1, 8)),
    "to heads": (
        lambda **kwargs: Projection("bld,dhe->blhe", (None, 2, 3), bias_axes="he", **kwargs),
        (2, 3, 8),
    ),
    "from heads": (
        lambda **kwargs: Projection("blhd,hdo->blo", (None, 6), bias_axes="o", **kwargs),
        (2, 1, 2, 4),
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", LAYERS)
def test_it_is_the_layer_applied(name, policy):
    make, shape = LAYERS[name]
    dense, inputs = make(dtype=policy), normal(1, *shape)
    dense.build(shape)
    randomise(dense)
    inputs = ops.convert_to_tensor(inputs)
    found, expected = dense.step(inputs), dense(inputs)
    assert found.dtype == expected.dtype
    assert tuple(found.shape) == tuple(expected.shape)
    tolerance = 1e-6 if policy == "float32" else 2e-2
    np.testing.assert_allclose(array(found), array(expected), atol=tolerance)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_in_columns_computes_what_it_did(name):
    make, shape = LAYERS[name]
    dense, inputs = make(), ops.convert_to_tensor(normal(1, *shape))
    dense.build(shape)
    randomise(dense)
    before = [array(run(inputs)) for run in (dense, dense.step)]
    kernel = dense.kernel.shape
    dense.put_in_columns()
    assert tuple(dense.kernel.shape) != tuple(kernel)
    for run, expected in zip((dense, dense.step), before, strict=True):
        np.testing.assert_allclose(array(run(inputs)), expected, atol=1e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_a_quantized_layer_multiplies_in_its_own_way(name):
    make, shape = LAYERS[name]
    dense = make()
    dense.build(shape)
    randomise(dense)
    dense.quantize("int8")
    inputs = ops.convert_to_tensor(normal(1, *shape))
    np.testing.assert_array_equal(array(dense.step(inputs)), array(dense(inputs)))


@on_tensorflow
def test_a_compiled_step_has_gradients():
    import tensorflow as tf

    dense, inputs = PositionwiseDense(6), tf.constant(normal(1, 2, 1, 8))
    dense.build((2, 1, 8))

    @tf.function(jit_compile=True, autograph=False)
    def gradient(x, product):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(product(x) ** 2)
        return tape.gradient(loss, x)

    expected = gradient(inputs, dense)
    np.testing.assert_allclose(gradient(inputs, dense.step), expected, atol=1e-5)


@on_tensorflow
def test_the_gradient_of_a_projection_is_one_product():
    import tensorflow as tf

    layer, inputs = MultiHeadAttention(2, 4), tf.constant(normal(1, 5, 3, 8))
    layer.build(inputs.shape, inputs.shape)

    @tf.function(autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, x) ** 2)
        return tape.gradient(loss, layer.trainable_variables)

    operations = gradient.get_concrete_function(inputs).graph.get_operations()
    products = [op for op in operations if "MatMul" in op.type]
    assert len(products) >= 4 + 4  # those of attention itself are of the type Einsum
    assert {len(op.inputs[0].shape) for op in products} == {2}


def optimized_hlo(function, inputs):
    """The program that XLA makes of it."""
    import tensorflow as tf

    compiled = tf.function(function, jit_compile=True, autograph=False)
    return compiled.experimental_get_compiler_ir(inputs)(stage="optimized_hlo")


def fused_products(hlo):
    """How many products are inside a fused computation, where a single thread computes them."""
    fused, count = False, 0
    for line in hlo.splitlines():
        if line.startswith(("%", "ENTRY")):
            fused = "fused_computation" in line
        count += fused and " dot(" in line
    return count


@on_tensorflow
@pytest.mark.parametrize("name", ["dense", "to heads", "from heads"])
def test_xla_computes_the_product_of_one_row_apart(name):
    from keras_transformer.serving.id_functions import barrier

    make, shape = LAYERS[name]
    dense, inputs = make(), ops.convert_to_tensor(normal(1, 1, 1, *shape[2:]))
    dense.build(shape)

    def in_a_loop(product, x):
        def body(index, outputs):
            return index + 1, ops.relu(product(x + ops.mean(outputs)) + 1.0)

        start = (ops.convert_to_tensor(0, "int32"), dense(x) * 0.0)
        return ops.while_loop(lambda index, _: index < 3, body, start)[1]

    plain = optimized_hlo(lambda x: in_a_loop(dense, x), inputs)
    assert fused_products(plain), "the layer's own call is no slower any more"
    with given_barrier(barrier):
        apart = optimized_hlo(lambda x: in_a_loop(dense.step, x), inputs)
    assert fused_products(apart) < fused_products(plain)
