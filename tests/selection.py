"""How a run of the tests is divided: between processes, and between the default run and others."""

import functools
import itertools
import re

import pytest

# Those that take longest, in the default run or as slow tests. They begin first, so that no core
# waits for the other at the end. Two processes take a file each, and the next when it is done.
LONGEST_FILES = (
    "examples/test_examples_small.py",
    "commands/test_train.py",
    "callbacks/test_exact_resume.py",
    "recipes/test_training.py",
    "test_readme.py",
    "test_replicas.py",
    "serving/test_id_functions_quantized.py",
    "serving/test_translator.py",
    "models/test_transformer.py",
    "models/test_transformer_options.py",
    "serving/test_local_server.py",
    "serving/test_string_functions.py",
    "serving/test_export_hostile_input.py",
    "benchmarks/test_timing.py",
    "models/test_sequence_to_sequence_generation.py",
    "serving/test_portable_translator.py",
    "layers/test_layers_contracts.py",
    "models/test_recurrent.py",
    "models/test_transformer_half_precision.py",
    "layers/test_stack_rematerialization.py",
    "decoding/test_search_options.py",
    "recipes/test_dates.py",
    "recipes/test_attention_explorer.py",
    "commands/test_export.py",
    "commands/test_translate.py",
    "recipes/test_runs.py",
    "commands/test_main.py",
)


@functools.cache
def calls_the_trained(path):
    """Whether a file of tests calls the trained translator of `serving/trained.py`, or its export.

    One process runs all of these: the other would train, trace and export it again.
    """
    text = path.read_text(encoding="utf-8")
    return re.search(r"serving\.trained|\bexported|\brun_directory", text) is not None


def processes_for(paths):
    """How many processes run the tests of these paths, beside the one that pytest is.

    Two where a folder is among them: each takes up to 3 GB. None for files alone, whose tests
    begin at once.
    """
    return 2 if any(path.is_dir() for path in paths) else 0


def spread(*axes):
    """All combinations of the axes' values; the default run tries each value once.

    Combination n of the default run takes value n of each axis, beginning anew where an axis
    ends. So it has as many combinations as the longest axis has values; the others are slow.
    """
    axes = [list(axis) for axis in axes]
    sizes = [len(axis) for axis in axes]
    chosen = {tuple(n % size for size in sizes) for n in range(max(sizes))}
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(axes, places, strict=True)),
            marks=() if places in chosen else pytest.mark.slow,
        )
        for places in itertools.product(*map(range, sizes))
    ]


def covering(*axes, strength=2):
    """Few combinations of the axes' values, in which any `strength` values occur together.

    A fault that shows under a combination of so many options shows in one of them. Of what is
    left, the combination that has the most new ones is the next.
    """
    every = list(itertools.product(*axes))
    places = list(itertools.combinations(range(len(axes)), strength))

    def parts(values):
        return {(place, tuple(values[axis] for axis in place)) for place in places}

    wanted = set().union(*map(parts, every))
    chosen = []
    while wanted:
        chosen.append(max(every, key=lambda values: len(parts(values) & wanted)))
        wanted -= parts(chosen[-1])
    return chosen
