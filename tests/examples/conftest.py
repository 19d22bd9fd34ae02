"""A small collection for the engines, and what `translate --shards` makes of it."""

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# What other readers take for the end of a line, and what is no text.
ODD_LINES = ["", "a\u2028b", "c\x85d", "e\x0bf\x0cg\x1ca", "b\rc", " \u2029", "a" * 999, ""]


@pytest.fixture(scope="session")
def collection(exported, tmp_path_factory):
    """The folder of some files, and their lines with the translations, in order of both."""
    # Only here: other backends collect this folder too, and have no TensorFlow.
    from keras_transformer.serving import translate_shards

    folder = tmp_path_factory.mktemp("collection")
    (folder / "in").mkdir()
    draws = random.Random(1)
    lines = ["".join(draws.choices("abcdefg", k=draws.randint(1, 9))) for _ in range(400)]
    lines[7:7] = lines[300:300] = ODD_LINES
    parts = {"1.txt": "\n".join(lines[:200]), "2.txt": "\r\n".join(lines[200:380]) + "\r\n"}
    for name, text in parts.items():
        (folder / "in" / name).write_bytes(text.encode())
    (folder / "in" / "3.txt.gz").write_bytes(gzip.compress("\n".join(lines[380:]).encode()))
    files = sorted((folder / "in").iterdir())
    report = translate_shards(exported, files, folder / "shards", verbose=False)
    assert report.rows == len(lines)
    translations = []
    for file in files:
        data = (folder / "shards" / file.name).read_bytes()
        data = gzip.decompress(data) if file.suffix == ".gz" else data
        translations += data.decode().split("\n")[:-1]
    return folder / "in", list(zip(lines, translations, strict=True))


@pytest.fixture
def run_example():
    """Runs an example, without this package; returns the last line that it prints."""

    def run(script, *arguments, folder):
        done = subprocess.run(
            [sys.executable, EXAMPLES / script, *map(str, arguments)],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-5000:]
        return done.stdout.splitlines()[-1]

    return run
