"""Opens the weights of a model, whichever of the common formats they are in."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from keras_transformer.interop.files import (
    LFS_POINTER,
    checked_directory,
    checked_file,
    file_beside,
    read_json,
    shown,
)
from keras_transformer.interop.npz_file import npz
from keras_transformer.interop.safetensors_file import safetensors
from keras_transformer.interop.stored_zip import stored_members
from keras_transformer.interop.tensor_file import StoredTensor, TensorFile, checked_name
from keras_transformer.interop.torch_file import torch_zip
from keras_transformer.interop.torch_legacy_file import MAGIC, torch_legacy

# In the order in which a directory is searched: the first is the safest and the newest.
NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.npz",
)


def open_tensors(path: str | PathLike[str]) -> TensorFile:
    """Opens a file of weights, or that of a directory, and reads no weight yet.

    It opens safetensors, PyTorch's `pytorch_model.bin` of any version, both also in several files
    with an index, and NumPy's `.npz`. The format is told by the content. Nothing of a file is run,
    and what a file says of sizes is checked before anything is allocated.

    Args:
        path: a file, or a directory with one of `NAMES`.

    Returns:
        A `TensorFile`, from which tensors are read one at a time.

    Raises:
        ValueError: when the file is of another format, damaged or hostile.

    Example:

    >>> import tempfile
    >>> import numpy as np
    >>> path = tempfile.mkdtemp()
    >>> np.savez(path + "/model.npz", Wemb=np.ones((5, 2)))
    >>> open_tensors(path).read("Wemb").shape
    (5, 2)
    """
    path = Path(path)
    if path.is_dir():
        checked_directory(path, NAMES)
        path = next(path / name for name in NAMES if (path / name).exists())
    path = checked_file(path)
    if path.name.endswith(".index.json"):
        return TensorFile(path, _shards(path))
    return TensorFile(path, _tensors(path))


def _tensors(path: Path) -> dict[str, StoredTensor]:
    try:
        return _reader(path)(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _reader(path: Path) -> Callable[[Path], dict[str, StoredTensor]]:
    with open(path, "rb") as file:
        start = file.read(40)
    if start.startswith(b"PK"):
        is_npz = all(name.endswith(".npy") for name in stored_members(path))
        return npz if is_npz else torch_zip
    if start[8:9] == b"{":
        return safetensors
    if MAGIC in start:
        return torch_legacy
    if start.startswith(LFS_POINTER):
        raise ValueError("must hold weights. Received: a pointer of Git LFS: git lfs pull")
    raise ValueError(
        "must be safetensors, a pytorch_model.bin or a .npz. "
        f"Received: a file that begins with {start[:16]!r}"
    )


def _shards(path: Path) -> dict[str, StoredTensor]:
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ValueError(
            f"{path}: must hold a weight_map. Received: weight_map={shown(weight_map)}"
        )
    shards: dict[str, dict[str, StoredTensor]] = {}
    tensors: dict[str, StoredTensor] = {}
    for name, shard in weight_map.items():
        shard_path = file_beside(path.parent, shard)
        if shard not in shards:
            shards[shard] = _tensors(shard_path)
        if checked_name(name, tensors) not in shards[shard]:
            raise ValueError(f"{shard_path}: must hold {name}. Received: {shown([*shards[shard]])}")
        tensors[name] = shards[shard][name]
    return tensors
