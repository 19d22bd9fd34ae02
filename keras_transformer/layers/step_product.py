"""The products of one decoding step: a dense layer applied to few rows."""

from keras import ops

from keras_transformer.xla import apart


def step_product(dense, inputs):
    """`dense(inputs)` for one step of a search, faster where there is but one row.

    For one row TensorFlow's XLA on a processor puts the product, the kernel's reshape and the
    addition that follows into one loop of a single thread, which reads the weights at half the
    speed or less.

    Args:
        dense: a built `Dense`, or an `EinsumDense` whose kernel has the inputs' last axes first.
        inputs: (batch, queries, ...).
    """
    if dense.quantization_mode is not None:
        return dense(inputs)
    dtype = dense.compute_dtype
    read = len(inputs.shape) - 2
    outputs_shape = dense.kernel.shape[read:]
    size = 1
    for axis in dense.kernel.shape[:read]:
        size *= axis
    kernel = apart(ops.reshape(ops.cast(dense.kernel, dtype), (size, -1)))
    outputs = apart(ops.matmul(ops.reshape(ops.cast(inputs, dtype), (-1, size)), kernel))
    if dense.bias is not None:
        outputs = outputs + ops.reshape(ops.cast(dense.bias, dtype), (-1,))
    outputs = ops.reshape(outputs, (*ops.shape(inputs)[:2], *outputs_shape))
    return outputs if dense.activation is None else dense.activation(outputs)
