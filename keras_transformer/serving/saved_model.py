"""The directory of a SavedModel: how it is named, is read, and has its graph reduced."""

import os

import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

# What Keras and the tracing of shapes write many times: constants, sizes, and what is computed
# from them. None of them has a state or draws a random number.
# fmt: off
MERGED_OPERATIONS = (
    "Const", "Shape", "StridedSlice", "Pack", "Reshape",
    "ExpandDims", "Squeeze", "BroadcastTo", "Fill", "Range",
    "AddV2", "Sub", "Mul", "Neg", "FloorDiv", "FloorMod", "Maximum", "Minimum", "Prod", "Cast",
    "Equal", "NotEqual", "Less", "GreaterEqual", "LogicalAnd", "LogicalNot", "SelectV2",
    "ConcatV2", "GatherV2",
)
# fmt: on


def tensorflow_path(path: str | os.PathLike[str]) -> str:
    """Returns `path` as TensorFlow takes it.

    TensorFlow encodes names in UTF-8. This str then has the bytes that Python gives the file.
    """
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def saved_model_path(path: str | os.PathLike[str]) -> str:
    """Returns `path` as a str, or raises `ValueError` when it holds no SavedModel."""
    path = os.fspath(path)
    if not tf.saved_model.contains_saved_model(tensorflow_path(path)):
        raise ValueError(f"`path` must hold a SavedModel. Received: path={path!r}")
    return path


def read_saved_model(path: str | os.PathLike[str]) -> SavedModel:
    """Returns the protocol buffer of the SavedModel in `path`."""
    with open(os.path.join(saved_model_path(path), "saved_model.pb"), "rb") as file:
        return SavedModel.FromString(file.read())


def reduce_saved_model(path: str | os.PathLike[str]) -> None:
    """Merges the equal nodes of the SavedModel in `path`, so that it loads sooner.

    The names of gradients that are not saved are removed: a loader would warn of each. So is the
    fingerprint, because it is that of the graph before. No loader needs it.
    """
    saved = read_saved_model(path)
    graph = saved.meta_graphs[0].graph_def
    for function in graph.library.function:
        for node in function.node_def:
            node.attr.pop("_gradient_op_type", None)
    merge_equal_nodes(graph)
    with open(os.path.join(path, "saved_model.pb"), "wb") as file:
        file.write(saved.SerializeToString(deterministic=True))
    os.remove(os.path.join(path, "fingerprint.pb"))


def merge_equal_nodes(graph: GraphDef) -> None:
    """Merges, in each function of a graph, nodes of one operation, inputs and attributes.

    Half of the nodes of an export are constants and sizes that it has many times. Merged, the
    graph loads in two thirds of the time. What it computes stays the same to the bit.
    """
    for function in graph.library.function:
        merge_nodes(function)


def merge_nodes(function: FunctionDef) -> None:
    """Merges the equal nodes of one function."""
    kept: list[NodeDef] = []
    first: dict[tuple[object, ...], str] = {}  # of each meaning, the first node that has it
    stands_for: dict[str, str] = {}
    for node in function.node_def:
        rename_inputs(node, stands_for)
        name = node.name
        if node.op in MERGED_OPERATIONS:
            stands_for[name] = first.setdefault(meaning(node), name)
        if stands_for.get(name, name) == name:
            kept.append(node)
    for node in kept:  # again, for nodes that stand before their inputs
        rename_inputs(node, stands_for)
    kept = [type(node).FromString(node.SerializeToString()) for node in kept]
    del function.node_def[:]
    function.node_def.extend(kept)
    for name, output in function.ret.items():
        function.ret[name] = renamed(output, stands_for)
    for name, node in function.control_ret.items():
        function.control_ret[name] = stands_for.get(node, node)


def meaning(node: NodeDef) -> tuple[object, ...]:
    """Returns what a node computes: equal for two nodes exactly when all but their names are."""
    attributes = sorted((name, value.SerializeToString()) for name, value in node.attr.items())
    return node.op, node.device, tuple(node.input), tuple(attributes)


def rename_inputs(node: NodeDef, stands_for: dict[str, str]) -> None:
    """Makes `node` read from the nodes that stand for its inputs, and stand beside them."""
    node.input[:] = [renamed(name, stands_for) for name in node.input]
    if "_class" in node.attr:  # "loc:@node": on the device of that node
        places = [place.decode().split("@", 1) for place in node.attr["_class"].list.s]
        node.attr["_class"].list.s[:] = [
            f"{kind}@{stands_for.get(beside, beside)}".encode() for kind, beside in places
        ]


def renamed(reference: str, stands_for: dict[str, str]) -> str:
    """Returns `node:output:index` or `^node` with the name of the node that stands for it."""
    control = "^" if reference.startswith("^") else ""
    node, *rest = reference.removeprefix("^").split(":")
    return control + ":".join([stands_for.get(node, node), *rest])
