"""The model card in the directory of an export: where it is, read without Keras and TensorFlow."""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

EXTRA = "assets.extra"  # where a SavedModel keeps files that are not of its graph
CARD = "model_card.json"
ONNX = "translator.onnx"  # of an export to ONNX, whose card is beside it


def is_onnx(path: str | PathLike[str]) -> bool:
    """Whether `path` is an export to ONNX, with its search."""
    return (Path(path) / ONNX).exists()


def read_card(export: str | PathLike[str]) -> dict[str, Any]:
    """Returns the model card of a SavedModel or an ONNX file, empty where it has none.

    Example:

    >>> read_card("nowhere")
    {}
    """
    file = Path(export) / CARD if is_onnx(export) else Path(export) / EXTRA / CARD
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def check_tag(name: str, tag: str | None, known: Sequence[str]) -> None:
    """Raises `ValueError` for a tag that is none of the `known` ones of its vocabulary."""
    if tag is not None and tag not in known:
        listed = ", ".join(known) or "none: its vocabulary has no tags"
        raise ValueError(f"{name} must be one of {listed}. Received: {tag!r}")
