"""Variables in one file, written whole or not at all."""

import json
import zipfile
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer.atomic_files import new_file
from keras_transformer.process_group import whole_array


def write_arrays(path: str | PathLike[str], variables: Iterable[Any], **facts: Any) -> None:
    """Writes the variables' values, with facts that JSON can hold, in place of an older file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {f"v{i}": as_numpy(v) for i, v in enumerate(variables)}
    with new_file(path) as scratch, open(scratch, "wb") as file:
        np.savez(file, facts=json.dumps(facts), **values)


def read_facts(path: str | PathLike[str]) -> dict[str, Any] | None:
    """The facts of a file, or None when there is none."""
    try:
        with np.load(path) as file:
            return json.loads(str(file["facts"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} must be a file of arrays of this package.") from error


def read_arrays(path: str | PathLike[str], variables: Sequence[Any]) -> list[np.ndarray]:
    """Returns the values for `variables`, after a check that they fit."""
    with np.load(path) as file:
        values = [file[f"v{i}"] for i in range(len(file.files) - 1)]
    shapes, expected = [list(v.shape) for v in values], [list(v.shape) for v in variables]
    if shapes != expected:
        raise ValueError(
            f"{path} must hold the variables of this model and optimizer: {len(expected)} arrays "
            f"in the same order and shapes. Received: {len(shapes)} arrays, the first that differs "
            f"is number {first_difference(shapes, expected)}"
        )
    return values


def assign(variables: Iterable[Any], values: Iterable[Any]) -> None:
    """Sets variables, in their own types."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(keras.ops.cast(keras.ops.convert_to_tensor(value), variable.dtype))


def as_numpy(variable: Any) -> np.ndarray:
    """The value as an array that NumPy can store: bfloat16 as float32, which holds it exactly."""
    value = variable.value if hasattr(variable, "value") else variable
    if keras.backend.standardize_dtype(variable.dtype) == "bfloat16":
        value = keras.ops.cast(value, "float32")
    return whole_array(value)


def first_difference(first: Sequence[Any], second: Sequence[Any]) -> int:
    """The index where two lists begin to differ."""
    same = [a == b for a, b in zip(first, second, strict=False)]
    return same.index(False) if False in same else len(same)
