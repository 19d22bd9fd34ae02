"""Says what a run or an export is: sizes, settings, scores and signatures.

Settings that are off, empty or of another kind of model are left out; --json has all.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from keras_transformer.card_file import read_card
from keras_transformer.commands.program import (
    Program,
    examples,
    in_words,
    table,
    use_a_backend,
    use_tensorflow,
)
from keras_transformer.recipes.run_files import check_run, find_export, is_run
from keras_transformer.recipes.settings import (
    RECURRENT_ONLY,
    SETTINGS,
    TRANSFORMER_ONLY,
    read_settings,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("path", metavar="PATH", help="a run, the --output of train; or an export")
    parser.epilog = examples(
        "info runs/en-de",
        "info runs/en-de/export/1",
        "info runs/en-de --json",
    )


def run(args: argparse.Namespace, program: Program) -> dict[str, Any]:
    """Prints what is known without loading the model."""
    figures: dict[str, Any] = {}
    path = Path(args.path)
    export = find_export(path)
    if export is None and not (path / SETTINGS).exists():
        check_run(path)
    use_a_backend()
    if (path / SETTINGS).exists():
        figures["run"] = about_run(path, program)
    if export is not None:
        use_tensorflow()
        figures["export"] = about_export(export, program)
    if not is_run(path) and export is None:
        reason = "the training keeps one at its end"
        if not figures["run"]["epochs"]:
            reason = "the training has not finished an epoch"
        program.say(f"No model yet: {reason}.")
    return figures


def about_run(path: Path, program: Program) -> dict[str, Any]:
    """Prints the settings, the epochs and the scores of a run."""
    from keras_transformer.recipes.run_directory import RunDirectory

    directory = RunDirectory(path)
    settings = read_settings(path / SETTINGS)[0]
    history = directory.read_history(sys.maxsize)
    epochs = max(directory.epochs_done(), len(history))
    minutes = sum(row.get("seconds", 0.0) for row in history) / 60
    summary = path / "summary.txt"
    scores = summary.read_text(encoding="utf-8").splitlines() if summary.exists() else []
    program.say(f"{path}: {directory.progress if epochs else 'no history of epochs'}")
    others: tuple[str, ...] = (
        TRANSFORMER_ONLY if settings.get("model") == "recurrent" else RECURRENT_ONLY
    )
    if settings.get("format") != "dates":
        others += ("source_locale", "target_locale")
    told = {n: v for n, v in settings.items() if n not in others and v not in ("", [], False)}
    for line in table([[f"  {name}", str(value)] for name, value in told.items()]):
        program.say(line)
    for line in scores:
        program.say(line)
    last = history[-1] if history else {}
    return {
        "settings": settings,
        "epochs": epochs,
        "minutes": minutes,
        "last_epoch": last,
        "scores": scores,
    }


def about_export(path: Path, program: Program) -> dict[str, Any]:
    """Prints the model, the search and the signatures of a SavedModel."""
    import contextlib

    from keras_transformer import decoding
    from keras_transformer.recipes.runs import read_search
    from keras_transformer.serving import describe_export

    with contextlib.redirect_stdout(program.notes):
        description = describe_export(path)
    card = read_card(path)
    if card:
        model = card["model"]
        program.say(f"{model['class']} of {model['parameters']:,} parameters")
        is_own = not hasattr(decoding, card["search"]["class"])
        program.say(card["search"]["class"] if is_own else in_words(read_search(card)))
    return {"path": str(path), **description, "card": card}
