"""Each TensorFlow operation in TensorFlow and, written in ONNX's, in onnxruntime."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.serving.onnx_runs import compare, convert

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

GENERATOR = np.random.default_rng(5)
MATRIX = GENERATOR.normal(size=(3, 5)).astype("float32")
CUBE = GENERATOR.normal(size=(2, 3, 5)).astype("float32")
IDS = GENERATOR.integers(0, 5, (3, 4)).astype("int32")
SIGNED = np.array([[-7, -3, 3, 7], [-8, 8, -1, 1]], "int32")
# -0 is less than 0, and NumPy's `argmax` does not know.
ZEROS = np.array([[-0.0, 0.0, -1.0], [-1.0, -0.0, -0.0], [-np.inf, -2.0, -0.0]], "float32")

OPERATIONS = {
    "division of integers": (lambda x: x // 3, SIGNED),
    "division by negatives": (lambda x: x // -3, SIGNED),
    "division of floats": (lambda x: x // 0.5, MATRIX),
    "remainder of floats": (lambda x: x % 0.75, MATRIX),
    "a new axis of a shape": (lambda x: tf.shape(x)[None], MATRIX),
    "a shape of 64 bits": (lambda x: tf.shape(x, out_type=tf.int64) + 1, MATRIX),
    "remainder": (lambda x: x % 3, SIGNED),
    "sign of zero": (lambda x: ops.argmax(x, axis=-1), ZEROS),
    "choice of booleans": (lambda x: tf.where(x > 0, x > 1, x > -1), SIGNED),
    "reshape": (lambda x: tf.reshape(x, [tf.shape(x)[0], -1, 1]), CUBE),
    "merged axes": (lambda x: tf.reshape(x, [tf.shape(x)[0] * tf.shape(x)[1], 5]), CUBE),
    "kept axes": (lambda x: tf.reshape(x, [tf.shape(x)[0], tf.shape(x)[1], 1, 5]), CUBE),
    "brackets": (lambda x: x[:, 1:, ::2], CUBE),
    "brackets from the end": (lambda x: x[..., -2], CUBE),
    "brackets in reverse": (lambda x: x[:, ::-1], MATRIX),
    "new axes": (lambda x: x[:, None, ..., None], MATRIX),
    "an ellipsis": (lambda x: x[0, ..., 1:3], CUBE),
    "a computed end": (lambda x: x[:, : tf.shape(x)[0]], MATRIX),
    "a computed place": (lambda x: x[:, tf.shape(x)[0]], MATRIX),
    "padding": (lambda x: tf.pad(x, [[0, 0], [1, 2]], constant_values=4.0), MATRIX),
    "computed padding": (lambda x: tf.pad(x, [[0, 0], [0, tf.shape(x)[0]]]), MATRIX),
    "a lookup": (lambda x: tf.gather(MATRIX, x), IDS % 3),
    "a lookup along an axis": (lambda x, y: tf.gather(x, y, axis=1), MATRIX, IDS[0]),
    "lookups by row": (lambda x, y: tf.gather(x, y, axis=1, batch_dims=1), MATRIX, IDS),
    "places by row": (lambda x, y: ops.take_along_axis(x, y, axis=1), MATRIX, IDS),
    "the largest": (lambda x: tuple(tf.math.top_k(x, 3)), np.round(CUBE)),
    "an order": (lambda x: ops.argsort(x, axis=1), IDS),
    "sorted": (lambda x: ops.sort(x, axis=-1), IDS),
    "one-hot": (lambda x: tf.one_hot(x, 5, 2.0, -1.0), IDS),
    "scattered": (lambda x: ops.scatter(x, [3, 4], (6,)), np.array([[1], [1]], "int32")),
    "a written slice": (
        lambda x, y: ops.slice_update(x, (0, tf.shape(y)[0] - 1, 0), y[:, None]),
        np.ones((2, 3, 4), "float32"),
        np.zeros((2, 4), "float32"),
    ),
    "a longer written slice": (
        lambda x, y: ops.slice_update(x, (0, tf.shape(y)[0], 0), y[:, :2]),
        np.ones((2, 5, 4), "float32"),
        np.zeros((2, 3, 4), "float32")[:, :2],
    ),
    "sums": (lambda x: (tf.reduce_sum(x, 1), tf.reduce_mean(x, -1, True)), CUBE),
    "extremes": (lambda x: (tf.reduce_max(x, [0, 2]), tf.reduce_min(x, 1)), CUBE),
    "any and all": (lambda x: (tf.reduce_any(x > 0, 1), tf.reduce_all(x > 0)), SIGNED),
    "cumulative": (lambda x: (tf.cumsum(x, 1, exclusive=True), tf.cumsum(x, 1, reverse=True)), IDS),
    "products": (lambda x, y: tf.matmul(x, y, transpose_b=True), CUBE, CUBE[:, :2]),
    "a sum of products": (lambda x, y: tf.einsum("bqd,bkd->bqk", x, y), CUBE, CUBE[:, :2]),
    "repeated": (lambda x: (tf.tile(x, [2, 1]), tf.repeat(x, 2, axis=0)), IDS),
    "broadcast": (lambda x: tf.broadcast_to(x[0], tf.shape(x)), MATRIX),
    "a range": (lambda x: tf.range(tf.shape(x)[1]) + x, IDS),
    "finite": (lambda x: tf.math.is_finite(x), np.array([np.inf, -np.inf, np.nan, 0], "float32")),
    "activations": (lambda x: (tf.nn.relu(x), tf.nn.sigmoid(x), tf.tanh(x)), CUBE),
    "gelu": (lambda x: ops.gelu(x, approximate=False), CUBE),
    "parts": (lambda x: (*tf.split(x, 2, axis=1), *tf.unstack(tf.ensure_shape(x, [3, 4]))), IDS),
    "reversed": (lambda x: tf.reverse(x, [1]), IDS),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_gives_the_same_in_onnx(name):
    function, *inputs = OPERATIONS[name]
    compare(function, *inputs, atol=2e-6)


def test_an_operation_without_a_counterpart_is_refused():
    with pytest.raises(ValueError, match=r"no counterpart.* Received: .*Unique"):
        convert(lambda x: tf.unique(x)[0], [IDS[0]])


def test_bits_other_than_the_sign_are_refused():
    with pytest.raises(ValueError, match="a bit cast must be of float32 to int32"):
        convert(lambda x: tf.bitcast(x, tf.float32), [IDS])

    def some_bits(x):
        return tf.bitwise.bitwise_and(tf.bitcast(x, tf.int32), 255)

    with pytest.raises(ValueError, match="only the sign bit"):
        convert(some_bits, [MATRIX])


def test_a_slice_that_is_written_along_two_axes_is_refused():
    def write(x, y):
        place = tf.shape(y)[0]
        return ops.slice_update(x, (place, place), y[:1, :1])

    with pytest.raises(ValueError, match="along one axis"):
        convert(write, [MATRIX, MATRIX])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_refused(dtype):
    with pytest.raises(ValueError, match=f"compute in float32.* Received: .*of {dtype}"):
        convert(lambda x: tf.cast(x, dtype), [MATRIX])
