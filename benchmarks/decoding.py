"""Tokens a second of our exported search beside other engines, measured in turns.

    python -m benchmarks.decoding [--peers DIR] [--peer-python PYTHON] [--rounds 2]

Random weights, sources of 24 tokens, exactly 32 target tokens, strings left out. Base has d_model
512 and 6+6 layers, tiny 128 and 4+4, both a vocabulary of 8,000. The peers are timed by scripts of
their own, which `--peers` names; they need torch, transformers, ctranslate2 and keras-hub in the
environment of `--peer-python`. Every measurement is a process of its own, all contestants take
turns in each round, and the best round of each counts. Leave the machine alone meanwhile.

The models of the peers are made once, by `make_models.py` of that folder, where $PEER_MODELS says.
"""

import argparse
import os
import sys
import tempfile

from benchmarks.timing import THREADS, lines_of, threads_of

# Each peer: name, script, its options, and the searches it runs at which size.
PEERS = {
    "CTranslate2 float32": ("ctranslate2_translate.py", ["--compute", "float32"]),
    "CTranslate2 int8": ("ctranslate2_translate.py", ["--compute", "int8"]),
    "Hugging Face float32": ("huggingface.py", []),
    "KerasHub": ("kerashub.py", []),
}
# What is compared with what, and the least ratio aimed at for batches of 1, 8 and 32.
RACES = [
    ("base", 1, "float32", "CTranslate2 float32", (0.95, 1.05, 1.3)),
    ("base", 1, "float32", "Hugging Face float32", (2.2, 2.2, 1.5)),
    ("base", 1, "float32", "KerasHub", (2.2, 2.2, 2.4)),
    ("base", 4, "float32", "CTranslate2 float32", (0.9, 1.6, 1.5)),
    ("base", 1, "int8", "CTranslate2 int8", (0.65, 1.0, 0.95)),
    ("tiny", 1, "float32", "CTranslate2 float32", (0.9, 0.85, 1.1)),
    ("base", 1, "float32", "recomputing the prefix", (4, 4, 10)),
]
BATCHES = (1, 8, 32)
TARGETS = (32, 128, 512)


def main():
    """Runs the contestants in turns and prints the table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="../shared/peers/decoding", metavar="DIR")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    parser.add_argument("--races", type=int, nargs="+", help="numbers of the races to run, from 0")
    args = parser.parse_args()
    races = [RACES[number] for number in args.races] if args.races else RACES
    if not os.path.isdir(args.peers):
        print(f"no peers in {args.peers}: ours alone")
        races = [race for race in races if race[3].startswith("recomputing")]
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'':<50} {'tokens a second at batch 1, 8, 32':>36}", flush=True)
        best = {}
        for number in range(args.rounds):
            for size, beam, precision, rival, _ in races:
                for name in ("ours " + precision, rival):
                    key = (size, beam, name)
                    if (number, key) in best:
                        continue
                    best[number, key] = True
                    speeds = measured(key, args, folder)
                    best[key] = [max(pair) for pair in zip(best.get(key, speeds), speeds)]  # noqa: B905
                    shown = " ".join(f"{speed:11,.0f}" for speed in speeds)
                    print(f"round {number + 1}  {size} beam {beam}  {name:<26} {shown}", flush=True)
        print_table(races, best)
        if not args.races:
            print_growth(args, folder)


def print_table(races, best):
    """Prints each race's ratios with what they should reach."""
    print(f"\n{'ours against':<44} {'batch 1':>16} {'batch 8':>16} {'batch 32':>16}")
    reached = total = 0
    for size, beam, precision, rival, goals in races:
        ours, theirs = best[size, beam, "ours " + precision], best[size, beam, rival]
        cells = []
        for mine, other, goal in zip(ours, theirs, goals, strict=True):
            ratio = mine / other if other else float("nan")
            total, reached = total + 1, reached + (ratio >= goal)
            cells.append(f"{ratio:6.2f}x (>= {goal:g})")
        print(f"{size} beam {beam} {rival:<32} " + " ".join(f"{cell:>16}" for cell in cells))
    print(f"{reached} of {total} reached")


def print_growth(args, folder):
    """Prints how time and memory grow with the target's length, and the time to start."""
    print("\nours, base, batch 8, by target length:", flush=True)
    for target in TARGETS:
        directory = os.path.join(folder, f"target-{target}")
        length = ["--target", str(target)]
        ours(["export", directory, "--size", "base", *length], args)
        (line,) = ours(["time", directory, *length], args, batches=(8,))
        milliseconds = 8e3 / line["tokens_per_second"]
        peak = line["peak_mebibytes"]
        print(f"{target:>5} tokens: {milliseconds:6.2f} ms a step, {peak:,.0f} MiB", flush=True)
    for size in ("base", "tiny"):
        directory = os.path.join(folder, f"{size}-1-float32")
        if not os.path.exists(directory):  # no race has needed it
            ours(["export", directory, "--size", size], args)
        (line,) = ours(["start", directory], args)
        seconds = ", ".join(f"{name} after {value:.1f} s" for name, value in line.items())
        print(f"start of {size}: {seconds}", flush=True)


def measured(key, args, folder):
    """Tokens a second of one contestant at each batch size, 0 where it failed."""
    size, beam, name = key
    if name == "recomputing the prefix":
        lines = ours(["recompute", "--size", size], args)
    elif name.startswith("ours"):
        directory = os.path.join(folder, f"{size}-{beam}-{name.split()[-1]}")
        if not os.path.exists(directory):
            quantize = ["--quantize", "int8"] if name.endswith("int8") else []
            ours(["export", directory, "--size", size, "--beam", str(beam), *quantize], args)
        lines = ours(["time", directory], args)
    else:
        lines = peer(name, size, beam, args)
    speeds = {}
    for line in lines:
        speed = line.get("tokens_per_second", line.get("tok_s", 0))
        speeds[line["batch"]] = max(speed, speeds.get(line["batch"], 0))
    return [speeds.get(batch, 0) for batch in BATCHES]


def ours(job, args, batches=BATCHES):
    """The lines printed by a job of `benchmarks.ours_decoding`."""
    command = [sys.executable, "-m", "benchmarks.ours_decoding", *job]
    command += ["--seconds", str(args.seconds), "--batches", *map(str, batches)]
    return lines_of(command, {"TF_CPP_MIN_LOG_LEVEL": "3"})


def peer(name, size, beam, args):
    """The lines printed by a peer's script, best of the settings that it has."""
    script, options = PEERS[name]
    command = [args.peer_python, script, "--models", f"{size}8k", "--beams", str(beam), *options]
    command += ["--batches", ",".join(map(str, BATCHES)), "--budget", str(args.seconds)]
    settings = [(threads_of(script), [])]
    if script.startswith("ctranslate2"):
        settings.append(({**THREADS, "CT2_USE_MKL": "0"}, []))
        settings.append(({"OMP_NUM_THREADS": "1"}, ["--threads", "1", "--inter", "2"]))
    found = []
    for environment, more in settings:
        found += lines_of([*command, *more], environment, cwd=args.peers)
    return found


if __name__ == "__main__":
    main()
