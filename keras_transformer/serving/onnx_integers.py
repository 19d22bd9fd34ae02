"""Weights of an ONNX model as 8-bit integers, by onnxruntime's dynamic quantization."""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def quantize_model(model: Any) -> Any:
    """Returns the model with the weights of its matrix products and tables as 8-bit integers.

    Each output of a matrix has a scale of its own, and a table of embeddings has one. Activations
    are rounded when the model runs. Weights go from -64 to 64: on a processor without VNNI
    instructions onnxruntime adds pairs of products in 16 bits, which larger ones would saturate.

    Raises:
        ImportError: without onnxruntime.
    """
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise ImportError("`quantization` needs onnxruntime: `pip install onnxruntime`") from error
    with tempfile.TemporaryDirectory() as folder:
        before, after = (os.path.join(folder, name) for name in ("before.onnx", "after.onnx"))
        onnx.save(model, before)
        with quiet_logging():
            quantize_dynamic(
                before,
                after,
                op_types_to_quantize=["MatMul", "Gather"],
                per_channel=True,
                reduce_range=True,
                weight_type=QuantType.QInt8,
                extra_options={"EnableSubgraph": True, "MatMulConstBOnly": True},
            )
        quantized = onnx.load(after)
    # The names of axes, which onnxruntime leaves out.
    del quantized.graph.output[:]
    quantized.graph.output.extend(model.graph.output)
    return quantized


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Keeps onnxruntime from advising a step that is not needed here.

    With a handler there, `logging.warning` does not give the process one that stays.
    """
    root, handler, disabled = (
        logging.getLogger(),
        logging.NullHandler(),
        logging.root.manager.disable,
    )
    root.addHandler(handler)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
        root.removeHandler(handler)
