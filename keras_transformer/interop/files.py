"""What every loader asks of a directory: its files, their names, and the JSON in them.

All errors are a `ValueError` of one line, and nothing is read that is larger than expected.
"""

import json
import os
import reprlib
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

MAX_SETTINGS = 4 * 2**20  # bytes
MAX_VOCABULARY = 64 * 2**20  # bytes: tokenizer files of large models have 32 MiB
MAX_SIZE = 2**31 - 1  # of what a setting counts
MAX_BEAMS = 1000
MAX_RATE = 0.99  # of dropout
LFS_POINTER = b"version https://git-lfs"

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 100
_short.maxlevel = 2
_short.maxtuple = _short.maxlist = _short.maxdict = 8


def shown(value: Any) -> str:
    """Returns the `repr` of a value from a file, cut so that it fits in a line."""
    return _short.repr(value)


def check_names(
    path: str | PathLike[str], missing: Sequence[str], unknown: Sequence[str], received: str
) -> None:
    """Raises `ValueError` that names up to three tensors.

    Args:
        path: of the file.
        missing: tensors that the model asks for and the file lacks.
        unknown: tensors of the file that the model has no place for.
        received: what the message says that the file has.
    """
    for rule, names in (("must have", missing), ("must not have", unknown)):
        if names:
            more = f" and {len(names) - 3} more" if names[3:] else ""
            listed = ", ".join(map(shown, names[:3]))
            raise ValueError(f"{path}: {rule} {listed}{more}. Received: {received}")


def checked_integer(
    where: str | PathLike[str], name: str, value: Any, least: int = 0, most: int = MAX_SIZE
) -> int:
    """Returns the value of a setting, or raises `ValueError` unless it is an integer in a range.

    Args:
        where: the file that has the setting.
        name: of the setting.
        value: of the setting, of any type.
        least, most: the range, both included.
    """
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f"{where}: `{name}` must be an integer from {least} to {most}. "
            f"Received: {name}={shown(value)}"
        )
    return value


def checked_number(
    where: str | PathLike[str], name: str, value: Any, least: float, most: float
) -> float:
    """Returns the value of a setting, or raises `ValueError` unless it is a number in a range."""
    is_number = type(value) in (int, float)
    if not is_number or not least <= value <= most:  # NaN is in no range
        raise ValueError(
            f"{where}: `{name}` must be a number from {least} to {most}. "
            f"Received: {name}={shown(value)}"
        )
    return float(value)


def checked_flag(where: str | PathLike[str], name: str, value: Any) -> bool:
    """Returns the value of a setting, or raises `ValueError` unless it is true or false."""
    if type(value) is not bool:
        raise ValueError(
            f"{where}: `{name}` must be true or false. Received: {name}={shown(value)}"
        )
    return value


def checked_file(path: str | PathLike[str], max_bytes: int | None = None) -> Path:
    """Returns `path`, or raises `ValueError` when no ordinary file is there, or a larger one."""
    name, path = os.fspath(path), Path(path)
    if not path.is_file():
        kind = "not an ordinary file" if path.exists() else "nothing"
        kind = "an address: download it first" if "://" in name else kind
        raise ValueError(f"`path` must be a file. Received: {shown(name)}, which is {kind}")
    size = path.stat().st_size
    if max_bytes is not None and size > max_bytes:
        raise ValueError(f"{path}: must have at most {max_bytes} bytes. Received: {size} bytes")
    return path


def checked_directory(directory: str | PathLike[str], *names: str | tuple[str, ...]) -> Path:
    """Returns `directory`, or raises `ValueError` when it lacks a file.

    Args:
        directory: a path.
        *names: the file names that must be there. Of a tuple of names, one must be.

    Returns:
        The directory as a `Path`.

    Raises:
        ValueError: with the names that are missing and those that were found.

    Example:

    >>> import pathlib, tempfile
    >>> directory = pathlib.Path(tempfile.mkdtemp())
    >>> (directory / "config.json").touch()
    >>> checked_directory(directory, "config.json", ("model.safetensors", "model.npz"))
    Traceback (most recent call last):
    ValueError: ... must hold model.safetensors or model.npz. Received: config.json
    """
    name, path = os.fspath(directory), Path(directory)
    if not path.is_dir():
        kind = ", which is an address: download it first" if "://" in name else ""
        raise ValueError(f"`directory` must be a directory. Received: {shown(name)}{kind}")
    groups = [(name,) if isinstance(name, str) else name for name in names]
    missing = [g for g in groups if not any((path / name).exists() for name in g)]
    if missing:
        rule = ", ".join(" or ".join(group) for group in missing)
        found = sorted(entry.name for entry in path.iterdir())
        listed = ", ".join(found[:20]) + (f" and {len(found) - 20} more" if found[20:] else "")
        raise ValueError(f"{path} must hold {rule}. Received: {listed or 'an empty directory'}")
    return path


def file_beside(directory: str | PathLike[str], name: Any) -> Path:
    """Returns the path of a file that another file of `directory` names.

    Raises:
        ValueError: when `name` is not a plain file name: it may not lead out of the directory.
    """
    is_plain = isinstance(name, str) and name not in {"", ".", ".."}
    if not is_plain or any(mark in name for mark in ("/", "\\", "\0", ":")):
        raise ValueError(
            f"{directory}: a file must be named without a path. Received: {shown(name)}"
        )
    return checked_file(Path(directory) / name)


def read_bytes(path: str | PathLike[str], max_bytes: int) -> bytes:
    """Returns the bytes of a file, or raises `ValueError` when it is larger than `max_bytes`."""
    path = checked_file(path, max_bytes)
    with open(path, "rb") as file:
        return file.read(path.stat().st_size)  # of a larger number it would take the memory


def read_text(path: str | PathLike[str], max_bytes: int = MAX_SETTINGS) -> str:
    """Returns the text of a UTF-8 file; a byte order mark at its begin is left out."""
    try:
        return read_bytes(path, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: must be UTF-8. Received: {error.reason} at {error.start}"
        ) from None


def read_json(
    path: str | PathLike[str], kind: type | tuple[type, ...] = dict, max_bytes: int = MAX_SETTINGS
) -> Any:
    """Returns the value of a JSON file.

    Args:
        path: of the file.
        kind: the type that the value must have.
        max_bytes: how large the file may be.

    Returns:
        The value.

    Raises:
        ValueError: when the file is larger, is not JSON, names a key twice or holds another type.
    """
    try:
        value = parsed_json(read_text(path, max_bytes))
    except ValueError as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = " or ".join(k.__name__ for k in kinds)
        raise ValueError(f"{path}: must hold a JSON {names}. Received: {shown(value)}")
    return value


def parsed_json(text: str) -> Any:
    """Returns the value of a JSON text, or raises `ValueError`: no NaN, no key twice."""
    try:
        return json.loads(text, object_pairs_hook=_without_twins, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise ValueError(f"must be JSON. Received: {shown(text[:40])}, {reason}") from None


def _without_twins(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the key {shown(name)} stands twice")
        values[name] = value
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
