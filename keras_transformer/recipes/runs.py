"""Opens a run or an export: a `Translator` of a run's model, or the functions of a SavedModel."""

import importlib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformer import decoding
from keras_transformer.card_file import read_card
from keras_transformer.decoding.search import Search
from keras_transformer.recipes.run_files import (
    PREDICTIONS,
    change_search,
    check_model,
    check_run,
    find_export,
    is_run,
    read_imported,
    read_predictions,
    read_run,
)
from keras_transformer.recipes.settings import Settings

if TYPE_CHECKING:
    from keras_transformer.serving import Translator
    from keras_transformer.text.tokenizer import Tokenizer

SEARCH_FIELDS = ("beam_size", "length_penalty", "num_hypotheses")  # what settings say of a search
FEW_TEXTS = 0.1  # of several sentences, with which a model is one of single sentences


def load_model(path: str | PathLike[str]) -> keras.Model:
    """Loads a `.keras` file that may hold any class of the package."""
    for name in ("layers", "losses", "metrics", "models", "optimizers", "schedules"):
        importlib.import_module(f"keras_transformer.{name}")  # Keras finds classes of these
    return keras.saving.load_model(path)


def load_translator(path: str | PathLike[str], **options: Any) -> "Translator":
    """Returns a `Translator` of a run's model, with the settings of the run.

    Args:
        path: the directory of a run.
        **options: arguments of `Translator`, and `beam_size` and `length_penalty` of the search,
            in place of the run's. None leaves a setting as it is.

    Raises:
        ValueError: when `path` is not a run, or for a bad option.

    Example:

    >>> load_translator("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: nowhere: there is no such directory. Check the path
    """
    from keras_transformer.serving import Translator

    path = Path(path)
    check_run(path)
    given = {name: value for name, value in options.items() if value is not None}
    own = read_run(path)[0]
    settings = change_search(own, given.pop("beam_size", None), given.pop("length_penalty", None))
    if "split_sentences" not in given:
        given["split_sentences"] = splits_sentences(path)
    of_run = {
        "search": search_of_run(path, settings),
        "max_source_length": settings.max_length,
        "jit_compile": settings.xla_export,
        **read_imported(path).get("options", {}),
    }
    return Translator(
        load_model(path / "model.keras"),
        *load_tokenizers(path),
        **{**of_run, **given},
    )


def load_tokenizers(path: str | PathLike[str]) -> tuple["Tokenizer", "Tokenizer"]:
    """The tokenizers of sources and of targets in the directory of a run; often one for both."""
    from keras_transformer.text import load_tokenizer

    source = load_tokenizer(Path(path) / "source.tokenizer")
    target = Path(path) / "target.tokenizer"
    return source, load_tokenizer(target) if target.exists() else source


def splits_sentences(path: str | PathLike[str]) -> bool:
    """Whether the model of a run reads each sentence of a text on its own.

    The settings say it, or else what the training found in its texts. A training run without
    TensorFlow cannot look for sentences: then the texts of the test tell.
    """
    settings, facts = read_run(path)
    if settings.split_sentences is not None:
        return settings.split_sentences
    if "split_sentences" in facts:
        return bool(facts["split_sentences"])
    if settings.format != "text" or not (Path(path) / PREDICTIONS).exists():
        return False
    return share_of_several([row["source"] for row in read_predictions(path)]) < FEW_TEXTS


def share_of_several(texts: Sequence[str]) -> float:
    """The share of texts that have several sentences.

    Example:

    >>> share_of_several(["A dog runs.", "A dog. It runs."])
    0.5
    """
    from keras_transformer.serving.sentences import find_sentences

    counts = np.bincount(find_sentences(list(texts)).texts.numpy(), minlength=len(texts))
    return float(np.mean(counts > 1))


def search_of_run(path: str | PathLike[str], settings: Settings) -> Search:
    """The search of the test of a run, and of its export; that of an import forbids tokens too."""
    search = make_search(settings)
    imported = read_imported(path)
    if not imported:
        return search
    own = read_search(imported).get_config()
    kept = {name: value for name, value in own.items() if name not in SEARCH_FIELDS}
    known = search.get_config()
    return type(search).from_config({**known, **{n: v for n, v in kept.items() if n in known}})


def make_search(settings: Settings) -> Search:
    """The search that the settings name."""
    if settings.beam_size == 1:
        return decoding.GreedySearch()
    return decoding.BeamSearch(settings.beam_size, settings.length_penalty)


def read_search(card: Mapping[str, Any]) -> Search:
    """The search that a model card names.

    Raises:
        ValueError: when it is of a class that is not of this package.
    """
    found = card["search"]
    kind = getattr(decoding, found["class"], None)
    if kind is None:
        raise ValueError(f"the export's search is of a class of its own, {found['class']}")
    return kind.from_config(found["settings"])


def known_tags(path: str | PathLike[str]) -> dict[str, list[str]]:
    """The tags of the sources and of the targets of a run or an export.

    A side is missing where the card of an export is silent.
    """
    path = Path(path)
    if is_run(path):
        source, target = load_tokenizers(path)
        return {"source": source.tags, "target": target.tags}
    export = find_export(path)
    sides = read_card(export).get("vocabulary", {}) if export else {}
    return {side: facts["tags"] for side, facts in sides.items() if "tags" in facts}


class Signatures(dict[str, Any]):
    """The functions of an export by their names."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"this export has no signature {name!r}: it is of another version")


def open_signatures(path: str | PathLike[str], **options: Any) -> Signatures:
    """Returns the functions of strings of a run's model, or of an export.

    The functions are those of `serving.export`: "n_best", "translate", "score", "align" and so on,
    called with tensors by name.

    Args:
        path: a run, whose exports are left alone; a SavedModel, or a directory of versions.
        **options: `beam_size` and `length_penalty` of the search of a run; None leaves its own.

    Raises:
        ValueError: when there is neither an export nor a run, or an export's search would change.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the operations of a SavedModel)

    from keras_transformer.serving.saved_model import tensorflow_path

    check_model(path, **options)
    if is_run(path):
        needed: Any = load_translator(path, **options)
        functions = needed.string_functions.signatures
    else:
        needed = tf.saved_model.load(tensorflow_path(find_export(path) or path))
        functions = needed.signatures
    # The functions need the model's variables as long as they are used.
    return Signatures({name: _Kept(function, needed) for name, function in functions.items()})


class _Kept:
    """A function of named tensors, and the model that it needs."""

    def __init__(self, function: Any, model: Any) -> None:
        self.function, self.model = function, model

    @property
    def inputs(self) -> set[str]:
        """The names of its tensors."""
        signature = getattr(self.function, "structured_input_signature", None)
        if signature is not None:  # of a loaded function
            return set(signature[1])
        return {spec.name for spec in self.function.input_signature}

    def __call__(self, **tensors: Any) -> dict[str, Any]:
        return {name: array.numpy() for name, array in self.function(**tensors).items()}
