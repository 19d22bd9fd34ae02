"""Copies of a model for inference: in float32, 8-bit integers, or with transposed matrices."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import keras

from keras_transformer.layers import TokenEmbedding
from keras_transformer.layers.dense import MatrixLayer
from keras_transformer.lora import has_lora, merge_lora
from keras_transformer.models import Transformer

# Columns pay where a step reads its weights from memory. Measured: of base (184 MiB) all batches
# gain on a processor for columns, of tiny (9 MiB) some lose a third.
LEAST_COLUMNS_BYTES = 2**25


def gains_by_columns(model: keras.Model) -> bool:
    """Whether columns are known to suit `model`: a large `Transformer` in float32, as made."""
    is_plain = type(model) is Transformer and model.compute_dtype == "float32"
    is_large = 4 * model.count_params() >= LEAST_COLUMNS_BYTES
    return is_plain and is_large and not is_quantized(model)


def is_quantized(model: keras.Model) -> bool:
    """Whether Keras has quantized a layer of the model."""
    return any(getattr(layer, "quantization_mode", None) for layer in model._flatten_layers())


def copy_model(model: keras.Model, **changes: str) -> keras.Model:
    """Returns a copy of `model`, changes of LoRA merged, with `changes` of its configuration."""
    copied = type(model).from_config({**model.get_config(), **changes})
    copied.build(None)
    copied.set_weights((merge_lora(model) if has_lora(model) else model).get_weights())
    return copied


def float32_model(model: keras.Model) -> keras.Model:
    """Returns `model`, or a copy in float32 of one with half precision or changes of LoRA."""
    is_half = model.compute_dtype in ("float16", "bfloat16") and not is_quantized(model)
    return copy_model(model, dtype="float32") if is_half or has_lora(model) else model


def columns_copy(model: keras.Model) -> keras.Model:
    """Returns a copy of `model` whose matrices have outputs first, for inference."""
    if is_quantized(model):
        raise ValueError(
            "`layout` must be 'rows' for a model that is quantized already. "
            "Received: layout='columns'"
        )
    copied = copy_model(model)
    with little_garbage():
        for layer in copied._flatten_layers():
            if isinstance(layer, (MatrixLayer, TokenEmbedding)):
                layer.put_in_columns()
    return copied


def quantized_copy(model: keras.Model, mode: str) -> keras.Model:
    """Returns a copy of `model` whose matrices Keras has quantized."""
    if is_quantized(model):
        raise ValueError(
            "`quantize` must be None for a model that is quantized already. "
            f"Received: quantize={mode!r}"
        )
    # Keras quantizes layers that compute in float32, or else leaves some of the results in it.
    copied = copy_model(model, dtype="float32")
    with warnings.catch_warnings(), little_garbage():
        # Keras names each layer that has nothing to quantize.
        warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
        copied.quantize(mode)
    return copied


@contextmanager
def little_garbage() -> Iterator[None]:
    """Keeps the garbage collector from reading the objects that exist already.

    Keras collects garbage after each weight that it replaces. Each time it would read all objects
    of the process, which took most of the time of quantizing and transposing.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
