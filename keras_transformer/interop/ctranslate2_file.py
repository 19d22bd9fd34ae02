"""Reads `model.bin` of a CTranslate2 directory, binary versions 2 to 6.

The file is the version, the kind of model and its revision, then each variable. A variable is its
name, its shape, its dtype and its bytes. From version 3 on other names of variables follow.
"""

import math
import os
import struct
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from keras_transformer.interop.files import checked_file, shown
from keras_transformer.interop.tensor_file import (
    BFLOAT16,
    StoredTensor,
    TensorFile,
    checked_name,
    checked_shape,
)

VERSIONS = range(2, 7)
# By the number that files of version 4 on hold.
DTYPES: dict[int, np.dtype] = dict(
    enumerate(
        (
            np.dtype("<f4"),
            np.dtype("i1"),
            np.dtype("<i2"),
            np.dtype("<i4"),
            np.dtype("<f2"),
            BFLOAT16,
        )
    )
)
DTYPES_BY_SIZE: dict[int, np.dtype] = {1: np.dtype("i1"), 2: np.dtype("<i2"), 4: np.dtype("<f4")}
# Settings that files of revisions before 5 have once, for both sides.
OLD_REVISIONS = range(5)
OLD_SETTINGS = {
    "encoder": ("num_heads", "pre_norm", "activation", "embeddings_merge"),
    "decoder": ("num_heads", "pre_norm", "activation", "alignment_layer", "alignment_heads"),
}
OLD_INT16_SCALE = np.float32(1000)  # of weights in files that hold no scale


class CTranslate2File(TensorFile):
    """The variables of a `model.bin`.

    Attributes:
        version: the binary version.
        kind: the model's class in CTranslate2, such as "TransformerSpec".
        revision: of the class's layout of variables.
        aliases: the variable that each other name stands for.
        old_settings: the variables of an old revision that each side has under a name of its own.

    Args:
        path: of the file.

    Raises:
        ValueError: when the file is not a `model.bin` of these versions, or damaged.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        path = checked_file(path)
        try:
            with open(path, "rb") as file:
                reader = _Fields(file)
                self.version: int = reader.number("I")
                if self.version not in VERSIONS:
                    raise ValueError(
                        f"the binary version must be from {VERSIONS[0]} to {VERSIONS[-1]}. "
                        f"Received: {self.version}"
                    )
                self.kind, self.revision = reader.text(), reader.number("I")
                tensors = _variables(path, reader, self.version)
                self.aliases = _aliases(reader, tensors) if self.version >= 3 else {}
                own = _old_settings(tensors) if self.revision in OLD_REVISIONS else {}
                self.old_settings = set(own.values())
                self.aliases |= own
                if reader.left:
                    raise ValueError(
                        "the file must end behind its variables. "
                        f"Received: {reader.left} bytes more"
                    )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        tensors |= {alias: tensors[name] for alias, name in self.aliases.items()}
        super().__init__(path, tensors)

    @property
    def quantization(self) -> str | None:
        """The name of the integers that weights are rounded to, int8 or int16, or None."""
        names = {self[name].dtype.name for name in self if self.is_quantized(name)}
        return ", ".join(sorted(names)) or None

    def is_quantized(self, name: str) -> bool:
        """Whether a variable holds integers that stand for numbers after a division."""
        if self[name].dtype not in {np.dtype("i1"), np.dtype("<i2")} or not self[name].shape:
            return False
        return f"{name}_scale" in self or name.endswith("weight")

    def dequantized(self, name: str) -> np.ndarray:
        """Returns a variable as float32: that of a quantized one divided by its scale.

        An int8 weight has a scale for each row, an int16 weight one scale.

        Raises:
            ValueError: when the variable holds integers that stand for themselves, or its scale is
                missing or does not fit.
        """
        if name not in self or not self.is_quantized(name):
            return self.read_float32(name)
        values, scale = self.read(name), self._scale(name)
        scale = scale.reshape(-1, *[1] * (values.ndim - 1)) if scale.ndim else scale
        return values / scale

    def _scale(self, name: str) -> np.ndarray:
        stored = self[name]
        if f"{name}_zero" in self:
            raise ValueError(
                f"{self.path}: {name} must be int8 or int16 with a scale. Received: AWQ's integers"
            )
        if f"{name}_scale" not in self and stored.dtype == np.int16:
            return np.array(OLD_INT16_SCALE)
        shape = self[f"{name}_scale"].shape if f"{name}_scale" in self else "none"
        if shape not in {(), (1,), stored.shape[:1]}:
            raise ValueError(
                f"{self.path}: the scale of {name} must be one number, or {stored.shape[0]}. "
                f"Received: shape={shape}"
            )
        scale = self.read_float32(f"{name}_scale")
        # A smaller one would make a weight infinite.
        least = 2.0 ** (8 * stored.dtype.itemsize) / np.finfo(np.float32).max
        if not (np.isfinite(scale) & (scale >= least)).all():
            raise ValueError(
                f"{self.path}: the scale of {name} must be finite and at least {least:.1g}. "
                f"Received: {scale.min()} to {scale.max()}"
            )
        return scale


class _Fields:
    """Reads a file's fields from its begin on, and skips what is large."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.at = 0
        self.left = os.fstat(file.fileno()).st_size

    def skip(self, size: int, what: str) -> int:
        """Goes on behind `size` bytes, and returns where they begin."""
        if size > self.left:
            raise ValueError(
                f"{what} must be inside the file. Received: {size} bytes at {self.at}, where "
                f"{self.left} are left"
            )
        begin = self.at
        self.at, self.left = self.at + size, self.left - size
        self.file.seek(self.at)
        return begin

    def take(self, size: int, what: str) -> bytes:
        """Returns the next `size` bytes."""
        begin = self.skip(size, what)
        self.file.seek(begin)
        return self.file.read(size)

    def number(self, form: str) -> int:
        """Returns the next number, of a form of `struct`."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}"), "a number"))[0]

    def text(self) -> str:
        """Returns the next string, which its length precedes and a NUL ends."""
        data = self.take(self.number("H"), "a name")
        try:
            text = data[:-1].decode("utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if data[-1:] != b"\0" or "\0" in text:
            raise ValueError(f"a name must be UTF-8 and end with a NUL. Received: {shown(data)}")
        return text


def _variables(path: Path, reader: _Fields, version: int) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for _ in range(reader.number("I")):
        name = checked_name(reader.text(), tensors)
        rank = reader.number("B")
        shape = checked_shape(name, struct.unpack(f"<{rank}I", reader.take(4 * rank, "sizes")))
        number = reader.number("B")
        known = DTYPES if version >= 4 else DTYPES_BY_SIZE
        if number not in known:
            rule = "dtype" if version >= 4 else "bytes of an element"
            raise ValueError(
                f"the {rule} of {shown(name)} must be one of {', '.join(map(str, known))}. "
                f"Received: {number}"
            )
        dtype = known[number]
        num_bytes = reader.number("I") * (1 if version >= 4 else dtype.itemsize)
        if num_bytes != math.prod(shape) * dtype.itemsize:
            raise ValueError(
                f"{shown(name)} must have the bytes of its shape {shape}, {dtype.name}. "
                f"Received: {num_bytes} bytes"
            )
        tensors[name] = StoredTensor(path, reader.skip(num_bytes, shown(name)), shape, dtype)
    return tensors


def _aliases(reader: _Fields, tensors: dict[str, StoredTensor]) -> dict[str, str]:
    aliases: dict[str, str] = {}
    taken: dict[str, Any] = dict(tensors)
    for _ in range(reader.number("I")):
        alias, name = checked_name(reader.text(), taken), reader.text()
        if name not in tensors:
            raise ValueError(f"{shown(alias)} must name a variable. Received: {shown(name)}")
        taken[alias] = aliases[alias] = name
        scale = f"{name}_scale"  # which has no alias of its own in the file
        if scale in tensors and f"{alias}_scale" not in taken:
            taken[f"{alias}_scale"] = aliases[f"{alias}_scale"] = scale
    return aliases


def _old_settings(tensors: dict[str, StoredTensor]) -> dict[str, str]:
    """Gives the settings of both sides a name on each side, as CTranslate2 does."""
    names = {f"{side}/{name}": name for side, names in OLD_SETTINGS.items() for name in names}
    return {own: name for own, name in names.items() if name in tensors and own not in tensors}
