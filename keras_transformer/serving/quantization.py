"""A copy of a model with 8-bit weights, by Keras's own quantization."""

import gc
import warnings
from contextlib import contextmanager


def quantized_copy(model, mode):
    """A copy of `model` with the weights of its products quantized by Keras."""
    # Keras quantizes layers that compute in float32, or else leaves some of the results in it.
    copy = type(model).from_config({**model.get_config(), "dtype": "float32"})
    copy.build(None)
    if len(copy.weights) != len(model.weights):
        raise ValueError(
            "`quantize` must be None for a model that is quantized already or has LoRA weights. "
            f"Received: quantize={mode!r}"
        )
    copy.set_weights(model.get_weights())
    with warnings.catch_warnings(), little_garbage():
        # Keras names each layer that has nothing to quantize.
        warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
        copy.quantize(mode)
    return copy


@contextmanager
def little_garbage():
    """Within it, collecting garbage looks at nothing that was there before.

    Keras collects it once for each weight that it replaces, and each time reads all objects of the
    process: that was most of the time of quantizing.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
