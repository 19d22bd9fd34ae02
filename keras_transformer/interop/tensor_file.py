"""Named tensors of a weight file: described when it is opened, read one at a time.

The readers of each format return a dictionary of `StoredTensor`, after they have checked that each
lies inside its file. So nothing large is allocated for a file that only claims to be large.
"""

import dataclasses
import math
import zlib
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np

from keras_transformer.interop.files import shown

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
MAX_AXES = 16
FLOATS = {np.dtype("<f4"), np.dtype("<f2"), np.dtype("<f8"), BFLOAT16}


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in a file, and its shape and dtype.

    Two names of one tensor have equal descriptions.

    Args:
        path: of the file.
        offset: the tensor's first byte.
        shape: the sizes of its axes.
        dtype: little-endian; bfloat16 is that of `ml_dtypes`.
        strides: elements from one position to the next of each axis, None for the last axis first.
        checksum: CRC-32 of the bytes before the tensor, and of those and the tensor.
    """

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...] | None = None
    checksum: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """The bytes from the first element to the last."""
        if self.strides is None or not self.size:
            return self.size * self.dtype.itemsize
        steps = zip(self.shape, self.strides, strict=True)
        return (1 + sum((n - 1) * stride for n, stride in steps)) * self.dtype.itemsize

    def read(self) -> np.ndarray:
        """Returns the tensor as an array that cannot be written to."""
        data = np.empty(self.num_bytes, np.uint8)
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            found = file.readinto(data.data)
        if found != data.size:
            raise ValueError(
                f"{self.path}: must not change while it is read. Received: {found} bytes at "
                f"{self.offset}, not {data.size}"
            )
        before, whole = self.checksum or (0, None)
        if whole is not None and zlib.crc32(data.data, before) != whole:
            raise ValueError(
                f"{self.path}: the bytes must have their CRC-32. Received: others at "
                f"{self.offset}; the file is damaged"
            )
        values = data.view(self.dtype)
        if self.strides is None or not self.size:
            values = values.reshape(self.shape)
        else:
            steps = [stride * self.dtype.itemsize for stride in self.strides]
            values = np.lib.stride_tricks.as_strided(values, self.shape, steps).copy()
        values.flags.writeable = False
        return values


class TensorFile(Mapping[str, StoredTensor]):
    """The tensors of a weight file by name.

    Args:
        path: of the file or directory, for messages.
        tensors: their descriptions.

    Example:

    >>> import tempfile
    >>> import numpy as np
    >>> from keras_transformer.interop.tensor_files import open_tensors
    >>> path = tempfile.mkdtemp() + "/model.npz"
    >>> np.savez(path, Wemb=np.zeros((5, 2), "float16"))
    >>> tensors = open_tensors(path)
    >>> tensors["Wemb"].shape, tensors["Wemb"].dtype.name, tensors.read_float32("Wemb").dtype.name
    ((5, 2), 'float16', 'float32')
    """

    def __init__(self, path: str | PathLike[str], tensors: Mapping[str, StoredTensor]) -> None:
        self.path = Path(path)
        self._tensors = dict(tensors)
        self._alive: WeakValueDictionary[StoredTensor, np.ndarray] = WeakValueDictionary()

    def __getitem__(self, name: str) -> StoredTensor:
        """Returns the description of a tensor."""
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        """Gives the names, as the file orders them."""
        return iter(self._tensors)

    def __len__(self) -> int:
        """Returns the number of names."""
        return len(self._tensors)

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor in the dtype it is stored in, as an array that cannot be written to.

        Two names of one tensor give one array as long as a reference to it is held.

        Raises:
            ValueError: when there is no such tensor, or the file has changed since.
        """
        if name not in self._tensors:
            raise ValueError(f"{self.path} must hold the tensor {name}. Received: {shown([*self])}")
        stored = self._tensors[name]
        values = self._alive.get(stored)
        if values is None:
            values = self._alive[stored] = stored.read()
        return values

    def read_float32(self, name: str) -> np.ndarray:
        """Returns a tensor of float32, float16, bfloat16 or float64 as float32.

        Raises:
            ValueError: when it holds integers or larger numbers, or as `read` does.
        """
        values = self.read(name)
        if values.dtype not in FLOATS:
            raise ValueError(
                f"{self.path}: {name} must be of a float dtype. Received: dtype={values.dtype.name}"
            )
        try:
            with np.errstate(over="raise", invalid="ignore"):
                return values.astype(np.float32, copy=False)
        except FloatingPointError:
            raise ValueError(
                f"{self.path}: {name} must be within float32. Received: larger numbers"
            ) from None


def checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Returns a shape from a file as a tuple, or raises `ValueError` when no array can have it."""
    is_sizes = isinstance(shape, (list, tuple)) and all(type(n) is int and n >= 0 for n in shape)
    if not is_sizes or len(shape) > MAX_AXES or math.prod(n or 1 for n in shape) >= 2**59:
        raise ValueError(
            f"the shape of {shown(name)} must be at most {MAX_AXES} integers of at least 0 that an "
            f"array can have. Received: shape={shown(shape)}"
        )
    return tuple(shape)


def checked_name(name: Any, seen: Mapping[str, Any]) -> str:
    """Returns the name of a tensor, or raises `ValueError` when it is none or stands twice."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"the name of a tensor must be printable text. Received: {shown(name)}")
    if name in seen:
        raise ValueError(f"the name of a tensor must stand once. Received: {shown(name)} twice")
    return name
