"""How the tests run train_translator.py and the commands: as processes, on one small corpus."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRAIN = EXAMPLES / "train_translator.py"
COMMAND = ("-m", "keras_transformer")
TRANSLATE = (*COMMAND, "translate")


def run(script, *arguments, text=None):
    """Runs a script, or a command; returns its status and what it printed."""
    given = script if isinstance(script, tuple) else (script,)
    return subprocess.run(
        [sys.executable, *map(str, [*given, *arguments])],
        capture_output=True,
        encoding="utf-8",
        input=text,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        check=False,
    )


def run_and_stop(script, *arguments, output, by):
    """Runs a training and sends it a signal soon after it saved its first epoch.

    Returns its status and what it printed.
    """
    process = subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        # Under a shell in the background Ctrl-C is ignored, and a process takes that over.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 400
    while not (output / "state.npz").exists() and time.monotonic() < deadline:
        if process.poll() is not None:
            break
        time.sleep(0.02)
    process.send_signal(by)
    printed = process.communicate(timeout=300)[0]
    return process.returncode, printed


def job(corpus, output, *more):
    """The arguments of a small training on the corpus."""
    files = ["--source", corpus / "text.en", "--target", corpus / "text.xx"]
    files += ["--test-source", corpus / "test.en", "--test-target", corpus / "test.xx"]
    size = ["--size", "mini", "--vocab-size", 5000, "--tokens-per-batch", 1024]
    return [*files, *size, "--output", output, *more]
