"""Tokens a second of training steps beside other implementations, measured in turns.

    python -m benchmarks.training [--peers DIR] [--peer-python PYTHON] [--sizes tiny base]
        [--only NAME ...]

Sizes, data and losses are those of the peers' scripts, which `--peers` names. Tiny has d_model 128,
4+4 layers and 128 pairs of 16+16 tokens. Base has d_model 512, 6+6 layers and 32 pairs of 32+32
tokens. Each side has a vocabulary of 8,000; dropout and label smoothing are 0.1, the optimizer
Adam. Every measurement is a process of its own, and all take turns in each round. Speeds are
medians over the rounds, and ratios are medians of the ratios of each round. Leave the machine alone
meanwhile: a line says so where a peer found that other processes took more than a tenth of a core.
Compilations are those of XLA. Ours drops wherever one of the others does: embeddings, sub-layers,
attention weights and inner layers. Every contestant is checked to have its dropout on: two steps of
`fit` that learn nothing differ. All that are "from texts" are given the same batches by the same
dataset; ours measures perplexity and padding besides. Three of ours are computed in one part as
Keras does it, which tells what that part is worth.
"""

import argparse
import math
import os
import statistics
import sys
from pathlib import Path

from benchmarks.timing import LOG_COMPILATIONS, choose_threads, collect_lines

# name: script and options
OURS = {
    "ours": [],
    "ours, from texts": ["--texts"],
    "ours, graph": ["--no-jit"],
    "ours, rematerialised": ["--remat"],
    "ours, bfloat16": ["--no-jit", "--policy", "mixed_bfloat16"],
    "ours, JAX": [],
    "ours, Keras's dropout": ["--as-keras", "dropout"],
    "ours, Keras's projections": ["--as-keras", "projections"],
    "ours, loss by autodiff": ["--as-keras", "loss"],
}
# what a ratio is of, and the head of its column
COLUMNS = {"ours": "ours is", "ours, from texts": "from texts", "ours, bfloat16": "in bfloat16"}
TUTORIAL = ["keras_tutorial.py", "--loss", "sparse"]
TUTORIAL_JAX = ["--backend", "jax", "--drop", *TUTORIAL, "--backend", "jax", "--jit", "1"]
HUB = ["kerashub.py", "--loss", "sparse"]
HUB_JAX = ["--backend", "jax", *HUB, "--jit", "1"]
PEERS = {
    "PyTorch eager": ["torch_nn.py"],
    "PyTorch eager, bfloat16": ["torch_nn.py", "--bf16"],
    "Keras tutorial, graph": [*TUTORIAL, "--jit", "0"],
    "Keras tutorial, XLA": [*TUTORIAL, "--jit", "1"],
    "Keras tutorial, JAX": TUTORIAL_JAX,
    "Keras tutorial, bfloat16": [*TUTORIAL, "--jit", "0", "--bf16"],
    "Keras tutorial, XLA, bfloat16": [*TUTORIAL, "--jit", "1", "--bf16"],
    "Keras tutorial, JAX, bfloat16": [*TUTORIAL_JAX, "--bf16"],
    "Keras tutorial, graph, from texts": ["--texts", *TUTORIAL, "--jit", "0"],
    "Keras tutorial, XLA, from texts": ["--texts", *TUTORIAL, "--jit", "1"],
    "KerasHub, graph": [*HUB, "--jit", "0"],
    "KerasHub, XLA": [*HUB, "--jit", "1"],
    "KerasHub, JAX": HUB_JAX,
    "KerasHub, XLA, from texts": ["--texts", *HUB, "--jit", "1"],
    "KerasHub, bfloat16": ["--policy", "mixed_bfloat16", *HUB, "--jit", "0"],
    "KerasHub, XLA, bfloat16": ["--policy", "mixed_bfloat16", *HUB, "--jit", "1"],
    "KerasHub, JAX, bfloat16": ["--policy", "mixed_bfloat16", *HUB_JAX],
}


def main():
    """Runs the contestants in turns and prints the table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="../shared/peers/training", metavar="DIR")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--sizes", nargs="+", default=["tiny", "base"], choices=["tiny", "base"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", nargs="+", choices=[*OURS, *PEERS], metavar="NAME", help="these alone"
    )
    args = parser.parse_args()
    peers = PEERS if os.path.isdir(args.peers) else {}
    if not peers:
        print(f"no peers in {args.peers}: ours alone")
    names = [name for name in [*OURS, *peers] if not args.only or name in args.only]
    for size in args.sizes:
        rounds = {}  # of each contestant, its line in each round, None where it failed
        for number in range(args.rounds):
            for name in names:
                lines = ours(name, size) if name in OURS else peer(name, size, args)
                rounds.setdefault(name, []).append(lines[-1] if lines else None)
                if lines:
                    print(f"round {number + 1}  {size}  {told(name, lines[-1])}", flush=True)
        print_table(size, rounds)


def told(name, line):
    """What one measurement found, in one line of text."""
    others, own = line.get("other_cores", 0), line.get("own_cores", 2)
    return (
        f"{name:<34} {line['tok_s']:8,} tokens/s, first step {line['first_s']:6.1f} s, "
        f"{line['compilations']} compilations, peak {line['rss_mb']:,} MB"
        + (f"; others took {others} cores" if others > 0.1 else "")
        + (f"; HAD ONLY {own} CORES" if own < 1.4 else "")
        + ("" if line["dropout"] else "; TRAINS WITHOUT DROPOUT")
    )


def print_table(size, rounds):
    """Medians of the rounds of each contestant, and of the ratios of ours to it."""
    heads = "".join(f"{head:>13}" for head in COLUMNS.values())
    print(f"\n{size:<34} {'tokens/s':>9}{heads} {'first step':>11} {'compiled':>9} {'peak':>9}")
    for name, lines in rounds.items():
        found = [line for line in lines if line]
        if not found:
            print(f"{name:<34} failed")
            continue
        speed, first, compiled, peak = (
            statistics.median(line[key] for line in found)
            for key in ("tok_s", "first_s", "compilations", "rss_mb")
        )
        ratios = [ratio(rounds.get(own, [None] * len(lines)), lines) for own in COLUMNS]
        ratios = "".join(f"{number:>12.2f}x" for number in ratios)
        print(
            f"{name:<34} {speed:>9,.0f}{ratios} {first:>9.1f} s {compiled:>9.0f} {peak:>6,.0f} MB"
        )


def ratio(ours, others):
    """The median over the rounds of ours' speed as a multiple of another's; NaN without any."""
    both = [(own, other) for own, other in zip(ours, others, strict=True) if own and other]
    ratios = [own["tok_s"] / other["tok_s"] for own, other in both]
    return statistics.median(ratios) if ratios else math.nan


def ours(name, size):
    """The lines printed by our own contestant."""
    command = [sys.executable, "-m", "benchmarks.ours_training", "--size", size, *OURS[name]]
    backend = {"KERAS_BACKEND": "jax" if name.endswith("JAX") else "tensorflow"}
    return collect_lines(command, {**LOG_COMPILATIONS, **backend})


def peer(name, size, args):
    """The lines printed by a peer's script."""
    runner = Path(__file__).resolve().parent / "peer_training.py"
    command = [args.peer_python, str(runner), *PEERS[name], "--size", size]
    script = next(option for option in PEERS[name] if option.endswith(".py"))
    environment = {
        **choose_threads(script),
        **LOG_COMPILATIONS,
        "PYTHONPATH": str(runner.parents[1]),
    }
    return collect_lines(command, environment, cwd=args.peers)


if __name__ == "__main__":
    main()
