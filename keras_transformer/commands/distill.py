"""Trains a smaller, faster model on the translations of a run, its teacher.

The teacher translates its training texts with its newest export, and the student learns these
translations. It has a deep encoder and a shallow decoder: the preset is fast- and the name of the
teacher's. All that is not given is as in the settings of the teacher: its texts, vocabularies and
recipe. The end says how good and how fast both are.
Stopped in the translation or in the training, the same command goes on.
"""

import argparse
import dataclasses
from typing import Any

from keras_transformer.commands.program import Program, examples, table
from keras_transformer.commands.train import (
    add_settings,
    fields_as_options,
    given_settings,
    prepare,
    training_to,
)
from keras_transformer.recipes.run_files import VOCABULARY, student_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the teacher, and the settings that a student may have otherwise."""
    parser.usage = "%(prog)s RUN --output DIR [options]"
    parser.add_argument("teacher", metavar="RUN", help="the teacher, the --output of train")
    parser.add_argument(
        "--output",
        metavar="DIR",
        required=True,
        help="the run of the student: a new directory, or one to go on with",
    )
    left_out = {*VOCABULARY, "start_from", "teacher", "backend", "input_sentence_size"}
    add_settings(parser, left_out, shows_defaults=False)
    parser.epilog = examples(
        "distill runs/en-de --output runs/en-de-fast",
        "distill runs/en-de --num-decoder-layers 2 --epochs 60 --output runs/en-de-fast",
        "distill runs/words --num-layers 4 --num-decoder-layers 1 --output runs/words-fast",
    )


def run(args: argparse.Namespace, program: Program) -> dict[str, Any]:
    """Checks the settings before anything heavy is imported, then trains and compares."""
    given = given_settings(args)
    del given["teacher"]
    with fields_as_options():
        settings = student_settings(args.teacher, **given)
    prepare(settings)
    with training_to(args.output, program):
        from keras_transformer.recipes.distillation import distill

        made = distill(args.teacher, args.output, **given)
    program.say(made.run.summary)
    for line in table(made.summary):
        program.say(line)
    scores = {
        who: {score.name: score._asdict() for score in found}
        for who, found in (("teacher", made.teacher_scores), ("student", made.run.scores))
    }
    return {
        "output": args.output,
        "scores": scores,
        "tokens_per_second": {str(size): speeds for size, speeds in made.speeds.items()},
        "settings": dataclasses.asdict(settings),
    }
