"""Ids as integers: which tensors count as ids, and which are refused."""

import keras
import numpy as np
from keras import ops

from keras_transformer.arguments import Tensor

# The largest number up to which a float dtype holds every integer that an int32 can be.
LARGEST_EXACT = {
    "bfloat16": 2**8,
    "float16": 2**11,
    "float32": 2**24,
    "float64": 2**31 - 1,
}


def integer_ids(name: str, ids: Tensor, vocab_size: int | None = None) -> Tensor:
    """Returns `ids` as an integer tensor, or raises `ValueError` when they are not ids.

    Whole floats are ids, as in Keras's `Embedding`: Keras makes floats of integers in inputs
    without a dtype. Floats are read where their values are known. Where they are not, a dtype that
    cannot hold every id of a vocabulary of `vocab_size` is refused.
    """
    tensor = ops.convert_to_tensor(ids)
    dtype = dtype_name(tensor)
    if "int" in dtype:
        return tensor
    if dtype not in LARGEST_EXACT:
        raise ValueError(f"`{name}` must be integers. Received: {name} of dtype {dtype}")
    values = _known_values(ids, tensor)
    if values is not None:
        refuse_inexact(name, values, dtype)
    elif vocab_size is not None and vocab_size - 1 > LARGEST_EXACT[dtype]:
        raise ValueError(
            f"`{name}` must be of a dtype that holds the whole vocabulary exactly, as with "
            f'`keras.Input((None,), dtype="int32")`: {dtype} does so up to {LARGEST_EXACT[dtype]}. '
            f"Received: {name} of dtype {dtype} for a vocabulary of {vocab_size}"
        )
    return ops.cast(tensor, "int32")


def refuse_inexact(name: str, values: Tensor, dtype: str) -> None:
    """Raises `ValueError` for a NumPy float that is not whole, or that `dtype` may have rounded."""
    values = np.asarray(values).astype("float64")
    exact = (values == np.floor(values)) & (np.abs(values) <= LARGEST_EXACT[dtype])
    if not np.all(exact):
        raise ValueError(
            f"`{name}` must be integers, or whole numbers up to {LARGEST_EXACT[dtype]}, which "
            f"{dtype} holds exactly. Received: {name} of dtype {dtype} with {values[~exact][0]}"
        )


def _known_values(ids: Tensor, tensor: Tensor) -> np.ndarray | None:
    """The values of `ids`, and of the `tensor` made of them, or None where nobody knows them yet.

    PyTorch trains eagerly, so a tensor on its accelerator is not read: a step would wait for it.
    """
    if isinstance(tensor, keras.KerasTensor):
        return None
    try:
        if isinstance(ids, (list, tuple, np.ndarray)):
            return np.asarray(ids)
        if keras.backend.backend() == "torch" and tensor.device.type != "cpu":
            return None
        return ops.convert_to_numpy(tensor)
    except Exception:  # a traced tensor, which each backend refuses with an error of its own
        return None


def dtype_name(tensor: Tensor) -> str:
    """The dtype of a tensor of any backend as a plain string such as "int32"."""
    dtype = tensor.dtype
    return getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
