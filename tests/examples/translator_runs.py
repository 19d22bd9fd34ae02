"""How the tests run train_translator.py and translate.py: as processes, on one small corpus."""

import os
import subprocess
import sys
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


def job(corpus, output, *more):
    """The arguments of a small training on the corpus."""
    files = ["--source", corpus / "text.en", "--target", corpus / "text.xx"]
    files += ["--test-source", corpus / "test.en", "--test-target", corpus / "test.xx"]
    size = ["--size", "mini", "--vocab-size", 5000, "--tokens-per-batch", 1024]
    return [*files, *size, "--output", output, *more]
