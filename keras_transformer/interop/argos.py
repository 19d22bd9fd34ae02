"""Finds the model of CTranslate2 and the pieces in an unpacked package of Argos Translate."""

from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.decoding import BeamSearch
from keras_transformer.interop.files import read_json, shown


class ArgosPackage(NamedTuple):
    """What a package says of a translator.

    Attributes:
        model: the directory with `model.bin`.
        tokenizer: the sentencepiece model of both sides; None for a package with other pieces.
        target_prefix: the tag that every output begins with; None for none.
    """

    model: Path
    tokenizer: Path | None
    target_prefix: str | None

    def make_search(self) -> BeamSearch:
        """Returns the search of Argos Translate: beam 4, scores divided by `length ** 0.2`."""
        return BeamSearch(4, 0.2, num_hypotheses=1, early_stopping=True, length_formula="power")


def find_package(directory: Path) -> ArgosPackage | None:
    """Returns the package in a directory, None where it is none, or raises `ValueError`."""
    metadata, model = directory / "metadata.json", directory / "model"
    is_model = (directory / "model.bin").exists()
    if is_model or not metadata.is_file() or not (model / "model.bin").is_file():
        return None
    tokenizer = directory / "sentencepiece.model"
    prefix: Any = read_json(metadata).get("target_prefix") or None
    if prefix is not None and not isinstance(prefix, str):
        raise ValueError(f"{metadata}: `target_prefix` must be a string. Received: {shown(prefix)}")
    return ArgosPackage(model, tokenizer if tokenizer.is_file() else None, prefix)
