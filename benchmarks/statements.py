"""Checks what lectures say of attention by small experiments, each with a picture and an outcome.

    python -m benchmarks.statements [NAME ...] [--seeds 1 2 3] [--results FILE] [--pictures DIR]

Two names: long (attention helps most on long sequences) and scaling (wide dot products need it,
additive similarity does not). Those of benchmarks.variants are about the parts of a Transformer:
heads, key_width, positions, positions_long, sum, dropout, dropout_long, size. Without names: all.
Without --seeds each has those of docs/lab/comparison.md.

Results stay in FILE: stopped, or with more seeds, the same command goes on with what is missing.
Where nothing is, it trains nothing. The tables of docs/lab/comparison.md and their pictures come
from

    python -m benchmarks.statements --results benchmarks/results/statements.jsonl

One thread, TensorFlow without XLA, so that the seconds of the processor say what a run costs.
"""

import argparse
import os
import types

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks import experiments
from benchmarks.reversing import check_long
from benchmarks.scaling import check_scaling
from benchmarks.variants import STATEMENTS, check_parts

NAMES = ["long", "scaling", *STATEMENTS]
# Three seeds each; more were added, after a look at three, where those could not tell.
NUM_SEEDS = {"scaling": 8, "heads": 5, "positions": 5, "sum": 5}


def main():
    """Runs the experiments that are asked for and missing; prints and draws their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--results", default="runs/statements.jsonl", metavar="FILE")
    parser.add_argument("--pictures", default="docs/pictures", metavar="DIR")
    args = parser.parse_args()
    for name in args.names:
        if name not in NAMES:
            parser.error(f"NAME must be one of {', '.join(NAMES)}. Received: {name}")
    experiments.one_thread()
    results = experiments.Results(args.results)
    for name in args.names or NAMES:
        print(f"\n== {name}", flush=True)
        check(name, results, args.pictures, args.seeds)


def check(name, results, pictures, seeds=None):
    """Runs what is missing of one experiment; prints and draws its outcome."""
    seeds = seeds or list(range(1, NUM_SEEDS.get(name, 3) + 1))
    args = types.SimpleNamespace(seeds=seeds, pictures=pictures)
    if name == "long":
        check_long(results, args)
    elif name == "scaling":
        check_scaling(results, args)
    else:
        check_parts(name, results, args)


if __name__ == "__main__":
    main()
