"""Trains a model of pairs of texts, tests it and exports it.

Without --train it learns to write English dates, times and numbers in French, in a few minutes.
Stopped by Ctrl-C, a signal or a crash, the same command goes on from the last finished epoch.
Presets: dates and mini for short runs; tiny, small, base and big for texts. Presets symbols and
symbols-paper are for characters, phones and tags. Presets with fast- have a deep encoder and a
shallow decoder. Options win over --config, and that over --preset. A default of "4; dates, mini 2"
is 4, but 2 with --preset dates or mini.
"""

import argparse
import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from keras_transformer.commands.program import (
    Program,
    any_number,
    check_files,
    examples,
    import_keras,
    need,
    non_negative_integer,
    positive_integer,
    whole_number,
)
from keras_transformer.commands.together import (
    ending_at_once,
    go_on_in_child,
    print_own_lines,
)
from keras_transformer.recipes.presets import PRESETS, RECURRENT_SIZES
from keras_transformer.recipes.run_files import (
    check_import,
    check_run,
    check_teacher,
    has_begun,
)
from keras_transformer.recipes.settings import FIELDS, Settings, read_settings

GROUPS = {  # the first option of each, and its heading
    "preset": "texts",
    "model": "model",
    "cell": "recurrent model (--model recurrent)",
    "epochs": "training",
    "measure_every": "which model is kept",
    "beam_size": "test and export",
}
MANY = {"train": "FILE", "validation": "FILE", "test": "FILE", "subword_dropout": "RATE"}
MANY |= {"mixing_weights": "NUMBER"}
MANY |= {"user_defined_symbols": "SYMBOL", "source_scripts": "SCRIPT", "target_scripts": "SCRIPT"}
METAVARS = {"start_from": "RUN", "teacher": "RUN", "minutes": "MINUTES", "measure_every": "EPOCHS"}
METAVARS |= {"average": "EPOCHS", "both_directions": "EPOCHS", "on_disk_from": "MIB"}
DEFAULTS = {  # where another option decides
    "preset": "dates without --train, tiny for texts, symbols for the other formats",
    "format": "text with --train, else dates",
}
TYPES = {int: ("N", whole_number), float: ("NUMBER", any_number), str: ("NAME", str)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds an option for each field of `Settings`."""
    parser.usage = "%(prog)s [options]"
    parser.add_argument("--config", metavar="FILE", help="settings.toml of a run, or one like it")
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="the run: a new directory, or one to go on with (default: runs/ and a name of the "
        "texts and the preset, as runs/train-en-de-tiny)",
    )
    add_settings(parser)
    group = parser.add_argument_group(
        "several processes",
        "With JAX the same command in N processes trains one model on all their devices. The "
        "processes may be on several machines.\n"
        "--output must be a directory that all see. The first process writes.",
    )
    group.add_argument(
        "--processes", type=positive_integer, default=1, metavar="N", help="number of processes"
    )
    group.add_argument(
        "--process-id",
        type=non_negative_integer,
        metavar="K",
        help="which of them this one is, from 0 on (default: what Slurm or Open MPI 4 says)",
    )
    group.add_argument(
        "--coordinator",
        metavar="HOST:PORT",
        help="where process 0 listens (default: what Slurm or Open MPI 4 says)",
    )
    parser.epilog = examples(
        "train",
        "train --train train.en train.de --validation val.en val.de --epochs 40",
        "train --train words.tsv --format g2p --beam-size 5 --output runs/phones",
    )


def add_settings(
    parser: argparse.ArgumentParser, left_out: Collection[str] = (), shows_defaults: bool = True
) -> None:
    """Adds an option for each field of `Settings` but for some."""
    helps = read_helps()
    group: Any = parser
    for name, field in FIELDS.items():
        if name in GROUPS:
            group = parser.add_argument_group(GROUPS[name])
        if name in left_out:
            continue
        default = describe_default(name) if shows_defaults else ""
        options: dict[str, Any] = {"help": f"{helps[name]}{default}"}
        if field.type in (bool, bool | None):
            options["action"] = argparse.BooleanOptionalAction
        elif name in MANY:
            kind = any_number if MANY[name] in ("RATE", "NUMBER") else str
            options |= {"nargs": "+", "metavar": MANY[name], "type": kind}
        elif "choices" in field.metadata:
            options["choices"] = field.metadata["choices"]
        else:
            metavar, options["type"] = TYPES[field.type]  # type: ignore[index]
            options["metavar"] = METAVARS.get(name, metavar)
        if name == "preset":
            options |= {"choices": list(PRESETS), "metavar": None}
        group.add_argument(f"--{name.replace('_', '-')}", default=None, **options)


def run(args: argparse.Namespace, program: Program) -> dict[str, Any] | None:
    """Checks the settings before anything heavy is imported, then trains."""
    settings = make_settings(args)
    with fields_as_options():
        check_import(settings)
    output = args.output or str(Path("runs") / default_name(settings))
    begun = has_begun(output)  # then it needs no other run any more
    if settings.start_from and not begun:
        check_run(settings.start_from)
    if settings.teacher and not begun:
        check_teacher(settings)
    prepare(settings)
    if args.processes > 1:
        return train_together(args, program, settings, output)
    if args.process_id is not None or args.coordinator is not None:
        raise ValueError("--process-id and --coordinator need --processes above 1")
    return train_here(program, settings, output)


def prepare(settings: Settings) -> None:
    """Checks that the files and libraries of a run are there, and chooses the backend."""
    names = (settings.normalization, settings.source_normalization)
    rules = [name for name in names if name.endswith(".tsv")]
    check_files(*settings.train, *settings.validation, *settings.test, *rules)
    if settings.format == "dates":
        need("eval", "babel")
    needed = {"tensorflow": ("tensorflow", "tensorflow_text")}
    need(settings.backend, *needed.get(settings.backend, (settings.backend,)))
    os.environ["KERAS_BACKEND"] = settings.backend


def train_here(program: Program, settings: Settings, output: str) -> dict[str, Any]:
    """Trains, and returns the figures."""
    with training_to(output, program):
        from keras_transformer.recipes.training import train

        made = train(settings, output)
    program.say(made.summary)
    scores = {score.name: score._asdict() for score in made.scores}
    return {"output": output, "scores": scores, "settings": dataclasses.asdict(settings)}


@contextlib.contextmanager
def training_to(output: str, program: Program) -> Iterator[None]:
    """Prints what Keras prints where the program does, and says how an interrupted run goes on."""
    import_keras()
    with contextlib.redirect_stdout(program.notes):
        try:
            yield
        except KeyboardInterrupt:
            program.say(f"\nWhat was finished is in {output}; run the same command to go on.")
            raise


def train_together(
    args: argparse.Namespace, program: Program, settings: Settings, output: str
) -> dict[str, Any] | None:
    """Trains as one of several processes; the first alone prints and has figures."""
    advice = (
        "Start all of them again with the same commands: they go on from the last finished epoch "
        f"in {output}"
    )
    go_on_in_child(advice)
    with ending_at_once(advice, as_options):
        from keras_transformer.process_group import is_first, join_processes

        join_processes(args.processes, args.process_id, args.coordinator)
        print_own_lines(program, is_first())
        figures = train_here(program, settings, output)
        return figures if is_first() else None


def make_settings(args: argparse.Namespace) -> Settings:
    """The settings of the preset. The file's win over them, and options over all."""
    values: dict[str, Any] = {}
    given = given_settings(args)
    with fields_as_options():
        if args.config:
            values, _ = read_settings(args.config)
            if {"preset", "model", "format"} & set(given):
                # What the file has from its own preset gives way to that of the options.
                of_file = Settings.from_preset(**values)
                chosen = {name: getattr(of_file, name) for name in ("preset", "model", "format")}
                values = {**chosen, **of_file.changes()}
        return Settings.from_preset(**{**values, **given})


def given_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The fields whose options were given."""
    values = {name: getattr(args, name, None) for name in FIELDS}
    return {name: value for name, value in values.items() if value is not None}


@contextlib.contextmanager
def fields_as_options() -> Iterator[None]:
    """Names options in the messages of `ValueError`, where they have fields."""
    try:
        yield
    except ValueError as error:
        raise ValueError(as_options(str(error))) from None


def as_options(message: str) -> str:
    """A message with options in place of the arguments and fields that they are."""
    return re.sub("`(\\w+)`", lambda found: name_option(found[1]), message)


def name_option(name: str) -> str:
    """The option of a field."""
    is_option = name in FIELDS or name in ("processes", "process_id", "coordinator")
    return f"--{name.replace('_', '-')}" if is_option else f"`{name}`"


def read_helps() -> dict[str, str]:
    """What the docstring of `Settings` says of each field."""
    found = re.findall(r"^        (\w+): (.+(?:\n {12}.+)*)", Settings.__doc__ or "", re.MULTILINE)
    helps = {name: " ".join(text.split()).rstrip(".") for name, text in found}
    return {name: helps[name].replace("%", "%%") for name in FIELDS}


def describe_default(name: str) -> str:
    """What the help says of a field's default: its value, and those of presets that have others."""
    if name in DEFAULTS:
        return f" (default: {DEFAULTS[name]})"
    default = FIELDS[name].default
    others: dict[Any, list[str]] = {}
    for preset, values in PRESETS.items():
        if values.get(name, default) != default:
            others.setdefault(values[name], []).append(preset)
    if not others and default in ("", (), None, False, 0):
        return ""
    parts = [in_words(default)]
    parts += [f"{', '.join(presets)} {in_words(value)}" for value, presets in others.items()]
    sizes = [values[name] for values in RECURRENT_SIZES.values() if name in values]
    if sizes:
        parts.append(f"recurrent models {min(sizes)} to {max(sizes)}")
    return f" (default: {'; '.join(parts)})"


def in_words(value: Any) -> str:
    """The value of a default as a user writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "no limit" if value == math.inf else f"{value:.3g}"
    return str(value)


def default_name(settings: Settings) -> str:
    """A name for the run: train.en and train.de.gz give train-en-de-PRESET."""
    if settings.format == "dates":
        parts = ["dates", settings.source_locale, settings.target_locale]
        parts += [settings.preset] * (settings.preset != "dates")
    else:
        files = [Path(name.removesuffix(".gz")) for name in settings.train]
        endings = [file.suffix[1:] for file in files[:2]] if len(files) > 1 else []
        parts = [files[0].stem, *endings, settings.preset]
    if settings.model == "recurrent":
        parts += ["recurrent", settings.cell, settings.similarity]
    return "-".join(parts)
