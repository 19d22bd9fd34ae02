"""Opens what a training left: its export, or a `Translator` of its model."""

import csv
import importlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import keras

from keras_transformer import decoding
from keras_transformer.decoding.search import Search
from keras_transformer.recipes.settings import Settings, read_settings

CARD = Path("assets.extra", "model_card.json")
SETTINGS = "settings.toml"
EARLIER_SETTINGS = "settings.json"  # of version 0.1.0


def find_export(path: str | PathLike[str]) -> Path | None:
    """Returns the SavedModel in `path`, or the newest in it or in its `export`; None if none.

    Args:
        path: a SavedModel, a directory of versions such as `export`, or the directory of a run.

    Example:

    >>> find_export("nowhere") is None
    True
    """
    path = Path(path)
    if (path / "saved_model.pb").exists():
        return path
    for parent in (path, path / "export"):
        numbers = [
            n for n in export_numbers(parent) if (parent / str(n) / "saved_model.pb").exists()
        ]
        if numbers:
            return parent / str(max(numbers))
    return None


def export_numbers(parent: str | PathLike[str]) -> list[int]:
    """The numbers of the versions in a directory of exports, whole or not."""
    return [int(child.name) for child in Path(parent).glob("*") if child.name.isdigit()]


def is_run(path: str | PathLike[str]) -> bool:
    """Whether `path` is the directory of a training with a model."""
    return all((Path(path) / name).exists() for name in (SETTINGS, "model.keras"))


def check_version(path: str | PathLike[str]) -> None:
    """Raises `ValueError` for a run of version 0.1.0, which this version cannot go on with."""
    path = Path(path)
    if (path / EARLIER_SETTINGS).exists() and not (path / SETTINGS).exists():
        raise ValueError(
            f"{path} is a run of version 0.1.0, whose export in {path / 'export'} still "
            "translates. To export it anew, use that version: "
            '`pip install "keras-transformer-components==0.1.0"`'
        )


def load_model(path: str | PathLike[str]) -> keras.Model:
    """Loads a `.keras` file that may hold any class of the package."""
    for name in ("layers", "losses", "metrics", "models", "optimizers", "schedules"):
        importlib.import_module(f"keras_transformer.{name}")  # Keras finds classes of these
    return keras.saving.load_model(path)


def read_card(export: str | PathLike[str]) -> dict[str, Any]:
    """Returns the model card of a SavedModel, empty where it has none."""
    file = Path(export) / CARD
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def read_format(path: str | PathLike[str]) -> str:
    """The format of the pairs that a run or an export learnt; "text" where nothing says another."""
    file = Path(path) / SETTINGS
    if file.exists():
        return read_settings(file)[0].get("format", "text")
    export = find_export(path)
    data = read_card(export).get("data") if export else None
    return data.get("format", "text") if isinstance(data, dict) else "text"


def read_predictions(path: str | PathLike[str]) -> list[dict[str, str]]:
    """The sources, references and outputs of the test of a run, as the model reads and writes.

    Raises:
        ValueError: when the directory has none.
    """
    file = Path(path) / "predictions.tsv"
    if not file.exists():
        raise ValueError(f"{path} has no predictions.tsv of a run. Give --source and --reference")
    with open(file, newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened, delimiter="\t"))


def load_translator(path: str | PathLike[str], **options: Any) -> Any:
    """Returns a `Translator` of a run's model, with the settings of the run's newest export.

    Args:
        path: the directory of a run.
        **options: arguments of `Translator` in place of the export's, and `beam_size` and
            `length_penalty` in place of those of its search. None leaves a setting as it is.

    Raises:
        ValueError: when `path` is no run, or for a bad option.

    Example:

    >>> load_translator("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: nowhere must be the directory of a run, with settings.toml and model.keras. ...
    """
    from keras_transformer.serving import Translator
    from keras_transformer.text import load_tokenizer

    path = Path(path)
    check_version(path)
    if not is_run(path):
        raise ValueError(
            f"{path} must be the directory of a run, with settings.toml and model.keras. "
            "`keras-transformer train` writes one"
        )
    target = path / "target.tokenizer"
    settings = Settings.from_preset(**read_settings(path / SETTINGS)[0])
    search = make_search(settings)
    kept: dict[str, Any] = {
        "max_source_length": settings.max_length,
        "jit_compile": settings.xla_export,
        "split_sentences": bool(settings.split_sentences),
    }
    if export := find_export(path):
        card = read_card(export)
        if card.get("search"):
            search = search_of(card)
        kept |= {**card.get("limits", {}), **card}
    names = ("max_length", "max_source_length", "split_sentences", "separator", "jit_compile")
    kept = {name: kept[name] for name in names if name in kept}
    given = {name: value for name, value in options.items() if value is not None}
    search = changed_search(search, given.pop("beam_size", None), given.pop("length_penalty", None))
    return Translator(
        load_model(path / "model.keras"),
        load_tokenizer(path / "source.tokenizer"),
        load_tokenizer(target) if target.exists() else None,
        **{"search": search, **kept, **given},
    )


def make_search(settings: Settings) -> Search:
    """The search of the test of a run, and of its export."""
    if settings.beam_size == 1:
        return decoding.GreedySearch()
    return decoding.BeamSearch(settings.beam_size, settings.length_penalty)


def search_of(card: Mapping[str, Any]) -> Search:
    """The search that a model card names.

    Raises:
        ValueError: when it is of a class that is not of this package.
    """
    found = card["search"]
    kind = getattr(decoding, found["class"], None)
    if kind is None:
        raise ValueError(f"the export's search is of a class of its own, {found['class']}")
    return kind.from_config(found["settings"])


def changed_search(search: Any, beam_size: int | None, length_penalty: float | None) -> Search:
    """Returns a search with another beam or length penalty; None leaves it as it is."""
    if beam_size is None and length_penalty is None:
        return search
    is_beam = isinstance(search, decoding.BeamSearch)
    if length_penalty is not None and (beam_size == 1 or (beam_size is None and not is_beam)):
        raise ValueError("a length penalty needs a beam of at least 2. Give a beam size too")
    settings = search.get_config()
    if beam_size == 1 or not is_beam:  # what every search has
        settings = {name: settings[name] for name in decoding.GreedySearch().get_config()}
    if beam_size == 1:
        return decoding.GreedySearch(**settings)
    if beam_size is not None:
        settings |= {"beam_size": beam_size, "num_hypotheses": beam_size}
    if length_penalty is not None:
        settings["length_penalty"] = length_penalty
    return decoding.BeamSearch(**settings)


class Signatures(dict[str, Any]):
    """The functions of an export by their names."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"this export has no signature {name!r}: it is of another version")


def open_signatures(path: str | PathLike[str], **options: Any) -> Signatures:
    """Returns the functions of strings of an export, or of a run's model.

    The functions are those of `serving.export`: "n_best", "translate", "score", "align" and so on,
    called with tensors by name.

    Args:
        path: a SavedModel, a directory of versions, or a run.
        **options: as in `load_translator`; with any that is not None `path` must be a run.

    Raises:
        ValueError: when there is neither an export nor a run.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the operations of a SavedModel)

    from keras_transformer.serving.saved_model import tensorflow_path

    export = find_export(path)
    changed = [name for name, value in options.items() if value is not None]
    if changed and not is_run(path):
        raise ValueError(
            f"{path} must be the directory of a run to change {', '.join(changed)}: an "
            "export keeps its search"
        )
    if export is not None and not changed:
        model = tf.saved_model.load(tensorflow_path(export))
        # The functions need the model's variables as long as they are used.
        return Signatures(
            {name: _Kept(function, model) for name, function in model.signatures.items()}
        )
    if not is_run(path):
        raise ValueError(f"{path} holds neither an export nor a run. Check the path")
    translator = load_translator(path, **options)
    functions = translator.string_functions.signatures
    return Signatures({name: _Kept(function, translator) for name, function in functions.items()})


class _Kept:
    """A function of named tensors, and the model that it needs."""

    def __init__(self, function: Any, model: Any) -> None:
        self.function, self.model = function, model

    def __call__(self, **tensors: Any) -> dict[str, Any]:
        return {name: array.numpy() for name, array in self.function(**tensors).items()}
