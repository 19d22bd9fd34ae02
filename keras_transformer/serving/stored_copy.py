"""A copy of a model for inference: in 8-bit integers, or with transposed matrices."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import keras
import numpy as np

from keras_transformer.layers import TokenEmbedding
from keras_transformer.layers.dense import PositionwiseDense, Projection, put_outputs_first
from keras_transformer.models import Transformer

LAYOUTS = ("rows", "columns")


def processor_layout() -> str:
    """The layout of matrices that suits this processor: "rows" or "columns".

    "rows" multiplies `inputs @ kernel`, and "columns" `transpose(kernel) @ transpose(inputs)` with
    a kernel that is stored transposed. A processor with AVX2 and without AVX-512 reads the kernels
    of products with few rows faster in columns. `python -m benchmarks.step_limits` times both.

    Example:

    >>> processor_layout() in ("rows", "columns")
    True
    """
    found = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[index]
    features = {*found["baseline"], *found["found"]}
    # NumPy names the groups of features from version 2.4 on: v3 has AVX2, v4 has AVX-512.
    has_avx2 = not features.isdisjoint({"AVX2", "X86_V3"})
    has_avx512 = not features.isdisjoint({"AVX512F", "X86_V4"})
    return "columns" if has_avx2 and not has_avx512 else "rows"


def stored_copy(model: keras.Model, quantize: str | None, layout: str) -> keras.Model:
    """Returns a copy of `model`, quantized or with outputs first; the model itself for neither."""
    if quantize is None and layout == "rows":
        return model
    copied = quantized_copy(model, quantize) if quantize else plain_copy(model)
    if layout == "columns":
        for layer in copied._flatten_layers():
            if isinstance(layer, (PositionwiseDense, Projection)):
                put_outputs_first(layer)
            elif isinstance(layer, TokenEmbedding):
                layer.put_outputs_first()
    return copied


def can_be_stored_otherwise(model: keras.Model) -> bool:
    """Whether a copy of `model` is sure to compute the same: a `Transformer` as it was made."""
    return type(model) is Transformer and not any(
        getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None)
        for layer in model._flatten_layers()
    )


def plain_copy(model: keras.Model) -> keras.Model:
    """Returns a copy of `model`."""
    copied = type(model).from_config(model.get_config())
    copied.build(None)
    if len(copied.weights) != len(model.weights):
        raise ValueError(
            "`layout` must be 'rows' for a model that is quantized already or has LoRA weights. "
            "Received: layout='columns'"
        )
    copied.set_weights(model.get_weights())
    return copied


def quantized_copy(model: keras.Model, mode: str) -> keras.Model:
    """Returns a copy of `model` whose matrices Keras has quantized."""
    # Keras quantizes layers that compute in float32, or else leaves some of the results in it.
    copied = type(model).from_config({**model.get_config(), "dtype": "float32"})
    copied.build(None)
    if len(copied.weights) != len(model.weights):
        raise ValueError(
            "`quantize` must be None for a model that is quantized already or has LoRA weights. "
            f"Received: quantize={mode!r}"
        )
    copied.set_weights(model.get_weights())
    with warnings.catch_warnings(), little_garbage():
        # Keras names each layer that has nothing to quantize.
        warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
        copied.quantize(mode)
    return copied


@contextmanager
def little_garbage() -> Iterator[None]:
    """Keeps the garbage collector from reading the objects that exist already.

    Keras collects garbage after each weight that it replaces. Each time it would read all objects
    of the process, which took most of the time of quantizing.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
