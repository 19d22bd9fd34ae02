"""What the files of a run or an export say, read without Keras: so a command can refuse at once."""

import csv
import dataclasses
import json
import os
from os import PathLike
from pathlib import Path
from typing import Any

from keras_transformer.card_file import is_onnx, read_card
from keras_transformer.recipes.presets import PRESETS
from keras_transformer.recipes.settings import (
    BACKENDS,
    IMPORTED,
    RECURRENT_ONLY,
    SETTINGS,
    Settings,
    read_settings,
)

PREDICTIONS = "predictions.tsv"
LONGEST_FIELD = 2**31 - 1  # characters, the most that `csv` takes on every system
# Of the options that an import keeps, those that its training needs too.
TAGS_AND_ENDS = ("source_tag", "target_tag", "source_eos")
CORPORA = "corpora"  # of a run on large files
EARLIER_SETTINGS = "settings.json"  # of version 0.1.0
# What a student has as its teacher, whose vocabularies it has.
VOCABULARY: tuple[str, ...] = ("format", "source_locale", "target_locale", "vocab_size")
VOCABULARY += ("user_defined_symbols", "separate_vocabularies", "lowercase", "normalization")
VOCABULARY += ("source_normalization", "right_to_left")
# What it does not take over. It learns in one direction, from the beginning.
STUDENTS_OWN: tuple[str, ...] = ("preset", "num_layers", "num_decoder_layers")
STUDENTS_OWN += ("start_from", "teacher")
STUDENTS_OWN += ("both_directions", "backend", "steps_per_execution")
STUDENTS_OWN += ("data_parallel", "model_parallel")


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
    """Whether `path` is the directory of a training run with a model."""
    return all((Path(path) / name).exists() for name in (SETTINGS, "model.keras"))


def has_begun(path: str | PathLike[str]) -> bool:
    """Whether the directory of a run has an epoch to go on from, as `ExactResume` keeps it."""
    return (Path(path) / "state.npz").exists()


def check_version(path: str | PathLike[str]) -> None:
    """Raises `ValueError` for a run of version 0.1.0, which this version cannot go on with."""
    path = Path(path)
    if (path / EARLIER_SETTINGS).exists() and not (path / SETTINGS).exists():
        raise ValueError(
            f"{path} is a run of version 0.1.0, whose export in {path / 'export'} still "
            "translates. To export it anew, use a clone of the repository at that version: "
            '`pip install -e ".[tensorflow,plots,eval]"`'
        )


def check_directory(path: str | PathLike[str]) -> None:
    """Raises `ValueError` unless `path` is a directory of this machine."""
    name = os.fspath(path)
    if Path(path).is_dir():
        return
    if "://" in name:
        raise ValueError(f"{name}: is an address. Download it, and give the directory")
    raise ValueError(f"{name}: there is no such directory. Check the path")


def is_decoder_file(path: str | PathLike[str]) -> bool:
    """Whether `path` is a file of Marian's settings, one of several in its directory."""
    return Path(path).suffix == ".yml" and Path(path).is_file()


def check_run(path: str | PathLike[str]) -> None:
    """Raises `ValueError` unless `path` is the directory of a run with a model."""
    path = Path(path)
    if is_run(path):
        return
    if not path.is_dir():
        raise ValueError(f"{path}: there is no such directory. Check the path")
    check_version(path)
    if (path / SETTINGS).exists():
        raise ValueError(
            f"{path} has no model yet. Go on training it: "
            f"keras-transformer train --config {path / SETTINGS} --output {path}"
        )
    raise ValueError(
        f"{path} must be the directory of a run, with settings.toml and model.keras. "
        "`keras-transformer train` writes one"
    )


def check_model(
    path: str | PathLike[str], beam_size: int | None = None, length_penalty: float | None = None
) -> None:
    """Raises `ValueError` unless `path` is a run, or an export whose search stays as it is."""
    if not is_run(path) and find_export(path) is not None:
        if beam_size is not None or length_penalty is not None:
            raise ValueError(
                f"{path} must be the directory of a run to change the search: an export keeps its "
                "own. Leave out the beam size and the length penalty, or export the run again"
            )
        return
    check_run(path)
    change_search(read_run(path)[0], beam_size, length_penalty)


def read_run(path: str | PathLike[str]) -> tuple[Settings, dict[str, Any]]:
    """The settings of a run, and what else it began with or found out."""
    values, facts = read_settings(Path(path) / SETTINGS)
    return Settings.from_preset(**values), facts


def read_imported(path: str | PathLike[str]) -> dict[str, Any]:
    """What a run keeps of the system that its model came from; empty for a model of our own.

    That is the system, "from", the configuration of the "model", its "unused_ids", the "search",
    and the "options" of its translator. Its training has those of `TAGS_AND_ENDS`.
    """
    file = Path(path) / IMPORTED
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def change_search(
    settings: Settings, beam_size: int | None = None, length_penalty: float | None = None
) -> Settings:
    """Settings with another search; None leaves what they have.

    Raises:
        ValueError: for a length penalty of greedy search.

    Example:

    >>> change_search(Settings.from_preset("tiny", train="a.tsv"), beam_size=8).search_name
    'beam 8, length penalty 0.6'
    """
    if beam_size is not None:
        settings = dataclasses.replace(settings, beam_size=beam_size)
    if length_penalty is None:
        return settings
    if settings.beam_size == 1:
        raise ValueError("a length penalty needs a beam of at least 2. Give a beam size too")
    return dataclasses.replace(settings, length_penalty=length_penalty)


def student_settings(teacher: str | PathLike[str], **given: Any) -> Settings:
    """The settings of a run that learns from translations by another one, its teacher.

    They are the teacher's but for the layers: the preset is `fast-` and the name of the teacher's.

    Args:
        teacher: directory of the other run.
        **given: fields of `Settings` in their place.

    Raises:
        ValueError: when the teacher is not a run that can teach, a file of its texts is gone, or a
            value is bad.

    Example:

    >>> student_settings("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: nowhere: there is no such directory. Check the path
    """
    check_run(teacher)
    own = read_run(teacher)[0]
    kept = {name: value for name, value in own.changes().items() if name not in STUDENTS_OWN}
    if own.model == "recurrent":  # the student is a Transformer, of the sizes of its preset
        kept = {n: v for n, v in kept.items() if n not in ("model", "d_model", *RECURRENT_ONLY)}
    kept |= {name: getattr(own, name) for name in VOCABULARY}
    if "train" in given:  # the teacher's corpora may be others
        kept = {name: v for name, v in kept.items() if not name.startswith("mixing_")}
    elif len(own.train) > 2:
        raise ValueError(
            f"`train` must be given, the files of one corpus, because {os.fspath(teacher)} learned "
            f"from {len(own.train) // 2}. Received: none"
        )
    fast = f"fast-{own.preset.removeprefix('fast-')}"
    if fast not in PRESETS and not given.keys() & {"preset", "num_decoder_layers"}:
        raise ValueError(
            f"`num_decoder_layers` must be given where there is no preset {fast!r}. Received: none"
        )
    kept |= {"preset": fast if fast in PRESETS else own.preset, "backend": BACKENDS[0]}
    settings = Settings.from_preset(**{**kept, **given, "teacher": os.fspath(teacher)})
    check_teacher(settings)
    for name in ("train", "validation", "test"):
        for file in getattr(settings, name):
            if not Path(file).is_file():
                way = "Check the path"
                if name not in given:
                    way = f"{teacher} had it for `{name}`. Give `{name}`, or start where it is"
                raise ValueError(f"{file}: there is no such file. {way}")
    return settings


def check_import(settings: Settings) -> None:
    """Raises `ValueError` for settings of an imported model that start from no run."""
    if settings.model == "imported" and not settings.start_from:
        rule = "`model` 'imported' needs `start_from`, the run of an import"
        raise ValueError(f"{rule}. Received: start_from={settings.start_from!r}")


def check_teacher(settings: Settings) -> None:
    """Raises `ValueError` unless a run with these settings can learn from the run `teacher`."""
    teacher = settings.teacher
    check_run(teacher)
    if read_imported(teacher):
        raise ValueError(
            f"{teacher} must be a run that learned from texts to be a teacher. Received: a model "
            "of another system"
        )
    # What was held out of the teacher's training is held out of the student's too.
    names = VOCABULARY if settings.validation and settings.test else (*VOCABULARY, "seed")
    if differing := read_run(teacher)[0].differences(settings, names):
        raise ValueError(f"{teacher} cannot be the teacher of this run: {differing}")
    newest_export(teacher)


def newest_export(path: str | PathLike[str]) -> Path:
    """The newest export of a run, or an export itself; raises `ValueError` where there is none."""
    export = find_export(path)
    if export is None:
        raise ValueError(f"{path} has no export. Write it: keras-transformer export {path}")
    return export


def count_hypotheses(path: str | PathLike[str], beam_size: int | None = None) -> int | None:
    """How many translations of a text a run or an export gives; None where the card is silent."""
    if is_run(path):
        return change_search(read_run(path)[0], beam_size).beam_size
    export = Path(path) if is_onnx(path) else find_export(path)
    search = read_card(export).get("search", {}) if export else {}
    names = {"GreedySearch": "", "BeamSearch": "num_hypotheses", "Sampling": "num_samples"}
    name = names.get(search.get("class", ""))
    return None if name is None else search["settings"].get(name, 1)


def read_format(path: str | PathLike[str]) -> str:
    """The format of the pairs that a run or an export learned; "text" if nothing says another."""
    file = Path(path) / SETTINGS
    if file.exists():
        return read_settings(file)[0].get("format", "text")
    export = Path(path) if is_onnx(path) else find_export(path)
    data = read_card(export).get("data") if export else None
    return data.get("format", "text") if isinstance(data, dict) else "text"


def read_predictions(path: str | PathLike[str]) -> list[dict[str, str]]:
    """The sources, references and outputs of the test of a run, as the model reads and writes.

    Raises:
        ValueError: when the directory has none.
    """
    file = Path(path) / PREDICTIONS
    if not file.exists():
        raise ValueError(f"{path} has no {PREDICTIONS} of a run. Give --source and --reference")
    limit = csv.field_size_limit(LONGEST_FIELD)
    try:
        with open(file, newline="", encoding="utf-8") as opened:
            return list(csv.DictReader(opened, delimiter="\t"))
    finally:
        csv.field_size_limit(limit)
