"""Leaves one of the nodes of a graph that compute the same, so that the graph loads sooner."""

# What Keras and the tracing of shapes write many times: constants, sizes, and what is made of
# them. None of them has a state or draws a random number.
# fmt: off
MERGED_OPERATIONS = (
    "Const", "Shape", "StridedSlice", "Pack", "Reshape",
    "ExpandDims", "Squeeze", "BroadcastTo", "Fill", "Range",
    "AddV2", "Sub", "Mul", "Neg", "FloorDiv", "FloorMod", "Maximum", "Minimum", "Prod", "Cast",
    "Equal", "NotEqual", "Less", "GreaterEqual", "LogicalAnd", "LogicalNot", "SelectV2",
    "ConcatV2", "GatherV2",
)
# fmt: on


def merge_equal_nodes(graph):
    """Merges, in each function of a `GraphDef`, nodes of one operation, inputs and attributes.

    Half of the nodes of an export are constants and sizes that it has many times. A graph with
    as few as it needs loads in two thirds of the time; what it computes stays the same to the bit.
    """
    for function in graph.library.function:
        merge_nodes_of(function)


def merge_nodes_of(function):
    """Merges the equal nodes of one `FunctionDef`."""
    kept, first, stands_for = [], {}, {}
    for node in function.node_def:
        rename_inputs(node, stands_for)
        name = node.name
        if node.op in MERGED_OPERATIONS:
            stands_for[name] = first.setdefault(meaning(node), name)
        if stands_for.get(name, name) == name:
            kept.append(node)
    for node in kept:  # of those that stand before what they read
        rename_inputs(node, stands_for)
    kept = [type(node).FromString(node.SerializeToString()) for node in kept]
    del function.node_def[:]
    function.node_def.extend(kept)
    for name, output in function.ret.items():
        function.ret[name] = renamed(output, stands_for)
    for name, node in function.control_ret.items():
        function.control_ret[name] = stands_for.get(node, node)


def meaning(node):
    """What a node computes: equal for two nodes exactly when all but their names are."""
    attributes = sorted((name, value.SerializeToString()) for name, value in node.attr.items())
    return node.op, node.device, tuple(node.input), tuple(attributes)


def rename_inputs(node, stands_for):
    """Lets `node` read from the nodes that stand for its inputs, and stand beside them."""
    node.input[:] = [renamed(name, stands_for) for name in node.input]
    if "_class" in node.attr:  # "loc:@node": on the device of that node
        places = [place.decode().split("@", 1) for place in node.attr["_class"].list.s]
        node.attr["_class"].list.s[:] = [
            f"{kind}@{stands_for.get(beside, beside)}".encode() for kind, beside in places
        ]


def renamed(reference, stands_for):
    """`node:output:index` or `^node` with the name of the node that stands for it."""
    control = "^" if reference.startswith("^") else ""
    node, *rest = reference.removeprefix("^").split(":")
    return control + ":".join([stands_for.get(node, node), *rest])
