"""Tokens a second of training steps beside other implementations, measured in turns.

    python -m benchmarks.training [--peers DIR] [--peer-python PYTHON] [--sizes tiny base]

Sizes, data and losses are those of the peers' scripts, which `--peers` names: tiny has d_model 128,
4+4 layers and 128 pairs of 16+16 tokens, base 512, 6+6 and 32 of 32+32; 8,000 tokens, dropout and
label smoothing 0.1, Adam. Every measurement is a process of its own, all take turns in each
round, and the best round of each counts. Leave the machine alone meanwhile: a line says so where
a peer found that other processes took more than a tenth of a core. Compilations are those of XLA.
Every contestant is checked to have its dropout on: two steps of `fit` that learn nothing differ.
"""

import argparse
import os
import sys
from pathlib import Path

from benchmarks.timing import LOG_COMPILATIONS, THREADS, lines_of

# name: script and options
OURS = {
    "ours": [],
    "ours, from texts": ["--texts"],
    "ours, graph": ["--no-jit"],
    "ours, bfloat16": ["--no-jit", "--policy", "mixed_bfloat16"],
}
COLUMNS = ("ours", "ours, bfloat16")
TUTORIAL = "keras_tutorial.py"
PEERS = {
    "PyTorch eager": ["torch_nn.py"],
    "PyTorch eager, bfloat16": ["torch_nn.py", "--bf16"],
    "Keras tutorial, graph": [TUTORIAL, "--jit", "0", "--loss", "sparse"],
    "Keras tutorial, XLA": [TUTORIAL, "--jit", "1", "--loss", "sparse"],
    "Keras tutorial, JAX": [TUTORIAL, "--jit", "1", "--loss", "sparse", "--backend", "jax"],
    "Keras tutorial, bfloat16": [TUTORIAL, "--jit", "0", "--loss", "sparse", "--bf16"],
    "KerasHub, graph": ["kerashub.py", "--jit", "0", "--loss", "sparse"],
    "KerasHub, XLA": ["kerashub.py", "--jit", "1", "--loss", "sparse"],
}


def main():
    """Runs the contestants in turns and prints the table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="../shared/peers/training", metavar="DIR")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--sizes", nargs="+", default=["tiny", "base"], choices=["tiny", "base"])
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    peers = PEERS if os.path.isdir(args.peers) else {}
    if not peers:
        print(f"no peers in {args.peers}: ours alone")
    for size in args.sizes:
        best = {}
        for number in range(args.rounds):
            for name in [*OURS, *peers]:
                lines = ours(name, size) if name in OURS else peer(name, size, args)
                for line in lines[-1:]:
                    if line["tok_s"] > best.get(name, {"tok_s": 0})["tok_s"]:
                        best[name] = line
                    others, compiled = line.get("other_cores", 0), line["compilations"]
                    print(
                        f"round {number + 1}  {size}  {name:<24} {line['tok_s']:8,} tokens/s, "
                        f"first step {line['first_s']:6.1f} s, {compiled} compilations, "
                        f"peak {line['rss_mb']:,} MB"
                        + (f"; others took {others} cores" if others > 0.1 else "")
                        + ("" if line["dropout"] else "; TRAINS WITHOUT DROPOUT"),
                        flush=True,
                    )
        head = f"{'tokens/s':>9} {'ours is':>9} {'in bfloat16':>12}"
        print(f"\n{size:<26} {head} {'first step':>11} {'compiled':>9} {'peak':>9}")
        for name, line in best.items():
            ratios = [best[own]["tok_s"] / line["tok_s"] if own in best else 0 for own in COLUMNS]
            print(
                f"{name:<26} {line['tok_s']:>9,} {ratios[0]:>8.2f}x {ratios[1]:>11.2f}x "
                f"{line['first_s']:>9.1f} s {line['compilations']:>9} {line['rss_mb']:>6,} MB"
            )


def ours(name, size):
    """The lines printed by our own contestant."""
    command = [sys.executable, "-m", "benchmarks.ours_training", "--size", size, *OURS[name]]
    return lines_of(command, LOG_COMPILATIONS)


def peer(name, size, args):
    """The lines printed by a peer's script."""
    script, *options = PEERS[name]
    runner = Path(__file__).resolve().parent / "peer_training.py"
    command = [args.peer_python, str(runner), script, "--size", size, *options]
    environment = {**THREADS, **LOG_COMPILATIONS, "PYTHONPATH": str(runner.parents[1])}
    return lines_of(command, environment, cwd=args.peers)


if __name__ == "__main__":
    main()
