"""A corpus of millions of pairs: prepared, killed in the middle, found again, and its memory.

    python -m benchmarks.large_corpus shared/data/multi30k/train.en shared/data/multi30k/train.de \
        --pairs 5000000

The pairs of the two files are repeated with numbers behind them, so that no two are alike. Each
step runs in a process of its own, whose seconds and anonymous memory at its end are printed.
"""

import argparse
import gzip
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = {
    "train": """
import random
from keras_transformer.text import SentencePieceTokenizer
lines = [line for file in sys.argv[2:4] for line in open(file, encoding="utf-8")]
random.Random(1).shuffle(lines)
SentencePieceTokenizer.train(lines[:60_000], vocab_size=8000).save(sys.argv[4])
""",
    "prepare": """
from keras_transformer.text import load_tokenizer, prepare_corpus
tokenizer = load_tokenizer(sys.argv[4])
begun = time.monotonic()
corpus = prepare_corpus(sys.argv[5], *sys.argv[2:4], tokenizer)
tell(pairs=corpus.report.num_kept, seconds=time.monotonic() - begun, path=str(corpus.path))
""",
    "batches": """
from keras_transformer.text import load_tokenizer, prepare_corpus, translation_dataset
tokenizer = load_tokenizer(sys.argv[4])
begun = time.monotonic()
corpus = prepare_corpus(sys.argv[5], *sys.argv[2:4], tokenizer)
data = translation_dataset(corpus.sources, corpus.targets, tokenizer, shuffle=True, seed=1)
batches = iter(data)
next(batches)
first = time.monotonic() - begun
begun = time.monotonic()
count = sum(1 for _ in itertools.islice(batches, 2000))
tell(first_batch=first, batches_a_second=count / (time.monotonic() - begun))
""",
    "lists": """
from keras_transformer.text import load_tokenizer, translation_dataset
tokenizer = load_tokenizer(sys.argv[4])
sides = [open(file, encoding="utf-8").read().split("\\n")[:-1] for file in sys.argv[2:4]]
begun = time.monotonic()
data = translation_dataset(*sides, tokenizer, shuffle=True, seed=1)
batches = iter(data)
next(batches)
first = time.monotonic() - begun
count = sum(1 for _ in itertools.islice(batches, 2000))
tell(first_batch=first)
""",
}
BEGIN = """
import itertools, json, os, sys, time
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
def tell(**figures):
    lines = open("/proc/self/status", encoding="utf-8").read().splitlines()
    sizes = [int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon")]
    print(json.dumps({**figures, "MiB": sizes[0]}))
"""


def main():
    """Runs all steps and prints their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources")
    parser.add_argument("targets")
    parser.add_argument("--pairs", type=int, default=5_000_000)
    args = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        small = [args.sources, args.targets]
        files = [number_lines(file, folder / Path(file).name, args.pairs) for file in small]
        tokenizer, output = folder / "tokenizer", folder / "corpora"
        run("train", *small, tokenizer, output)
        figures["killed with parts done"] = kill_in_the_middle(files, tokenizer, output, args.pairs)
        figures["the rest"] = run("prepare", *files, tokenizer, output)
        figures["all at once"] = run("prepare", *files, tokenizer, folder / "others")
        figures["pairs a second"] = round(args.pairs / figures["all at once"]["seconds"])
        figures["equal to the bit"] = are_equal(output, folder / "others")
        figures["training starts"] = run("batches", *files, tokenizer, output)
        figures["lists of the small files"] = run("lists", *small, tokenizer, output)
    print(json.dumps(figures, indent=2))


def number_lines(file, path, count):
    """Writes the lines of a file again and again, each time with another number behind them."""
    lines = read(file).split("\n")[:-1]
    with open(path, "w", encoding="utf-8") as opened:
        for number in range(count):
            opened.write(f"{lines[number % len(lines)]} {number // len(lines)}\n")
    return path


def read(file):
    """The text of a file, plain or gzip."""
    data = Path(file).read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")


def start(step, *arguments):
    """Starts a step in a process of its own."""
    command = [sys.executable, "-c", BEGIN + STEPS[step], step, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")


def run(step, *arguments):
    """Runs a step; returns its figures."""
    with start(step, *arguments) as running:
        printed = running.stdout.read()
    if running.returncode:
        raise SystemExit(f"{step} ended with {running.returncode}")
    return json.loads(printed) if printed else None


def kill_in_the_middle(files, tokenizer, output, pairs):
    """Kills the preparation when half of the parts are there; returns how many."""
    half = max(1, pairs // 20_000 // 2)
    with start("prepare", *files, tokenizer, output) as running:
        while len(done := list(output.glob("*.parts/*.npz"))) < half:
            if running.poll() is not None:
                raise SystemExit("the preparation ended before it was killed")
            time.sleep(0.05)
        running.send_signal(signal.SIGKILL)
    return len(done)


def are_equal(one, other):
    """Whether two directories hold the same arrays."""
    pairs = itertools.product(*(sorted(Path(path).glob("*/*.npy")) for path in (one, other)))
    same = [a.read_bytes() == b.read_bytes() for a, b in pairs if a.name == b.name]
    return len(same) == 6 and all(same)


if __name__ == "__main__":
    main()
