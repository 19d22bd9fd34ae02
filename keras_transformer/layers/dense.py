"""Dense layers: one product of two matrices each, also in a decoding step, and an exact bias."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.arguments import Tensor

BARRIER = ContextVar("BARRIER", default=None)


@contextmanager
def given_barrier(barrier: Any) -> Iterator[None]:
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


def optimization_barrier(tensor: Tensor) -> Tensor:
    """Passes `tensor` through the barrier, if there is one."""
    barrier = BARRIER.get()
    return tensor if barrier is None else barrier(tensor)


def flat_product(
    inputs: Tensor, kernel: Tensor, bias: Tensor | None, *, in_columns: bool = False
) -> Tensor:
    """The sum of `inputs` times `kernel` over their common axes, plus `bias`, as one product.

    Its gradient is then one product too. On TensorFlow the gradient of an einsum is a product for
    each sentence and a sum of these products. That of a `matmul` over three axes is too.

    Args:
        inputs: (batch, query, *read).
        kernel: (*read, *outputs), or with `in_columns` (*outputs, *read), of the same dtype.
        bias: the last axes of outputs, or None.
        in_columns: whether the kernel has outputs first, as the layout "columns" of an export.

    Returns:
        (batch, query, *outputs).
    """
    read = len(inputs.shape) - 2  # axes that the product sums over
    if in_columns:
        outputs_shape, read_shape = kernel.shape[:-read], kernel.shape[-read:]
    else:
        read_shape, outputs_shape = kernel.shape[:read], kernel.shape[read:]
    size = math.prod(read_shape)
    rows = ops.reshape(inputs, (-1, size))  # -> (batch * query, size)
    if in_columns:
        # kernel -> (outputs, size)
        outputs = columns_product(ops.reshape(kernel, (-1, size)), rows)
    else:
        matrix = optimization_barrier(ops.reshape(kernel, (size, -1)))  # -> (size, outputs)
        outputs = optimization_barrier(ops.matmul(rows, matrix))
    if bias is not None:
        outputs = plus_bias(outputs, ops.reshape(bias, (-1,)))  # bias -> (outputs,)
    # -> (batch, query, *outputs)
    return ops.reshape(outputs, (*ops.shape(inputs)[:2], *outputs_shape))


def columns_product(matrix: Tensor, rows: Tensor) -> Tensor:
    """`rows @ transpose(matrix)`, computed as `matrix @ transpose(rows)`.

    XLA reads the matrix of a product with few rows faster in this order on a processor without
    AVX-512, and on newer ones of Intel.

    Args:
        matrix: (outputs, inputs).
        rows: (rows, inputs), of the same dtype.
    """
    product = ops.matmul(optimization_barrier(matrix), ops.transpose(rows))
    return ops.transpose(optimization_barrier(product))


def add_fixed_weight(layer: keras.layers.Layer, name: str, values: np.ndarray) -> keras.Variable:
    """Adds a weight of these values that is not trained."""
    weight = layer.add_weight(values.shape, "zeros", values.dtype.name, trainable=False, name=name)
    weight.assign(values)
    return weight


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


class MatrixLayer(keras.layers.Layer):
    """The base of dense layers whose output can be one product of two matrices.

    A subclass is one of Keras's dense layers too, which holds the kernel and the bias.
    """

    in_columns = False  # see `put_in_columns`
    _kernel: keras.Variable  # Keras's attribute

    @property
    def num_read_axes(self) -> int:
        """Number of axes of the inputs that the product sums over."""
        return 1

    def step(self, inputs: Tensor) -> Tensor:
        """As `call` of (batch, query, ...), its product between barriers; see `given_barrier`."""
        return self(inputs) if self.quantization_mode is not None else self.multiply(inputs)

    def multiply(self, inputs: Tensor) -> Tensor:
        """As `call` of (batch, query, ...), by `flat_product`; a quantized layer cannot."""
        dtype = self.compute_dtype
        outputs = flat_product(
            ops.cast(inputs, dtype),
            ops.cast(self.kernel, dtype),
            None if self.bias is None else ops.cast(self.bias, dtype),
            in_columns=self.in_columns,
        )
        return outputs if self.activation is None else self.activation(outputs)

    def put_in_columns(self) -> None:
        """Stores the built kernel in columns, (outputs, inputs), from now on.

        For inference alone: this is the layout "columns" of an export.
        """
        kernel, read = ops.convert_to_numpy(self.kernel), self.num_read_axes
        order = (*range(read, kernel.ndim), *range(read))
        # As Keras does where it quantizes.
        self._tracker.unlock()
        del self._kernel
        self._kernel = add_fixed_weight(self, "kernel", kernel.transpose(order))
        self._tracker.lock()
        self.in_columns = True


class PositionwiseDense(MatrixLayer, keras.layers.Dense):
    """A `Dense` whose bias has a correct gradient in half precision; see `plus_bias`."""

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Returns the product with the bias added, activated."""
        if self.in_columns:
            return self.multiply(inputs)
        outputs = plus_bias(ops.matmul(inputs, self.kernel), self.bias)
        return outputs if self.activation is None else self.activation(outputs)

    def quantize(
        self, mode: Any = None, type_check: bool = True, config: dict[str, Any] | None = None
    ) -> None:
        """Quantizes as Keras quantizes its own class."""
        super().quantize(mode, type_check=False, config=config)


class Projection(MatrixLayer, keras.layers.EinsumDense):
    """An `EinsumDense` from and to the last axes; one product of two matrices on TensorFlow.

    The einsums of the other backends are such products already. Keras 3.15's `EinsumDense` adds its
    bias by `ops.add`. With as many positions as heads, `ops.add` takes a bias (heads, 1) for one
    along the length. So `plus_bias` adds the bias on all backends.
    """

    @property
    def num_read_axes(self) -> int:
        """Number of axes of the inputs that the product sums over."""
        inputs, kernel = self.equation.partition("->")[0].split(",")
        return len(set(inputs) & set(kernel))

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Returns the projection."""
        if keras.backend.backend() == "tensorflow" or self.in_columns:
            return self.multiply(inputs)
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
