"""Tokens a second of training steps beside other implementations, measured in turns.

    python -m benchmarks.training [--peers DIR] [--peer-python PYTHON] [--sizes tiny base]

Sizes, data and losses are those of the peers' scripts, which `--peers` names: tiny has d_model 128,
4+4 layers and 128 pairs of 16+16 tokens, base 512, 6+6 and 32 of 32+32; 8,000 tokens, dropout and
label smoothing 0.1, Adam. Every measurement is a process of its own, all take turns in each
round, and the best round of each counts. Leave the machine alone meanwhile.
"""

import argparse
import json
import os
import subprocess
import sys

THREADS = {"OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}
# name: script and options
OURS = {"ours": [], "ours, no XLA": ["--no-jit"]}
TUTORIAL = "keras_tutorial.py"
PEERS = {
    "PyTorch eager": ["torch_nn.py"],
    "Keras tutorial, graph": [TUTORIAL, "--jit", "0", "--loss", "sparse"],
    "Keras tutorial, XLA": [TUTORIAL, "--jit", "1", "--loss", "sparse"],
    "Keras tutorial, JAX": [TUTORIAL, "--jit", "1", "--loss", "sparse", "--backend", "jax"],
    "KerasHub": ["kerashub.py"],
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
                line = ours(name, size) if name in OURS else peer(name, size, args)
                shown = "failed"
                if line:
                    shown = f"{line['tok_s']:8,} tokens/s, first step {line['first_s']:6.1f} s, "
                    shown += f"peak {line['rss_mb']:,} MB"
                    if line["tok_s"] > best.get(name, {"tok_s": 0})["tok_s"]:
                        best[name] = line
                print(f"round {number + 1}  {size}  {name:<24} {shown}", flush=True)
        own = best["ours"]["tok_s"]
        for name, line in best.items():
            print(f"{size}: ours against {name:<24} {own / line['tok_s']:6.2f}x")


def ours(name, size):
    """The line printed by our own contestant."""
    command = [sys.executable, "-m", "benchmarks.ours_training", "--size", size, *OURS[name]]
    return last_line(command, {})


def peer(name, size, args):
    """The line printed by a peer's script."""
    script, *options = PEERS[name]
    command = [args.peer_python, script, "--size", size, *options]
    return last_line(command, THREADS, cwd=args.peers)


def last_line(command, environment, cwd=None):
    """Runs `command` and returns the last JSON line it printed, or None when it failed."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=cwd, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print(done.stderr[-600:], file=sys.stderr)
    return lines[-1] if lines else None


if __name__ == "__main__":
    main()
