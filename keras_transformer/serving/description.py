"""Describes an exported translator: its signatures, size and operations, and how to call it."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import TensorInfo

from keras_transformer.serving.model_card import read_card
from keras_transformer.serving.operations import list_operations, oldest_tensorflow_text
from keras_transformer.serving.saved_model import read_saved_model


def describe_export(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Prints signatures, texts, layout, size and operations of a SavedModel, and what can run it.

    Args:
        path: the directory of the SavedModel.

    Returns:
        A dictionary with
        `signatures`: for each name its `inputs` and `outputs` as {name: "dtype[shape]"};
        `texts`: what the model card says of them, or None without a card;
        `layout`: the layout of its matrices and the kind of processor that wrote it, as
        {"layout": "rows", "processor": "AVX-512"}, or None when no card says it;
        `quantization`: "int8", or None for matrices that are not quantized;
        `bytes`: the size of all files;
        `operations`: their names, sorted;
        `tensorflow_text`: the oldest version of TF Text that has them, or None when TensorFlow
        alone has them all.

    Raises:
        ValueError: when there is no SavedModel in `path`.

    Example:

    >>> describe_export("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: `path` must hold a SavedModel. Received: path='nowhere'
    """
    saved_model = read_saved_model(path)
    meta_graph = saved_model.meta_graphs[0]
    signatures = {
        name: {
            "inputs": {key: described(info) for key, info in sorted(found.inputs.items())},
            "outputs": {key: described(info) for key, info in sorted(found.outputs.items())},
        }
        for name, found in sorted(meta_graph.signature_def.items())
        if found.inputs  # one that TensorFlow adds to initialise has none
    }
    operations = list_operations(saved_model)
    size = count_bytes(path)
    oldest = oldest_tensorflow_text(operations)
    print(f"{os.fspath(path)}: {size / 2**20:.1f} MiB")
    for name, sides in signatures.items():
        print(name)
        for side, arrow in (("inputs", "->"), ("outputs", "<-")):
            for key, kind in sides[side].items():
                print(f"  {arrow} {key:<15} {kind}")
    card = read_card(path)
    texts, layout, quantization = map(card.get, ("texts", "layout", "quantization"))
    for side, sentences in (texts or {}).items():
        print(f"{side}: {' '.join(sentences)}")
    if layout:
        layout = {"layout": layout, "processor": card.get("processor")}
        matrices = f"Matrices of {quantization}" if quantization else "Matrices"
        written = "in {layout}, written on a processor of kind {processor}.".format(**layout)
        print(matrices, written)
    print(f"{len(operations)} operations: {', '.join(sorted(operations))}")
    written_by = f"TensorFlow {meta_graph.meta_info_def.tensorflow_version}"
    print(f"Written by {written_by}: runs with that or a later one", end="")
    print(f", and the TF Text of it (its operations exist since {oldest})." if oldest else ".")
    return {
        "signatures": signatures,
        "texts": texts,
        "layout": layout,
        "quantization": quantization,
        "bytes": size,
        "operations": sorted(operations),
        "tensorflow_text": oldest,
    }


def count_bytes(path: str | os.PathLike[str]) -> int:
    """Returns the bytes of all files in the directory `path`."""
    names = [
        os.path.join(folder, file)
        for folder, _, files in os.walk(os.fspath(path))
        for file in files
    ]
    return sum(map(os.path.getsize, names))


def described(info: TensorInfo) -> str:
    """Returns type and shape of an input or output, such as "string[batch]"."""
    sizes = ["batch" if size.size == -1 else str(size.size) for size in info.tensor_shape.dim]
    sizes[1:] = ["any" if size == "batch" else size for size in sizes[1:]]
    return f"{tf.dtypes.as_dtype(info.dtype).name}[{', '.join(sizes)}]"


def how_to_call(
    path: str | os.PathLike[str],
    signatures: Iterable[str],
    batch: Sequence[str] = ("A first sentence.", "Another."),
) -> str:
    """Returns lines that call a server: REST by curl, and gRPC by Python."""
    parent, version = os.path.split(os.path.abspath(os.fspath(path)))
    name = os.path.basename(parent) if version.isdigit() else version
    texts = ", ".join(f'"{text}"' for text in batch)
    url = f"http://localhost:8501/v1/models/{name}:predict"
    advice = "" if version.isdigit() else f"It serves numbered directories: export to {path}/1.\n"
    return f"""\
With TensorFlow Serving (REST on 8501, gRPC on 8500; names of all signatures: \
{", ".join(sorted(signatures))}):
{advice}\
  curl -d '{{"signature_name": "serving_default", "inputs": {{"text": [{texts}]}}}}' {url}

  import grpc, tensorflow as tf
  from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
  request = predict_pb2.PredictRequest()
  request.model_spec.name, request.model_spec.signature_name = "{name}", "serving_default"
  request.inputs["text"].CopyFrom(tf.make_tensor_proto([{texts}]))
  stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel("localhost:8500"))
  print([text.decode() for text in stub.Predict(request, 60.0).outputs["translation"].string_val])
"""
