"""TensorFlow Serving's REST form: from JSON to a signature's inputs, and back from its outputs."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np


class Refused(Exception):
    """A request that is not answered: an HTTP status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def read_inputs(
    body: bytes, signatures: Mapping[str, Any]
) -> tuple[str, dict[str, np.ndarray], bool]:
    """What a request asks for: signature, {input: array (rows,)}, and whether it came by rows.

    `instances` is a list of rows, each {input: value}. `inputs` is {input: list of values}. Where
    there is one input, the value or the list alone will do. A string that is not UTF-8 is
    {"b64": ...}.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body must be JSON: {error}") from error
    if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
        raise Refused(400, 'the body must be an object with either "instances" or "inputs"')
    name = request.get("signature_name", "serving_default")
    if not isinstance(name, str) or name not in signatures:
        raise Refused(400, f"signature_name must be one of {', '.join(sorted(signatures))}")
    specs = signatures[name].inputs
    by_rows = "instances" in request
    columns = request["instances" if by_rows else "inputs"]
    if by_rows:
        columns = columns_of_rows(columns, specs)
    elif not is_columns(columns) and len(specs) == 1:
        columns = {next(iter(specs)): columns}
    if not is_columns(columns) or set(columns) != set(specs):
        raise Refused(400, f"the inputs must be {', '.join(sorted(specs))}")
    inputs = {key: make_array(key, values, specs[key]) for key, values in columns.items()}
    if len({len(values) for values in inputs.values()}) > 1:
        raise Refused(400, "all inputs must have as many values")
    return name, inputs, by_rows


def is_columns(value: Any) -> bool:
    """Whether a JSON value names inputs, and is not a single string in base 64."""
    return isinstance(value, dict) and set(value) != {"b64"}


def columns_of_rows(rows: Any, specs: Mapping[str, Any]) -> dict[str, list[Any]]:
    """{input: list of values} of a list of rows."""
    if not isinstance(rows, list):
        raise Refused(400, '"instances" must be a list')
    if len(specs) == 1:
        key = next(iter(specs))
        rows = [row if is_columns(row) else {key: row} for row in rows]
    if not all(is_columns(row) and set(row) == set(specs) for row in rows):
        raise Refused(400, f"each instance must have the inputs {', '.join(sorted(specs))}")
    return {key: [row[key] for row in rows] for key in specs}


def make_array(key: str, values: Any, spec: Any) -> np.ndarray:
    """The values of one input as an array of its type."""
    if not isinstance(values, list):
        raise Refused(400, f"{key} must be a list of values")
    if spec.dtype == "string":
        array = np.empty(len(values), object)
        array[:] = [encode_string(key, value) for value in values]
        return array
    whole = spec.dtype.startswith("int")
    kinds = (int,) if whole else (int, float)
    if not all(isinstance(value, kinds) and not isinstance(value, bool) for value in values):
        raise Refused(400, f"{key} must hold {'whole numbers' if whole else 'numbers'}")
    try:
        return np.array(values, spec.dtype)
    except OverflowError as error:
        raise Refused(400, f"{key} must hold numbers of {spec.dtype}") from error


def encode_string(key: str, value: Any) -> bytes:
    """A string of JSON as bytes; one with lone surrogates as UTF-8 cannot have them."""
    if isinstance(value, str):
        # A lone surrogate becomes U+FFFD, as in a browser's own encoder.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    if isinstance(value, dict) and isinstance(value.get("b64"), str) and len(value) == 1:
        try:
            return base64.b64decode(value["b64"], validate=True)
        except ValueError as error:
            raise Refused(400, f"{key} has a b64 that is not base 64: {error}") from error
    raise Refused(400, f"{key} must hold strings")


def make_answer(outputs: Mapping[str, np.ndarray], by_rows: bool) -> dict[str, Any]:
    """JSON of {output: array}: `predictions` by rows, or `outputs` by columns."""
    columns = {key: list_values(array) for key, array in outputs.items()}
    if not by_rows:
        return {"outputs": next(iter(columns.values())) if len(columns) == 1 else columns}
    if len(columns) == 1:
        return {"predictions": next(iter(columns.values()))}
    rows = zip(*columns.values(), strict=True)
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in rows]}


def list_values(array: np.ndarray) -> list[Any]:
    """An array as lists; strings of bytes as text."""
    if array.dtype != object:
        if not np.all(np.isfinite(array)):
            raise Refused(500, "the model gave what is not a number")
        return array.tolist()
    if array.ndim == 1:
        return [value.decode("utf-8", "replace") for value in array]
    return [list_values(row) for row in array]
