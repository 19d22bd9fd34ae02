"""Dense layers: one product of two matrices each, also in a decoding step, and an exact bias."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
from keras import ops

from keras_transformer.arguments import Tensor

BARRIER = ContextVar("BARRIER", default=None)


@contextmanager
def products_apart(barrier: Any) -> Iterator[None]:
    """Within the context, `barrier(tensor)` separates the products of a decoding step.

    For one row, TensorFlow's XLA on a CPU fuses the product, the kernel's reshape and the addition
    after it into one loop. That loop has a single thread and reads the weights at half the speed or
    less. The caller supplies the compiler's barrier.
    """
    token = BARRIER.set(barrier)
    try:
        yield
    finally:
        BARRIER.reset(token)


def apart(tensor: Tensor) -> Tensor:
    """Passes `tensor` through the barrier, if there is one."""
    barrier = BARRIER.get()
    return tensor if barrier is None else barrier(tensor)


def step_product(dense: Any, inputs: Tensor) -> Tensor:
    """`dense(inputs)` in a decoding step, with the product apart; see `products_apart`.

    Args:
        dense: a built `Dense`, or an `EinsumDense` whose kernel starts with the inputs' last axes.
        inputs: (batch, query, ...).
    """
    return dense(inputs) if dense.quantization_mode is not None else flat_product(dense, inputs)


def flat_product(dense: Any, inputs: Tensor) -> Tensor:
    """`dense(inputs)` of a layer that is not quantized, as one product of two matrices.

    Its gradient is then one product too. On TensorFlow the gradient of an einsum is a product for
    each sentence and a sum of these products. That of a `matmul` over three axes is too.
    """
    dtype = dense.compute_dtype
    read = len(inputs.shape) - 2  # axes of the inputs that the product sums over
    kernel = ops.cast(dense.kernel, dtype)
    if has_outputs_first(dense):
        outputs_shape, read_shape = kernel.shape[:-read], kernel.shape[-read:]
    else:
        read_shape, outputs_shape = kernel.shape[:read], kernel.shape[read:]
    size = math.prod(read_shape)
    rows = ops.reshape(ops.cast(inputs, dtype), (-1, size))  # -> (batch * query, size)
    if has_outputs_first(dense):
        # kernel -> (outputs, size)
        outputs = columns_product(ops.reshape(kernel, (-1, size)), rows)
    else:
        # kernel -> (size, outputs)
        outputs = apart(ops.matmul(rows, apart(ops.reshape(kernel, (size, -1)))))
    if dense.bias is not None:
        # bias -> (outputs,)
        outputs = plus_bias(outputs, ops.reshape(ops.cast(dense.bias, dtype), (-1,)))
    # -> (batch, query, *outputs_shape)
    outputs = ops.reshape(outputs, (*ops.shape(inputs)[:2], *outputs_shape))
    return outputs if dense.activation is None else dense.activation(outputs)


def columns_product(matrix: Tensor, rows: Tensor) -> Tensor:
    """`rows @ transpose(matrix)`, computed as `matrix @ transpose(rows)`.

    XLA reads the matrix of a product with few rows faster in this order on a processor without
    AVX-512.

    Args:
        matrix: (outputs, inputs).
        rows: (rows, inputs), of the same dtype.
    """
    return ops.transpose(apart(ops.matmul(apart(matrix), ops.transpose(rows))))


def put_outputs_first(dense: Any) -> None:
    """Stores the kernel of a built layer as (outputs, inputs) from now on; for inference alone."""
    kernel = ops.convert_to_numpy(dense.kernel)
    read = 1  # axes that the product sums over
    if isinstance(dense, keras.layers.EinsumDense):
        inputs, of_kernel = dense.equation.partition("->")[0].split(",")
        read = len(set(inputs) & set(of_kernel))
    replace_weight(dense, "_kernel", kernel.transpose(*range(read, kernel.ndim), *range(read)))
    dense.outputs_first = True


def has_outputs_first(dense: Any) -> bool:
    """Whether `put_outputs_first` was called; `dense` may be of Keras's own class."""
    return getattr(dense, "outputs_first", False)


def replace_weight(layer: Any, name: str, values: Any) -> None:
    """Gives a built layer `values` as another weight in the place of its attribute `name`.

    Keras does the same where it quantizes.
    """
    layer._tracker.unlock()
    delattr(layer, name)
    weight = layer.add_weight(
        values.shape, "zeros", values.dtype.name, trainable=False, name=name.strip("_")
    )
    weight.assign(values)
    setattr(layer, name, weight)
    layer._tracker.lock()


def plus_bias(outputs: Tensor, bias: Tensor) -> Tensor:
    """`outputs + bias`, with a correct gradient of the bias in half precision too.

    That gradient is a sum over all positions. Keras's `ops.add` selects `BiasAdd` for a bias. On a
    CPU, TensorFlow's `BiasAdd` and JAX's addition sum in half precision. In bfloat16 gradients of a
    whole model were then wrong by up to 70 % and 38 %. Here they are wrong by 1 %. In float32
    `BiasAdd` is exact, and the fastest.

    Args:
        outputs: (..., width).
        bias: (width,), or the last axes of `outputs`.
    """
    dtype = keras.backend.standardize_dtype(outputs.dtype)
    if dtype not in ("bfloat16", "float16"):
        return ops.add(outputs, bias)
    if keras.backend.backend() == "jax":
        return ops.cast(ops.cast(outputs, "float32") + ops.cast(bias, "float32"), dtype)
    return outputs + ops.cast(bias, dtype)


class PositionwiseDense(keras.layers.Dense):
    """A `Dense` whose bias has a correct gradient in half precision; see `plus_bias`."""

    outputs_first = False  # see `put_outputs_first`

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Returns the product with the bias added, activated."""
        if self.outputs_first:
            return flat_product(self, inputs)
        outputs = plus_bias(ops.matmul(inputs, self.kernel), self.bias)
        return outputs if self.activation is None else self.activation(outputs)

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: dict[str, Any] | None = None
    ) -> None:
        """Quantizes as Keras quantizes its own class."""
        super().quantize(mode, type_check=False, config=config)


class Projection(keras.layers.EinsumDense):
    """An `EinsumDense` from and to the last axes; one product of two matrices on TensorFlow.

    The einsums of the other backends are such products already. Keras 3.15's `EinsumDense` adds its
    bias by `ops.add`. With as many positions as heads, `ops.add` takes a bias (heads, 1) for one
    along the length. So `plus_bias` adds the bias on all backends.
    """

    outputs_first = False  # see `put_outputs_first`

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Returns the projection."""
        if keras.backend.backend() == "tensorflow" or self.outputs_first:
            return flat_product(self, inputs)
        outputs = ops.einsum(self.equation, inputs, self.kernel)
        if self.bias is not None:
            outputs = plus_bias(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)

    def quantized_call(self, inputs: Tensor, **kwargs: Any) -> Tensor:
        """As `EinsumDense` in 8 bits, with each position as a sequence of its own.

        Keras's einsum on TensorFlow multiplies integers only for lengths that are known in advance.
        For other lengths it casts all weights to floats at each call.
        """
        batch, length, *width = ops.shape(inputs)
        apiece = ops.reshape(inputs, (-1, 1, *width))  # -> (batch * length, 1, *width)
        outputs = super().quantized_call(apiece, **kwargs)
        # -> (batch, length, *width of the output)
        return ops.reshape(outputs, (batch, length, *outputs.shape[2:]))

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: dict[str, Any] | None = None
    ) -> None:
        """Quantizes as `EinsumDense` does, except a layer with a bias (heads, 1); see above."""
        narrow = self.bias is not None and len(self.bias.shape) > 1 and self.bias.shape[-1] == 1
        super().quantize(mode, type_check=type_check and narrow, config=config)
