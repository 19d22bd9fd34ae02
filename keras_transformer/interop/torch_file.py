"""Reads what PyTorch's weight file, `pytorch_model.bin`, says of its tensors, without PyTorch.

The file is a zip: a pickle that describes the tensors, and a member of bytes for each storage. A
pickle is a program, which may call anything. It is never run: its instructions are read, and those
that build dictionaries, numbers, strings and tensors are understood. Any other is refused.
"""

import dataclasses
import io
import math
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from keras_transformer.interop.files import shown
from keras_transformer.interop.stored_zip import member_bytes, stored_members
from keras_transformer.interop.tensor_file import (
    BFLOAT16,
    StoredTensor,
    checked_name,
    checked_shape,
)

MAX_PICKLE = 8 * 2**20  # bytes: some 60,000 tensors
STORAGES = {
    "torch BFloat16Storage": BFLOAT16,
    "torch BoolStorage": np.dtype("?"),
    "torch ByteStorage": np.dtype("u1"),
    "torch CharStorage": np.dtype("i1"),
    "torch DoubleStorage": np.dtype("<f8"),
    "torch FloatStorage": np.dtype("<f4"),
    "torch HalfStorage": np.dtype("<f2"),
    "torch IntStorage": np.dtype("<i4"),
    "torch LongStorage": np.dtype("<i8"),
    "torch ShortStorage": np.dtype("<i2"),
}


class Storage(NamedTuple):
    """What a pickle says of the bytes of one or more tensors.

    Attributes:
        key: its name.
        dtype: of its elements.
        size: how many elements it has.
        part: the first element that its tensors may have, and how many they may; all of them but
            in the files of the first versions.
    """

    key: str
    dtype: np.dtype
    size: int
    part: tuple[int, int]


class TorchTensor(NamedTuple):
    """What a pickle says of a tensor: a view of a storage."""

    storage: Storage
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def torch_zip(path: Path) -> dict[str, StoredTensor]:
    """Returns the tensors of a `pytorch_model.bin`.

    Raises:
        ValueError: when the file holds more than a dictionary of tensors, wants to run anything,
            or is damaged.
    """
    members = stored_members(path)
    pickles = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ValueError(
            f"a file of PyTorch must have one member */data.pkl. Received: {shown([*members])}"
        )
    root = pickles[0].removesuffix("data.pkl")
    order = members.get(f"{root}byteorder")
    if order is not None and member_bytes(path, order, 16) != b"little":
        raise ValueError("the byteorder must be little. Received: another")
    program = io.BytesIO(member_bytes(path, members[pickles[0]], MAX_PICKLE))
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in checked_tensors(described_by(program)).items():
        member = members.get(f"{root}data/{tensor.storage.key}")
        place = None if member is None else (member.offset, member.size)
        stored = stored_tensor(path, name, tensor, place)
        if member is not None and stored.num_bytes == member.size:
            stored = dataclasses.replace(stored, checksum=(0, member.crc32))
        tensors[name] = stored
    return tensors


def checked_tensors(found: Any) -> dict[str, TorchTensor]:
    """Returns what the pickle of a file describes, or raises `ValueError` unless it is tensors."""
    if not isinstance(found, dict):
        raise ValueError(f"a file of weights must hold a dictionary. Received: {shown(found)}")
    tensors: dict[str, TorchTensor] = {}
    for name, value in found.items():
        checked_name(name, tensors)
        if not isinstance(value, TorchTensor):
            raise ValueError(
                f"a file of weights must hold tensors only. Received: {shown(name)}: {shown(value)}"
            )
        tensors[name] = value
    return tensors


def stored_tensor(
    path: Path, name: str, tensor: TorchTensor, place: tuple[int, int] | None
) -> StoredTensor:
    """Returns where a tensor lies in a file.

    Args:
        path: of the file.
        name: that of the tensor.
        tensor: what the pickle says of it.
        place: where its storage begins, and how many bytes it has; None where there is none.

    Raises:
        ValueError: when the storage has another size, or the tensor is not inside of it.
    """
    storage, item = tensor.storage, tensor.storage.dtype.itemsize
    if place is None or place[1] != storage.size * item:
        found = "none" if place is None else f"{place[1]} bytes"
        raise ValueError(
            f"the storage {shown(storage.key)} of {shown(name)} must have "
            f"{storage.size * item} bytes. Received: {found}"
        )
    begin, length = storage.part
    shape = checked_shape(name, tensor.shape)
    steps = [1 if n == 1 else step for n, step in zip(shape, tensor.strides, strict=False)]
    rows = [1 if n == 1 else math.prod(shape[axis + 1 :]) for axis, n in enumerate(shape)]
    strides = None if steps == rows or not all(shape) else tuple(steps)
    offset = place[0] + (begin + tensor.start) * item
    stored = StoredTensor(path, offset, shape, storage.dtype, strides)
    # A stride of 0 would repeat an element: a few bytes could claim a tensor of any size.
    if (
        len(shape) != len(tensor.strides)
        or tensor.start * item + stored.num_bytes > length * item
        or stored.size > length
    ):
        raise ValueError(
            f"{shown(name)} must be inside its storage of {length} elements. Received: "
            f"start={tensor.start}, shape={shape}, strides={shown(tensor.strides)}"
        )
    return stored


class Called(NamedTuple):
    """What a pickle names, to call it: a module and a name, with a space between."""

    name: str


def described_by(program: BinaryIO) -> Any:
    """Returns what the instructions of a pickle describe, without running anything.

    Args:
        program: where the pickle begins. Afterwards it is where the pickle ends.

    Returns:
        Dictionaries, lists, tuples, strings, numbers, `Storage` and `TorchTensor`.

    Raises:
        ValueError: with the name of what the pickle wants to call, or of an instruction that has
            no place in a file of weights.
    """
    reader = _PickleReader()
    try:
        for name, argument in _instructions(program):
            if name == "STOP":
                return reader.stack.pop()
            reader.follow(name, argument)
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            "the pickle must be whole. "
            f"Received: {type(error).__name__} after {program.tell()} bytes"
        ) from None
    raise ValueError(f"the pickle must be whole. Received: no end in {program.tell()} bytes")


def _instructions(program: BinaryIO) -> Iterator[tuple[str, Any]]:
    try:
        for opcode, argument, _ in pickletools.genops(program):
            yield opcode.name, argument
    except (ValueError, DeprecationWarning) as error:  # where a user makes warnings errors
        # Python's message may hold megabytes of a damaged number.
        raise ValueError(f"the pickle must be whole. Received: {error!s:.200}") from None


class _PickleReader:
    """The stack of a pickle, its memo, and what the instructions that it may hold do to them."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def follow(self, instruction: str, argument: Any) -> None:
        """Follows one instruction."""
        stack = self.stack
        match instruction:
            case "PROTO" | "FRAME":
                pass
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[instruction])
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT":
                stack.append(argument)
            case "BINUNICODE" | "SHORT_BINUNICODE":
                stack.append(argument)
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "MARK":
                self.marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(self._behind_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(instruction[-1])
                values = tuple(self._pop() for _ in range(size))
                stack.append(values[::-1])
            case "APPEND":
                self._extend([self._pop()])
            case "APPENDS":
                self._extend(self._behind_mark())
            case "SETITEM":
                value, key = self._pop(), self._pop()
                self._set([key, value])
            case "SETITEMS":
                self._set(self._behind_mark())
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "GLOBAL":
                stack.append(checked_call(argument))
            case "STACK_GLOBAL":
                name, module = self._pop(), self._pop()
                stack.append(checked_call(f"{checked_text(module)} {checked_text(name)}"))
            case "BINPERSID":
                stack.append(_storage(self._pop()))
            case "REDUCE":
                arguments, called = self._pop(), self._pop()
                stack.append(_made_by(called, arguments))
            case "BUILD":
                self._pop()  # the versions of modules, beside the tensors
                if not isinstance(stack[-1], dict):
                    raise ValueError(
                        f"only a dictionary may be set up. Received: {shown(stack[-1])}"
                    )
            case _:
                raise ValueError(
                    "the pickle must describe tensors only. "
                    f"Received: the instruction {instruction}"
                )

    def _pop(self) -> Any:
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise IndexError("a mark")
        return self.stack.pop()

    def _behind_mark(self) -> list[Any]:
        begin = self.marks.pop()
        values = self.stack[begin:]
        del self.stack[begin:]
        return values

    def _extend(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise TypeError("no list")
        self.stack[-1].extend(values)

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(target, dict) or not isinstance(key, str) or key in target:
                raise ValueError(f"a dictionary must have each name once. Received: {shown(key)}")
            target[key] = value


def checked_text(value: Any) -> str:
    """Returns a text, or raises `ValueError`: a tuple in tuples could be written without end."""
    if not isinstance(value, str):
        raise ValueError(
            f"what a pickle calls must have a text as its name. Received: {shown(value)}"
        )
    return value


def checked_call(name: str) -> Called:
    """Returns what a pickle wants to call, or raises `ValueError` when it makes no tensor."""
    if name not in STORAGES and name not in _MAKERS:
        raise ValueError(
            "the file must not call anything that makes no tensor. "
            f"Received: it wants {shown('.'.join(name.split(' ')))}"
        )
    return Called(name)


def _made_by(called: Any, arguments: Any) -> Any:
    if not isinstance(called, Called) or called.name not in _MAKERS:
        raise ValueError(f"the file must call what makes tensors only. Received: {shown(called)}")
    return _MAKERS[called.name](*arguments)


def _storage(value: Any) -> Storage:
    match value:
        case ("storage", Called(name), str(key), str(), int(size), *part) if (
            name in STORAGES and size >= 0
        ):
            begin, length = 0, size
            match part:
                case [] | [None]:
                    pass
                case [(str(), int(begin), int(length))]:  # behind a key of its own
                    pass
                case _:
                    length = -1
            if begin >= 0 and 0 <= length <= size - begin:
                return Storage(key, STORAGES[name], size, (begin, length))
    raise ValueError(f"a storage must have a type, a key and a size. Received: {shown(value)}")


def _tensor(storage: Any, start: Any, shape: Any, strides: Any, *_: Any) -> TorchTensor:
    lists = [shape, strides]
    sizes = [start, *(n for values in lists if isinstance(values, tuple) for n in values)]
    if (
        not isinstance(storage, Storage)
        or not all(isinstance(values, tuple) for values in lists)
        or not all(type(n) is int and 0 <= n < 2**62 for n in sizes)
    ):
        raise ValueError(
            "a tensor must have a storage, a start, a shape and strides. "
            f"Received: {shown((storage, start, shape, strides))}"
        )
    return TorchTensor(storage, start, shape, strides)


def _parameter(tensor: Any, *_: Any) -> TorchTensor:
    if not isinstance(tensor, TorchTensor):
        raise ValueError(f"a parameter must be a tensor. Received: {shown(tensor)}")
    return tensor


def _dictionary() -> dict[str, Any]:
    return {}


_MAKERS: dict[str, Any] = {
    "collections OrderedDict": _dictionary,
    "torch._utils _rebuild_parameter": _parameter,
    "torch._utils _rebuild_tensor": _tensor,
    "torch._utils _rebuild_tensor_v2": _tensor,
}
