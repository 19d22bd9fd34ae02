"""What an exported translator has: its signatures, its size, and the operations it is made of."""

import json
import os

import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.serving.directories import saved_model_path
from keras_transformer.serving.operations import oldest_tensorflow_text, operations_of

EXTRA = "assets.extra"  # where a SavedModel keeps what is not of its graph
CARD = "model_card.json"


def describe_export(path):
    """Prints the signatures, texts, size and operations of a SavedModel, and what can run it.

    Args:
        path: the directory of the SavedModel.

    Returns:
        A dictionary: `signatures`, for each name its `inputs` and `outputs` as
        {name: "dtype[shape]"}; `texts`, what its model card says of them, or None without a card;
        `bytes`; `operations`, sorted names; `tensorflow_text`, the oldest version of TF Text that
        has them, or None when they are of TensorFlow alone.

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
        if found.inputs  # what TensorFlow adds to initialise has none
    }
    operations = operations_of(saved_model)
    size = sum(
        os.path.getsize(os.path.join(folder, file))
        for folder, _, files in os.walk(path)
        for file in files
    )
    oldest = oldest_tensorflow_text(operations)
    print(f"{os.fspath(path)}: {size / 2**20:.1f} MiB")
    for name, sides in signatures.items():
        print(name)
        for side, arrow in (("inputs", "->"), ("outputs", "<-")):
            for key, kind in sides[side].items():
                print(f"  {arrow} {key:<15} {kind}")
    texts = texts_of(path)
    for side in texts or ():
        print(f"{side}: {' '.join(texts[side])}")
    print(f"{len(operations)} operations: {', '.join(sorted(operations))}")
    written_by = f"TensorFlow {meta_graph.meta_info_def.tensorflow_version}"
    print(f"Written by {written_by}: runs with that or a later one", end="")
    print(f", and the TF Text of it (its operations exist since {oldest})." if oldest else ".")
    return {
        "signatures": signatures,
        "texts": texts,
        "bytes": size,
        "operations": sorted(operations),
        "tensorflow_text": oldest,
    }


def read_saved_model(path):
    """The protocol buffer of the SavedModel in `path`."""
    with open(os.path.join(saved_model_path(path), "saved_model.pb"), "rb") as file:
        return SavedModel.FromString(file.read())


def texts_of(path):
    """What the model card of an export says of its texts, None where there is no such card."""
    card = os.path.join(saved_model_path(path), EXTRA, CARD)
    if not os.path.exists(card):
        return None
    with open(card, encoding="utf-8") as file:
        return json.load(file).get("texts")


def described(info):
    """Type and shape of an input or output, such as "string[batch]"."""
    sizes = ["batch" if size.size == -1 else str(size.size) for size in info.tensor_shape.dim]
    sizes[1:] = ["any" if size == "batch" else size for size in sizes[1:]]
    return f"{tf.dtypes.as_dtype(info.dtype).name}[{', '.join(sizes)}]"


def how_to_call(path, signatures, batch=("A first sentence.", "Another.")):
    """Lines to call a server with: REST by curl, and gRPC by Python."""
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
