"""Reads the vocabularies that Marian, CTranslate2 and NLLB keep beside a model."""

import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from keras_transformer.interop.files import (
    MAX_VOCABULARY,
    read_bytes,
    read_json,
    read_text,
    shown,
)
from keras_transformer.text.sentencepiece_tokenizer import model_pieces

# What follows a backslash in a double-quoted key, as YAML has it.
ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.?)", re.DOTALL)
ESCAPED = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "\t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    " ": " ",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
ID = re.compile(r"\s*([0-9]{1,9})\s*")


def read_marian_vocabulary(path: str | PathLike[str]) -> dict[str, int]:
    """Returns the ids by token of a vocabulary of Marian, `.yml` or `.json`.

    A `.yml` is read line by line, `token: id`: Marian writes tokens that general readers of YAML
    take for something else, such as `yes`, `1` or `~`. Ids may have gaps.

    Raises:
        ValueError: when a line is something else, a token or an id stands twice, or the file is
            too large.
    """
    path = Path(path)
    text = read_text(path, MAX_VOCABULARY)
    if text.lstrip()[:1] == "{":
        pairs = list(read_json(path, dict, MAX_VOCABULARY).items())
    else:
        pairs = list(_yaml_pairs(path, text))
    ids: dict[str, int] = {}
    tokens: dict[int, str] = {}
    for token, number in pairs:
        if type(number) is not int or not 0 <= number < 10**9:
            raise ValueError(
                f"{path}: an id must be an integer from 0 on. "
                f"Received: {shown(token)}: {shown(number)}"
            )
        if token in ids or number in tokens:
            raise ValueError(
                f"{path}: a token and an id must stand once. "
                f"Received: {shown(token)}: {number} twice"
            )
        ids[token], tokens[number] = number, token
    return ids


def read_ctranslate2_vocabulary(path: str | PathLike[str]) -> list[str]:
    """Returns the tokens by id of a vocabulary of CTranslate2: a `.json` list, or lines of text.

    Lines may end with a carriage return, if all do; then it is not part of the tokens. A token may
    stand twice: CTranslate2 reads it as the first of its ids.

    Raises:
        ValueError: when the file is not UTF-8, too large, or the JSON is not a list of strings.
    """
    path = Path(path)
    if path.suffix == ".json":
        tokens = read_json(path, list, MAX_VOCABULARY)
        if wrong := [token for token in tokens if not isinstance(token, str)]:
            raise ValueError(f"{path}: a token must be a string. Received: {shown(wrong[0])}")
        return tokens
    lines = read_text(path, MAX_VOCABULARY).split("\n")
    if not lines[-1]:  # behind the end of the last line
        lines.pop()
    if all(line.endswith("\r") for line in lines):
        lines = [line[:-1] for line in lines]
    return lines


def read_sentencepiece_pieces(path: str | PathLike[str]) -> list[str]:
    """Returns the pieces by id of a sentencepiece model, or raises `ValueError` with its path."""
    model = read_bytes(path, MAX_VOCABULARY)
    try:
        return model_pieces(model)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _yaml_pairs(path: Path, text: str) -> Iterator[tuple[str, int]]:
    key = None  # of a pair over two lines, "? key" and ": id"
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if not line:
            continue
        if key is None and line.startswith("? "):
            key = line[2:]
            continue
        token, colon, value = (key, line[:1], line[1:]) if key is not None else line.rpartition(":")
        match = ID.fullmatch(value)
        if colon != ":" or not match:
            raise ValueError(f"{path}: line {number} must be token: id. Received: {shown(line)}")
        yield _unquoted(path, number, token), int(match[1])
        key = None
    if key is not None:
        raise ValueError(f"{path}: a key must have an id. Received: {shown(key)} at the end")


def _unquoted(path: Path, number: int, token: str) -> str:
    token = token.strip(" ")
    if token[:1] in {'"', "'"}:
        quote, inside = token[0], token[1:-1]
        if len(token) < 2 or token[-1] != quote:
            raise ValueError(f"{path}: line {number} must end its quote. Received: {shown(token)}")
        try:
            return inside.replace("''", "'") if quote == "'" else ESCAPE.sub(_character, inside)
        except (ValueError, KeyError, OverflowError):
            raise ValueError(
                f"{path}: line {number} must escape as YAML does. Received: {shown(token)}"
            ) from None
    return token


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code[:1] not in {"x", "u", "U"}:
        return ESCAPED[code]
    character = chr(int(code[1:], 16))
    character.encode("utf-8")  # which half a surrogate pair is not
    return character
