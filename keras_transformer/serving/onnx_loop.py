"""A TensorFlow function as an ONNX graph: its operations, its calls, conditions and loops."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.serving.onnx_graph import GraphBuilder, Scope, Value
from keras_transformer.serving.onnx_operations import OPERATIONS, settled

if TYPE_CHECKING:
    from onnx import ModelProto

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
CONDITIONS = ("If", "StatelessIf")
LOOPS = ("While", "StatelessWhile")
# The position of a function's output among those of its operation, by its name in the function's
# text. Of all other operations the outputs have one name, and a number.
OUTPUT_NAMES = {"TopKV2": {"values": 0, "indices": 1}}


class Body(NamedTuple):
    """The operations of a graph or of a function in it."""

    nodes: Sequence[Any]
    arguments: list[str]
    results: list[str]


def convert_function(
    function: Any,
    outputs: Sequence[str],
    sizes: Mapping[str, Sequence[str]],
    copy_weights: bool = False,
) -> "ModelProto":
    """Returns a TensorFlow function as an ONNX model.

    Args:
        function: a concrete function of tensors, which returns tensors. Its variables become
            constants, each of them once.
        outputs: the names of what it returns.
        sizes: names for the axes of each input and output.
        copy_weights: whether a transposed weight is a weight of its own.

    Raises:
        ValueError: for an operation that has no counterpart here, or a loop whose variable has
            another rank or another known length after a round. Lengths that only a run of the
            model tells must stay the same too, which is not checked.
    """
    return Converter(function, copy_weights).model(outputs, sizes)


class Converter:
    """Converts one concrete function."""

    def __init__(self, function: Any, copy_weights: bool) -> None:
        self.function = function
        self.builder = GraphBuilder(copy_weights)
        self.graph = function.graph.as_graph_def(add_shapes=True)
        self.functions = {found.signature.name: found for found in self.graph.library.function}

    def model(self, outputs: Sequence[str], sizes: Mapping[str, Sequence[str]]) -> "ModelProto":
        """The ONNX model."""
        builder = self.builder
        variables = {id(variable.handle): variable for variable in self.function.variables}
        captured = self.function.captured_inputs
        inputs = self.function.inputs
        given = inputs[: len(inputs) - len(captured)]
        known: dict[str, Any] = {}
        arguments = []
        for tensor in given:
            name = tensor.name.split(":")[0]
            value = Value(name, 0, np.dtype(tensor.dtype.as_numpy_dtype), tuple(sizes[name]))
            arguments.append(value)
            known[f"{name}:0"] = value._replace(sizes=tuple(tensor.shape.as_list()))
        for tensor, outer in zip(inputs[len(given) :], captured, strict=True):
            if id(outer) in variables:
                variable = variables[id(outer)]
                known[tensor.name] = builder.constant(
                    variable.numpy(), name=variable.name.split(":")[0]
                )
            else:
                known[tensor.name] = builder.constant(outer.numpy())
        names = [tensor.name for tensor in self.function.outputs]
        body = Body(self.graph.node, list(known), names)
        results = []
        for name, value in zip(outputs, self._convert(body, list(known.values())), strict=True):
            builder.scopes[0].nodes.append(rename(value.name, name))
            results.append(value._replace(name=name, sizes=tuple(sizes[name])))
        return builder.model(arguments, results)

    def _body(self, name: str) -> Body:
        """A function of the graph's library."""
        found = self.functions[name]
        results = [found.ret[result.name] for result in found.signature.output_arg]
        arguments = [f"{argument.name}:0" for argument in found.signature.input_arg]
        return Body(found.node_def, arguments, results)

    def _convert(self, body: Body, arguments: Sequence[Any]) -> list[Value]:
        """The results of a body for arguments, each a value or a list of them."""
        known = dict(zip(body.arguments, arguments, strict=True))
        for node in in_order(body.nodes):
            if f"{node.name}:0" in known:
                continue  # an argument
            inputs = [known[tensor_name(name)] for name in node.input if name[0] != "^"]
            results = self._convert_node(node, inputs)
            shapes = node.attr["_output_shapes"].list.shape
            for index, value in enumerate(results):
                shape = shapes[index] if index < len(shapes) else None
                known[f"{node.name}:{index}"] = settled(value, shape)
            self._note_names(node, known)
        return [known[tensor_name(name)] for name in body.results]

    @staticmethod
    def _note_names(node: Any, known: dict[str, Any]) -> None:
        """Makes outputs known by the names that they have inside functions."""
        for name, index in OUTPUT_NAMES.get(node.op, {}).items():
            known[f"{node.name}:{name}:0"] = known[f"{node.name}:{index}"]

    def _convert_node(self, node: Any, inputs: list[Any]) -> list[Any]:
        if node.op in ("NoOp", "Placeholder"):
            return []
        if node.op in CALLS:
            return self._convert(self._body(node.attr["f"].func.name), inputs)
        if node.op in CONDITIONS:
            return self._convert_condition(node, *inputs)
        if node.op in LOOPS:
            return self._convert_loop(node, inputs)
        if node.op not in OPERATIONS:
            raise ValueError(
                "ONNX has no counterpart here of a TensorFlow operation of this model or search. "
                f"Received: {node.op}, {node.name}"
            )
        found = OPERATIONS[node.op](self.builder, node, *inputs)
        return found if isinstance(found, list) else [found]

    def _convert_condition(self, node: Any, chosen: Value, *inputs: Any) -> list[Value]:
        names = [node.attr[f"{branch}_branch"].func.name for branch in ("then", "else")]
        if chosen.number is not None:
            return self._convert(self._body(names[0 if chosen.number else 1]), inputs)
        builder = self.builder
        graphs, results = [], []
        for name in names:
            scope = Scope("branch")
            builder.scopes.append(scope)
            outputs = self._convert(self._body(name), inputs)
            outputs = [builder.made_here(value) for value in outputs]
            builder.scopes.pop()
            graphs.append(builder.graph(scope, builder.new_name("branch"), [], outputs))
            results.append(outputs)
        depth = len(builder.scopes) - 1
        joined = [
            one._replace(name=builder.new_name("if"), depth=depth, sizes=same_sizes(one, other))
            for one, other in zip(*results, strict=True)
        ]
        add_node(builder, "If", [chosen], joined, then_branch=graphs[0], else_branch=graphs[1])
        return joined

    def _convert_loop(self, node: Any, inputs: list[Any]) -> list[Any]:
        builder = self.builder
        condition, body = (self._body(node.attr[part].func.name) for part in ("cond", "body"))
        kept = unchanged(body)  # the arguments that are the same in each round
        start = self._convert(condition, inputs)[0]
        scope = Scope("loop")
        builder.scopes.append(scope)
        depth = len(builder.scopes) - 1
        arguments = [
            value if index in kept else add_variable(builder, value, depth)
            for index, value in enumerate(inputs)
        ]
        results = self._convert(body, arguments)
        check_shapes(node.name, arguments, results)
        end = self._convert(condition, results)[0]
        changing = [index for index in range(len(inputs)) if index not in kept]
        outputs = [builder.made_here(value) for value in [end, *(results[i] for i in changing)]]
        builder.scopes.pop()
        rounds = Value(builder.new_name("round"), depth, np.dtype("int64"))
        again = Value(builder.new_name("again"), depth, np.dtype("bool"))
        variables = [arguments[index] for index in changing]
        name = builder.new_name("body")
        graph = builder.graph(scope, name, [rounds, again, *variables], outputs)
        found = {
            index: arguments[index]._replace(name=builder.new_name("loop"), depth=depth - 1)
            for index in changing
        }
        no_limit = start._replace(name="")
        first = [no_limit, start, *(inputs[index] for index in changing)]
        add_node(builder, "Loop", first, list(found.values()), body=graph)
        return [found.get(index, value) for index, value in enumerate(inputs)]


def in_order(nodes: Sequence[Any]) -> list[Any]:
    """The nodes, each after those that make its inputs."""
    by_name = {node.name: node for node in nodes}
    ordered: list[Any] = []
    done: set[str] = set()
    for first in nodes:
        waiting = [first]
        while waiting:
            node = waiting[-1]
            makers = {name.lstrip("^").split(":")[0] for name in node.input}
            missing = [by_name[name] for name in makers if name in by_name and name not in done]
            if missing and node.name not in done:
                waiting.extend(missing)
                continue
            waiting.pop()
            if node.name not in done:
                done.add(node.name)
                ordered.append(node)
    return ordered


def tensor_name(name: str) -> str:
    """The name of a tensor as `Converter` knows it: an argument's, or "node:index"."""
    parts = name.split(":")
    if len(parts) == 1:
        return f"{name}:0"
    if len(parts) == 3 and not any(parts[1] in names for names in OUTPUT_NAMES.values()):
        return f"{parts[0]}:{parts[2]}"
    return name


def unchanged(body: Body) -> set[int]:
    """The arguments that a loop's body returns as they are."""
    passing = {
        node.name: node.input[0] for node in body.nodes if node.op == "Identity" and node.input
    }
    kept = set()
    for index, (argument, result) in enumerate(zip(body.arguments, body.results, strict=True)):
        while result.split(":")[0] in passing:
            result = passing[result.split(":")[0]]
        if tensor_name(result) == argument:
            kept.add(index)
    return kept


def add_variable(builder: GraphBuilder, first: Value, depth: int) -> Value:
    """A loop's variable that begins as `first`, whose shape it keeps."""
    name = builder.new_name("variable")
    return Value(
        name,
        depth,
        first.dtype,
        tuple(
            builder.size(first, axis) if size is None else size
            for axis, size in enumerate(first.sizes)
        ),
    )


def check_shapes(loop: str, before: Sequence[Value], after: Sequence[Value]) -> None:
    """Raises `ValueError` for a loop whose variable has another shape after a round."""
    for one, other in zip(before, after, strict=True):
        pairs = zip(one.sizes, other.sizes, strict=False)
        known = [pair for pair in pairs if all(isinstance(size, int) for size in pair)]
        if one.rank != other.rank or any(first != second for first, second in known):
            shapes = (
                tuple(size if isinstance(size, int) else None for size in value.sizes)
                for value in (one, other)
            )
            raise ValueError(
                "a variable of a loop must keep its shape from round to round. Received: "
                f"shapes {' and then '.join(map(str, shapes))} in {loop}"
            )


def same_sizes(one: Value, other: Value) -> tuple[Any, ...]:
    """The sizes that two values have in common."""
    pairs = zip(one.sizes, other.sizes, strict=True)
    return tuple(first if first == second else None for first, second in pairs)


def add_node(
    builder: GraphBuilder,
    kind: str,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    **graphs: Any,
) -> None:
    """Adds a node with graphs inside to the innermost graph."""
    from onnx import helper

    before, after = ([value.name for value in part] for part in (inputs, outputs))
    builder.scopes[-1].nodes.append(helper.make_node(kind, before, after, **graphs))


def rename(old: str, new: str) -> Any:
    """A node that gives a tensor another name."""
    from onnx import helper

    return helper.make_node("Identity", [old], [new])
