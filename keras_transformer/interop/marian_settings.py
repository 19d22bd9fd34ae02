"""Reads the settings that Marian writes as YAML: names, each with a value or a list.

General readers of YAML take values for something else, and can be made to build objects. Here a
value is a text in or without quotes, a number, or true or false.
"""

import re
from pathlib import Path
from typing import Any

from keras_transformer.interop.files import shown

NUMBER = re.compile(r"[-+]?[0-9]{1,18}")
FLOAT = re.compile(r"[-+]?([0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18})(e[-+]?[0-9]{1,2})?")
WORDS = {"true": True, "false": False, "~": None, "null": None, "": None}


def read_settings(path: Path, text: str) -> dict[str, Any]:
    """Returns the settings of a YAML text of Marian; a setting of another form is left out.

    Raises:
        ValueError: when a line is none of YAML, or a setting stands twice.

    Example:

    >>> text = "beam-size: 6\\nvocabs:\\n  - source.spm\\n  - target.spm\\nnormalize: 0.6"
    >>> read_settings(Path("decoder.yml"), text)
    {'beam-size': 6, 'vocabs': ['source.spm', 'target.spm'], 'normalize': 0.6}
    """
    settings: dict[str, Any] = {}
    name = None
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip()
        inside = line.strip()
        if not inside or inside == "---" or inside.startswith("#"):
            continue
        if inside == "-" or inside.startswith("- "):
            if name is None or not isinstance(settings[name] or [], list):
                raise ValueError(
                    f"{path}: line {number} must follow a name. Received: {shown(line)}"
                )
            settings[name] = settings[name] or []
            settings[name].append(parse_value(path, number, inside[1:].strip()))
        elif line[0] == " ":
            if name is not None and inside == "[]":
                settings[name] = []
            elif name is not None:  # a map inside, which no setting read here has
                settings[name] = [None]
        else:
            name, colon, rest = line.partition(":")
            if not colon or rest[:1] not in {"", " "} or name in settings:
                raise ValueError(
                    f"{path}: line {number} must be name: value, each name once. "
                    f"Received: {shown(line)}"
                )
            settings[name] = parse_value(path, number, rest.strip())
    return settings


def parse_value(path: Path, number: int, text: str) -> Any:
    """Returns the value of a text: a list in brackets, or a single value."""
    if text[:1] == "[":
        if text[-1] != "]":
            raise ValueError(f"{path}: line {number} must end its list. Received: {shown(text)}")
        inside = text[1:-1].strip()
        parts = [part.strip() for part in inside.split(",")] if inside else []
        if nested := [part for part in parts if part.startswith("[")]:
            raise ValueError(
                f"{path}: line {number} must not have a list in a list. "
                f"Received: {shown(nested[0])}"
            )
        return [parse_value(path, number, part) for part in parts]
    if text[:1] in {'"', "'"}:
        if len(text) < 2 or text[-1] != text[0] or "\\" in text:
            raise ValueError(
                f"{path}: line {number} must end its quote, without a backslash. "
                f"Received: {shown(text)}"
            )
        return text[1:-1]
    if text in WORDS:
        return WORDS[text]
    if NUMBER.fullmatch(text):
        return int(text)
    return float(text) if FLOAT.fullmatch(text) else text
