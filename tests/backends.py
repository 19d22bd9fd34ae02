"""What the tests ask of any backend: arrays, masks, gradients, and the ways a user runs a layer."""

import os

import keras
import numpy as np
import pytest
from keras import ops

BACKEND = keras.backend.backend()
POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
WAYS = ("eager", "compiled", "functional", "reloaded")

on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="only on TensorFlow")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="only on JAX")
# A compiled loop runs its body's Python code once, so only an eager one can be counted in Python.
runs_loops_eagerly = pytest.mark.skipif(BACKEND == "jax", reason="JAX compiles every loop")


def quick_compilation(folder):
    """Environment of processes on JAX: less optimized programs, each compiled once and kept."""
    return {
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
        " --xla_cpu_use_fusion_emitters=false",
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def array(tensor):
    """Gives a tensor of any backend and floating dtype as a NumPy array."""
    if "float" in keras.backend.standardize_dtype(tensor.dtype):
        tensor = ops.cast(tensor, "float32")
    return ops.convert_to_numpy(tensor)


def arrays(tensors):
    return keras.tree.map_structure(lambda x: None if x is None else array(x), tensors)


def normal(seed, *shape, scale=1.0):
    """Gives fixed float32 noise of this shape."""
    return np.random.default_rng(seed).normal(scale=scale, size=shape).astype("float32")


def randomise(layer, seed=0, scale=0.3):
    """Gives every weight, biases and norms too, a value as if it had been trained."""
    random = np.random.default_rng(seed)
    layer.set_weights(
        [random.normal(scale=scale, size=weight.shape) for weight in layer.get_weights()]
    )
    return layer


@keras.saving.register_keras_serializable(package="tests")
class WithMask(keras.layers.Layer):
    """Gives a copy of a tensor a Keras mask, as a layer of the user's own would."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        return inputs * 1


@keras.saving.register_keras_serializable(package="tests")
class MaskOf(keras.layers.Layer):
    """Gives the mask that Keras hands to whatever reads this tensor next."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            raise LookupError("the tensor has no mask")
        return ops.logical_and(mask, True)

    def compute_mask(self, inputs, previous_mask=None):
        return None

    def compute_output_spec(self, inputs, mask=None):
        return keras.KerasTensor(inputs.shape[:2], "bool")  # read when the model runs


def with_mask(tensor, mask):
    return WithMask(dtype=tensor.dtype)(tensor, mask=mask)


def mask_of(tensor):
    return MaskOf(dtype=tensor.dtype)(tensor)


def has_mask(tensor):
    try:
        mask_of(tensor)
    except LookupError:
        return False
    return True


def open_shape(example):
    """Leaves batch and length open, and every axis of a mask."""
    kept = 3 if example.dtype == bool else 2
    return (None,) * min(kept, example.ndim) + example.shape[kept:]


def prepared(way, function, examples, folder):
    """Makes `function`, of tensors, a function of arrays that runs in one of the `WAYS`."""
    if way == "eager":
        return lambda *inputs: arrays(function(*map(ops.convert_to_tensor, inputs)))
    inputs = [keras.Input(open_shape(x)[1:], dtype=x.dtype.name) for x in examples]
    model = keras.Model(inputs, function(*inputs))
    if way == "compiled":
        run = compiled(function, examples)
        return lambda *inputs: arrays(run(*inputs))
    if way == "reloaded":
        path = os.path.join(folder, "model.keras")
        model.save(path)
        model = keras.models.load_model(path)
    return lambda *inputs: arrays(model(list(inputs)))


def compiled(function, examples):
    """Compiles once for any batch and length where the backend can; torch is eager by nature."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        signature = [tf.TensorSpec(open_shape(x), x.dtype) for x in examples]
        # AutoGraph would rewrite each function of the package: four times the time of a trace.
        return tf.function(function, input_signature=signature, autograph=False)
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    return lambda *inputs: function(*map(ops.convert_to_tensor, inputs))


def gradients(function, inputs, layer=None):
    """Differentiates the scalar `function(*inputs)`: by each input, and by the layer's weights."""
    variables = [] if layer is None else layer.trainable_variables
    find = {"tensorflow": _tensorflow_gradients, "jax": _jax_gradients, "torch": _torch_gradients}
    found = [array(gradient) for gradient in find[BACKEND](function, inputs, variables)]
    return found[: len(inputs)], found[len(inputs) :]


def _tensorflow_gradients(function, inputs, variables):
    import tensorflow as tf

    tensors = [tf.convert_to_tensor(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = function(*tensors)
    sources = tensors + [variable.value for variable in variables]
    found = tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return [tf.convert_to_tensor(gradient) for gradient in found]


def _jax_gradients(function, inputs, variables):
    import jax

    def loss(tensors, values):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*tensors)

    tensors = [ops.convert_to_tensor(x) for x in inputs]
    by_input, by_variable = jax.jit(jax.grad(loss, (0, 1)))(tensors, [v.value for v in variables])
    return [*by_input, *by_variable]


def _torch_gradients(function, inputs, variables):
    import torch

    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    sources = tensors + [variable.value for variable in variables]
    found = torch.autograd.grad(function(*tensors), sources, allow_unused=True)
    return [
        torch.zeros_like(source) if gradient is None else gradient
        for source, gradient in zip(sources, found, strict=True)
    ]
