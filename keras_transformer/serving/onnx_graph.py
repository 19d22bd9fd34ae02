"""An ONNX graph under construction: values, scopes, and nodes that are placed, shared and pruned.

Nodes are placed in the outermost graph that has all their inputs. So what a loop computes alike in
each round stands before the loop. Equal nodes are one node, and nodes of constants are constants.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

OPSET = 20
IR_VERSION = 10  # the newest that onnxruntime 1.18 and later read
DTYPES = ("bool", "float32", "int32", "int64")
LARGEST_FOLDED = 2**10  # elements; larger constants are weights, which the file holds once


class Value(NamedTuple):
    """A tensor of the graph.

    Attributes:
        name: its name, which no other tensor has.
        depth: the number of graphs around the one that makes it; 0 is the outermost.
        dtype: of NumPy.
        sizes: the length of each axis: a number, the scalar that holds it, or None.
        constant: its elements where the file holds them.
        parts: the scalars that it consists of, where it is a vector of known ones.
    """

    name: str
    depth: int
    dtype: np.dtype
    sizes: tuple[Any, ...] = ()
    constant: np.ndarray | None = None
    parts: tuple["Value", ...] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.sizes)

    @property
    def number(self) -> Any:
        """The number of a constant with one element; None for all else."""
        array = self.constant
        return array.item() if array is not None and array.size == 1 else None

    @property
    def as_size(self) -> Any:
        """A scalar as `sizes` has it: a number, itself, or None where it is to be found."""
        number = self.number
        if number is None:
            return self
        return None if number < 0 else int(number)

    def read_numbers(self, what: str) -> list[int]:
        """Returns the numbers of a constant, or raises `ValueError`."""
        if self.constant is None:
            raise ValueError(f"ONNX needs {what} that the graph does not compute. Received: {self}")
        return [int(number) for number in np.ravel(self.constant)]


def is_same_size(one: Any, other: Any) -> bool:
    """Whether two lengths of `Value.sizes` are known to be the same."""
    if isinstance(one, Value) and isinstance(other, Value):
        return one.name == other.name
    return one is not None and isinstance(one, int) and isinstance(other, int) and one == other


class Scope:
    """The nodes of one graph: the outermost, the body of a loop, or a branch of a condition."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # "main", "loop" or "branch"
        self.nodes: list[NodeProto] = []
        self.known: dict[Any, list[str]] = {}  # node without its outputs' names -> those names


class GraphBuilder:
    """Makes the nodes of an ONNX graph and of the graphs inside it.

    Args:
        copy_weights: whether a transposed weight is a weight of its own. Otherwise the file holds a
            table once that is transposed for some of its readers, and a runtime transposes it.
    """

    def __init__(self, copy_weights: bool = False) -> None:
        # What a node makes of a weight of any size is a weight.
        self._free = {"Reshape", "Transpose"} if copy_weights else {"Reshape"}
        self.scopes = [Scope("main")]
        self.initializers: dict[str, np.ndarray] = {}
        # The operation and the inputs of each node, by the name of its first output.
        self.makers: dict[str, tuple[str, Sequence[Value]]] = {}
        self._constants: dict[Any, Value] = {}
        self._count = 0

    def new_name(self, base: str) -> str:
        """A name that no tensor has."""
        self._count += 1
        return f"{base}_{self._count}"

    def constant(self, array: Any, dtype: Any = None, name: str = "constant") -> Value:
        """A constant; equal ones are the same."""
        array = np.asarray(array, dtype)
        key = array.dtype, array.shape, hashlib.sha256(array.tobytes()).digest()
        if key not in self._constants:
            name = self.new_name(name)
            self.initializers[name] = array
            self._constants[key] = Value(name, 0, array.dtype, array.shape, array)
        return self._constants[key]

    def add(
        self,
        kind: str,
        inputs: Sequence[Value],
        dtype: Any = None,
        sizes: Sequence[Any] | None = None,
        **attributes: Any,
    ) -> Value:
        """The output of a node of the operation `kind`; its dtype is that of the first input."""
        return self.add_many(kind, inputs, [(dtype, sizes)], **attributes)[0]

    def add_many(
        self,
        kind: str,
        inputs: Sequence[Value],
        outputs: Sequence[tuple[Any, Sequence[Any] | None]],
        **attributes: Any,
    ) -> list[Value]:
        """The outputs of a node; each of `outputs` is a dtype and sizes, perhaps None."""
        from onnx import helper

        dtypes = [np.dtype(inputs[0].dtype if dtype is None else dtype) for dtype, _ in outputs]
        if all(value.constant is not None for value in inputs):
            folded = self._fold(kind, inputs, attributes)
            if folded is not None:
                pairs = zip(folded, dtypes, strict=True)
                return [self.constant(array, dtype) for array, dtype in pairs]
        depth = self._place(max((value.depth for value in inputs), default=0))
        known = self.scopes[depth].known
        names = [value.name for value in inputs]
        key = kind, tuple(names), len(outputs), repr(sorted(attributes.items()))
        if key not in known:
            known[key] = [self.new_name(kind.lower()) for _ in outputs]
            self.scopes[depth].nodes.append(helper.make_node(kind, names, known[key], **attributes))
            self.makers[known[key][0]] = kind, inputs
        return [
            Value(name, depth, dtype, tuple(sizes or ()))
            for name, dtype, (_, sizes) in zip(known[key], dtypes, outputs, strict=True)
        ]

    def _place(self, depth: int) -> int:
        # Out of loops, and of branches in a loop, but not of branches outside of all loops.
        while depth + 1 < len(self.scopes) and self.scopes[depth + 1].kind == "branch":
            depth += 1
        return depth

    def _fold(
        self, kind: str, inputs: Sequence[Value], attributes: dict[str, Any]
    ) -> list[np.ndarray] | None:
        """What a node makes of constants, or None where it makes too much for the file."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        arrays: dict[str, Any] = {value.name: value.constant for value in inputs}
        limit = math.inf if kind in self._free else LARGEST_FOLDED
        if sum(array.size for array in arrays.values()) > limit:
            return None
        count = attributes.get("num_outputs", 2 if kind == "TopK" else 1)
        names = [f"output_{index}" for index in range(count)]
        node = helper.make_node(kind, [value.name for value in inputs], names, **attributes)
        found = ReferenceEvaluator(node).run(None, arrays)
        few = sum(np.size(array) for array in found) <= limit
        return [np.asarray(array) for array in found] if few else None

    def size(self, value: Value, axis: int) -> Value:
        """The length of an axis, an int32 scalar."""
        known = value.sizes[axis]
        if isinstance(known, Value):
            return known
        if known is not None:
            return self.constant(known, "int32")
        shape = self.add("Shape", [value], "int64", (value.rank,))
        return self.cast(self.add("Gather", [shape, self.constant(axis, "int64")]), "int32")

    def vector(self, parts: Sequence[Value], dtype: str = "int64") -> Value:
        """A vector of int32 scalars."""
        if all(part.constant is not None for part in parts):
            return self.constant([part.constant for part in parts], dtype)
        zero = self.constant([0], "int64")
        rows = [self.add("Unsqueeze", [part, zero], sizes=(1,)) for part in parts]
        joined = rows[0] if len(rows) == 1 else self.add("Concat", rows, axis=0)
        return self.cast(joined._replace(sizes=(len(parts),)), dtype)

    def shape(self, value: Value) -> Value:
        """The shape, int64 (rank,)."""
        return self.vector([self.size(value, axis) for axis in range(value.rank)])

    def parts(self, vector: Value) -> list[Value]:
        """The int32 scalars of a vector."""
        if vector.parts is not None:
            return list(vector.parts)
        if vector.constant is not None:
            return [self.constant(number, "int32") for number in vector.constant]
        length = vector.sizes[0]
        if not isinstance(length, int):
            raise ValueError(f"a vector must have a known length. Received: {vector.name}")
        indices = [self.constant(index, "int64") for index in range(length)]
        return [self.cast(self.add("Gather", [vector, index]), "int32") for index in indices]

    def axes(self, numbers: Sequence[int]) -> Value:
        """A constant vector of axes."""
        return self.constant(list(numbers), "int64")

    def cast(self, value: Value, dtype: Any) -> Value:
        """The value as another dtype."""
        from onnx import helper

        dtype = np.dtype(dtype)
        if dtype.name not in DTYPES:
            raise ValueError(
                "a model must compute in float32 to become an ONNX file, which runtimes run in no "
                f"other precision everywhere. Received: an operation of {dtype.name}"
            )
        if value.dtype == dtype:
            return value
        if value.constant is not None and value.constant.size <= LARGEST_FOLDED:
            return self.constant(value.constant.astype(dtype))
        to = helper.np_dtype_to_tensor_dtype(dtype)
        return self.add("Cast", [value], dtype, value.sizes, to=to)

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        """The value with its axes in another order."""
        if list(order) == list(range(value.rank)):
            return value
        sizes = [value.sizes[axis] for axis in order]
        return self.add("Transpose", [value], None, sizes, perm=list(order))

    def expand(self, value: Value, parts: Sequence[Value]) -> Value:
        """The value repeated to a shape of int32 scalars."""
        sizes = [part.as_size for part in parts]
        if len(sizes) == value.rank and all(map(is_same_size, sizes, value.sizes)):
            return value
        return self.add("Expand", [value, self.vector(parts)], None, sizes)

    def made_here(self, value: Value) -> Value:
        """The value as an output of the innermost graph, which makes it itself."""
        from onnx import helper

        name = self.new_name("result")
        self.scopes[-1].nodes.append(helper.make_node("Identity", [value.name], [name]))
        return value._replace(name=name, depth=len(self.scopes) - 1, constant=None, parts=None)

    def graph(
        self, scope: Scope, name: str, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> "GraphProto":
        """The graph of a scope, which is inside another."""
        from onnx import helper

        before, after = ([tensor_info(value) for value in part] for part in (inputs, outputs))
        return helper.make_graph(scope.nodes, name, before, after)

    def model(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> "ModelProto":
        """The model, without the nodes and constants that nothing needs."""
        from onnx import checker, helper, numpy_helper

        graph = self.graph(self.scopes[0], "translator", inputs, outputs)
        needed = prune(graph)
        graph.initializer.extend(
            numpy_helper.from_array(array, name)
            for name, array in self.initializers.items()
            if name in needed
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
        checker.check_model(model)
        return model


def tensor_info(value: Value) -> Any:
    """What ONNX says of an input or output."""
    from onnx import helper

    shape = [size if isinstance(size, (int, str)) else None for size in value.sizes]
    return helper.make_tensor_value_info(
        value.name, helper.np_dtype_to_tensor_dtype(value.dtype), shape
    )


def subgraphs(node: "NodeProto") -> list["GraphProto"]:
    """The graphs inside a node."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def prune(graph: "GraphProto") -> set[str]:
    """Takes out the nodes whose outputs nothing needs; returns the names that are needed.

    Of a loop, it takes out the variables that only serve themselves, too.
    """
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if not needed.intersection(node.output):
            continue
        if node.op_type == "Loop":
            _prune_loop(node, needed)
        needed.update(name for name in node.input if name)
        for inner in subgraphs(node):
            needed |= prune(inner)
        kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    return needed


def _prune_loop(node: "NodeProto", needed: set[str]) -> None:
    """Takes out of a loop the variables that neither its condition nor `needed` depends on."""
    from onnx import GraphProto

    (body,) = subgraphs(node)
    # Inputs of the node are (trip count, condition, variables); of the body (round, condition,
    # variables). Outputs of the node are (variables), of the body (condition, variables).
    live = {index for index, name in enumerate(node.output) if name in needed}
    while True:
        trial = GraphProto()
        trial.CopyFrom(body)
        del trial.output[:]
        trial.output.append(body.output[0])
        trial.output.extend(body.output[1 + index] for index in sorted(live))
        used = prune(trial)
        more = {index for index in range(len(node.output)) if body.input[2 + index].name in used}
        if more <= live:
            break
        live |= more
    for index in sorted(set(range(len(node.output))) - live, reverse=True):
        del node.output[index], node.input[2 + index]
        del body.output[1 + index], body.input[2 + index]
