"""Processes of `keras-transformer train`, what they train on, and the weights of their runs."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "keras_transformer")
SMALL = ["--num-layers", 1, "--d-model", 16, "--num-heads", 2, "--d-ff", 16, "--max-shapes", 1]
SMALL += ["--tokens-per-batch", 256, "--average", 0, "--measure-every", 1, "--no-xla-export"]


def write_words(folder, count, longest=None):
    """Words and the same read backwards, for training and for a test."""
    draws = random.Random(0)
    words = ["".join(draws.choices("abcd", k=draws.randint(1, 6))) for _ in range(count)]
    words += [longest] * bool(longest)
    for name, part in (("train", words[: -count // 6]), ("test", words[-count // 6 :])):
        lines = [f"{word}\t{word[::-1]}\n" for word in part]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return ["--format", "characters", "--train", folder / "train", "--test", folder / "test"]


def start(*given, **environment):
    """Starts the command as a process."""
    return subprocess.Popen(
        [*COMMAND, "train", *map(str, given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        # Under a shell in the background Ctrl-C is ignored, and a process takes that over.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def weights(output):
    with np.load(output / "state.npz") as state:
        return {name: state[name] for name in state.files}
