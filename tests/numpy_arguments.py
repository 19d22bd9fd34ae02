"""Arguments as users have them who compute with NumPy, and what an object must make of them."""

import inspect

import numpy as np


def in_numpy(value):
    """The value with NumPy's numbers, booleans and strings in the place of Python's."""
    kinds = {bool: np.bool_, int: np.int64, float: np.float32, str: np.str_}
    if type(value) in kinds:
        return kinds[type(value)](value)
    if type(value) in (list, tuple):
        return type(value)(map(in_numpy, value))
    if type(value) is dict:
        return {key: in_numpy(item) for key, item in value.items()}
    return value


def strange(value, path=""):
    """Gives the places in nested values that are NumPy's: `["dropout is float32"]`."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in strange(item, f"{path}.{key}")]
    if isinstance(value, (list, tuple)):
        return [found for item in value for found in strange(item, f"{path}[]")]
    is_numpy = isinstance(value, (np.generic, np.ndarray))
    return [f"{path} is {type(value).__name__}"] if is_numpy else []


def parameters(function):
    """Names of the parameters of a function or class, with those its package's bases take."""
    functions, names = [function], set()
    if isinstance(function, type):
        functions = [
            kind.__init__
            for kind in function.__mro__
            if kind.__module__.startswith("keras_transformer") and "__init__" in vars(kind)
        ]
    for each in functions:
        kinds = {name: value.kind for name, value in inspect.signature(each).parameters.items()}
        several = {
            name for name, kind in kinds.items() if kind in (kind.VAR_POSITIONAL, kind.VAR_KEYWORD)
        }
        names |= set(kinds) - several
        if not several:  # nothing goes on to a base
            break
    return names - {"self"}
