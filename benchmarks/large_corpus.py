"""A corpus of millions of pairs: prepared, killed in the middle, found again, and its memory.

    python -m benchmarks.large_corpus shared/data/multi30k/train.en shared/data/multi30k/train.de \
        --pairs 5000000

The pairs of the two files are repeated with numbers behind them, so that no two are alike. Each
step runs in a process of its own. Its seconds are printed, and the peak of its anonymous memory,
which it reads twenty times a second.

"training starts" is a process that finds the prepared corpus, builds a tiny model and trains it for
some steps. Its first step is timed from the opening of the corpus, and from the start of Python.
"lists of the small files" does the same with the two files themselves, whose lines are lists. The
last figure is the memory of the one as a multiple of the other's.
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

# A tiny model takes its first steps, compiled without XLA, and then batches are read alone.
TRAINING = """
from keras_transformer import MaskedCrossentropy, Transformer
from keras_transformer.text import load_tokenizer, prepare_corpus, translation_dataset
tokenizer = load_tokenizer(sys.argv[4])
begun = time.monotonic()
OPEN
data = translation_dataset(*sides, tokenizer, shuffle=True, seed=1)
batches = iter(data)
batch = next(batches)
first_batch = time.monotonic() - begun
sizes = dict(num_layers=4, d_model=128, num_heads=4, d_ff=256)
model = Transformer(tokenizer.vocab_size, **sizes)
model.compile("adam", MaskedCrossentropy(), jit_compile=False)
model.train_on_batch(*batch)
first_step, from_python = time.monotonic() - begun, time.monotonic() - STARTED
for batch in itertools.islice(batches, 20):
    model.train_on_batch(*batch)
begun = time.monotonic()
count = sum(1 for _ in itertools.islice(batches, 2000))
tell(
    first_batch=first_batch, first_step=first_step, first_step_from_python=from_python,
    batches_a_second=count / (time.monotonic() - begun),
)
"""
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
    "training": TRAINING.replace(
        "OPEN",
        """
corpus = prepare_corpus(sys.argv[5], *sys.argv[2:4], tokenizer)
sides = corpus.sources, corpus.targets
""",
    ),
    "lists": TRAINING.replace(
        "OPEN",
        """
sides = [open(file, encoding="utf-8").read().split("\\n")[:-1] for file in sys.argv[2:4]]
""",
    ),
}
BEGIN = """
import itertools, json, os, sys, threading, time
STARTED = time.monotonic()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
peak, mapped = 0, 0  # of what is the process's own, and of that with the mapped arrays
def note_peak():
    global peak, mapped
    with open("/proc/self/status", encoding="utf-8") as status:
        sizes = dict(line.split(":") for line in status)
    own, whole = (int(sizes[name].split()[0]) // 1024 for name in ("RssAnon", "VmRSS"))
    peak, mapped = max(peak, own), max(mapped, whole)
def watch():
    while True:
        note_peak()
        time.sleep(0.05)
threading.Thread(target=watch, daemon=True).start()
def tell(**figures):
    note_peak()
    print(json.dumps({**figures, "MiB": peak, "MiB with mapped files": mapped}))
"""


def main():
    """Runs all steps and prints their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources")
    parser.add_argument("targets")
    parser.add_argument("--pairs", type=int, default=5_000_000)
    args = parser.parse_args()
    figures = Figures()
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
        figures["training starts"] = run("training", *files, tokenizer, output)
        figures["lists of the small files"] = run("lists", *small, tokenizer, output)
        large, lists = (figures[key]["MiB"] for key in list(figures)[-2:])
        figures["memory to that of the lists"] = round(large / lists, 3)
    print(json.dumps(figures, indent=2))


class Figures(dict):
    """Prints each figure when it is there."""

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        print(f"{name}: {value}", file=sys.stderr, flush=True)


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
