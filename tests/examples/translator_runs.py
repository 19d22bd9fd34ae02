"""How the tests run train_translator.py and translate.py: as processes, on one small corpus."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRAIN = EXAMPLES / "train_translator.py"
TRANSLATE = EXAMPLES / "translate.py"


def run(script, *arguments, text=None):
    """Runs a script; returns its status and what it printed."""
    return subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        input=text,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        check=False,
    )


def run_and_kill(script, *arguments, output):
    """Runs a training and kills it by `kill -9` soon after it saved its first epoch."""
    process = subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
    )
    deadline = time.monotonic() + 400
    while not (output / "state.npz").exists() and time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def job(corpus, output, *more):
    """The arguments of a small training on the corpus."""
    files = ["--source", corpus / "text.en", "--target", corpus / "text.xx"]
    files += ["--test-source", corpus / "test.en", "--test-target", corpus / "test.xx"]
    size = ["--size", "mini", "--vocab-size", 5000, "--tokens-per-batch", 1024]
    return [*files, *size, "--output", output, *more]
