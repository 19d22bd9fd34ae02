"""A small collection for the engines, and what `translate --shards` makes of it."""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# What other readers take for the end of a line, and lines without text.
ODD_LINES = ["", "a\u2028b", "c\x85d", "e\x0bf\x0cg\x1ca", "b\rc", " \u2029", "a" * 999, "\\xff"]
ODD_LINES = [*(line.encode() for line in ODD_LINES), b"ab\xff", b"\xed\xa0\x80", b""]


@pytest.fixture(scope="session")
def collection(exported, tmp_path_factory):
    """The folder of some files, and their lines with translations and reasons, in order of both.

    A line without a translation has a reason; what is not UTF-8 is shown by backslashes.
    """
    # Only here: other backends collect this folder too, and have no TensorFlow.
    from keras_transformer.serving import translate_shards

    folder = tmp_path_factory.mktemp("collection")
    (folder / "in").mkdir()
    draws = random.Random(1)
    lines = ["".join(draws.choices("abcdefg", k=draws.randint(1, 9))).encode() for _ in range(400)]
    lines[7:7] = lines[300:300] = ODD_LINES
    parts = {
        "1.txt": b"\xef\xbb\xbf" + b"\n".join(lines[:200]),
        "2.txt": b"\r\n".join(lines[200:380]) + b"\r\n",
        "3.txt.gz": gzip.compress(b"\n".join(lines[380:])),
    }
    for name, data in parts.items():
        (folder / "in" / name).write_bytes(data)
    files = sorted((folder / "in").iterdir())
    report = translate_shards(exported, files, folder / "shards", verbose=False)
    assert report.rows == len(lines)
    translations, reasons = [], {}
    for file in files:
        data = (folder / "shards" / file.name).read_bytes()
        data = gzip.decompress(data) if file.suffix == ".gz" else data
        wrong = folder / "shards" / f"{file.name}.wrong.jsonl"
        if wrong.exists():
            for row in map(json.loads, wrong.read_text(encoding="utf-8").splitlines()):
                reasons[len(translations) + row["row"] - 1] = row["reason"]
        translations += data.decode().split("\n")[:-1]
    expected = []
    for number, (line, translation) in enumerate(zip(lines, translations, strict=True)):
        reason = reasons.get(number)
        text = line.decode(errors="backslashreplace")
        expected.append((text, None if reason else translation, reason))
    assert len(reasons) == 2 * 3
    return folder / "in", expected


@pytest.fixture
def run_example():
    """Runs an example, without this package; returns the last line that it prints.

    With `fails` the example must end with an error, and the last line of its errors is returned.
    """

    def run(script, *arguments, folder, fails=False):
        done = subprocess.run(
            [sys.executable, EXAMPLES / script, *map(str, arguments)],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=600,
        )
        assert done.returncode == int(fails), done.stdout + done.stderr[-5000:]
        return (done.stderr if fails else done.stdout).splitlines()[-1]

    return run
