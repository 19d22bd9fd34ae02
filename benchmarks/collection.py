"""A large collection through `translate --shards`: count, order, a kill, memory, and the speed.

    python -m benchmarks.collection runs/dates/export/1 --lines 1000000 --files 100 --workers 2
    python -m benchmarks.collection runs/dates/export/1 --engines --lines 100000 --files 10 \
        --ray-python ray/bin/python --beam-python beam/bin/python

Dates of `keras_transformer.recipes.dates` are repeated with numbers behind them, so that no two
lines are alike. One process is killed in the middle by `kill -9`, and the command is run again. A
sample of lines is translated once more in this process and compared. The memory is the largest of
any process, anonymous pages alone, in the first quarter of the time and in the last.

With `--engines` nothing is killed. The examples of Ray Data and Apache Beam translate the same
files, and all lines are compared. Each engine may have a Python of its own.
"""

import argparse
import json
import operator
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

COMMAND = (sys.executable, "-m", "keras_transformer", "translate")


def main():
    """Runs the program; its exit status is 1 when something was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("export", help="the directory of a SavedModel of dates")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sample", type=int, default=5000)
    parser.add_argument("--engines", action="store_true", help="compare with Ray and Beam")
    parser.add_argument("--ray-python", default=sys.executable, help="a Python that has Ray")
    parser.add_argument("--beam-python", default=sys.executable, help="a Python that has Beam")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        texts = write_files(folder / "in", args.lines, args.files)
        files = sorted((folder / "in").iterdir())
        command = [*COMMAND, args.export, "--shards", *files, "--output", folder / "out", "--json"]
        command += ["--workers", str(args.workers)]
        if args.engines:
            return compare_engines(args, folder, texts, command)
        first, killed = run(command, kill_after=len(files) // 2, output=folder / "out")
        second, _ = run(command)
        report = json.loads(second["printed"])
        lines = read_lines(folder / "out", "*.txt")
        wrong = compare(args.export, texts, lines, args.sample)
    done = first["seconds"] + second["seconds"]
    figures = {
        "lines": len(lines),
        "lines a second": round(len(lines) / done),
        "killed": killed,
        "finished before the second run": report["finished"],
        "sample": min(args.sample, args.lines),
        "lines of the sample that differ": wrong,
        "MiB, first quarter and last": [first["memory"][0], first["memory"][1]],
    }
    print(json.dumps(figures, indent=2))
    return int(wrong > 0 or len(lines) != args.lines or not killed)


def write_files(folder, lines, files):
    """Writes numbered dates to files; returns all lines."""
    from keras_transformer.recipes.dates import date_pairs

    dates = [source for source, _ in date_pairs(10_000, "en", "fr", seed=1)]
    texts = [f"{dates[n % len(dates)]} {n // len(dates)}" for n in range(lines)]
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(lines), files)):
        text = "".join(f"{texts[n]}\n" for n in part)
        (folder / f"part-{number:05}.txt").write_text(text, encoding="utf-8")
    return texts


def read_lines(folder, pattern):
    """The lines of the files of a folder, in the order of their names."""
    return [
        line
        for file in sorted(folder.glob(pattern))
        for line in file.read_text(encoding="utf-8").split("\n")[:-1]
    ]


def run(command, kill_after=None, output=None):
    """Runs a command; with `kill_after` kills a process of it when so many files are done."""
    begun, samples, killed = time.monotonic(), [], False
    with subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, encoding="utf-8"
    ) as running:
        reader = []
        thread = threading.Thread(target=lambda: reader.append(running.stdout.read()))
        thread.start()
        while running.poll() is None:
            children = list_children(running.pid)
            samples.append((time.monotonic(), max(map(anonymous, children), default=0)))
            if kill_after and not killed and len(list(output.glob("*.txt"))) >= kill_after:
                os.kill(children[0], signal.SIGKILL)
                killed = True
            time.sleep(0.2)
        thread.join()
    end = time.monotonic()
    early, late = begun + (end - begun) / 4, end - (end - begun) / 4
    memory = [
        max((size for when, size in samples if is_in(when)), default=0)
        for is_in in (lambda when: when < early, lambda when: when > late)
    ]
    return {"seconds": end - begun, "memory": memory, "printed": reader[0]}, killed


def list_children(pid):
    """The processes that a process has started."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text(encoding="utf-8").split()]


def anonymous(pid):
    """MiB of anonymous pages of a process; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    sizes = [int(line.split()[1]) for line in lines if line.startswith("RssAnon")]
    return sizes[0] // 1024 if sizes else 0


def compare(export, texts, lines, size):
    """How many lines of a sample one process translates otherwise."""
    import tensorflow as tf

    from keras_transformer.serving import load

    if len(lines) != len(texts):
        return abs(len(lines) - len(texts))
    model = load(export)
    places = np.random.default_rng(0).choice(len(texts), min(size, len(texts)), replace=False)
    wrong = 0
    for part in np.array_split(places, max(1, len(places) // 500)):
        found = model.signatures["serving_default"](text=tf.constant([texts[n] for n in part]))
        own = [text.decode() for text in found["translation"].numpy()]
        wrong += sum(lines[n] != text for n, text in zip(part, own, strict=True))
    return wrong


def compare_engines(args, folder, texts, command):
    """Translates by shards, by Ray and by Beam; prints how many lines differ, and the seconds."""
    examples = Path(__file__).resolve().parents[1] / "examples"
    export, number = str(Path(args.export).resolve()), str(args.workers)
    ray = [args.ray_python, examples / "translate_with_ray.py", export, folder / "in"]
    beam = [args.beam_python, examples / "translate_with_beam.py", export, folder / "in" / "*"]
    beam += [folder / "beam" / "part", "--direct_running_mode=multi_processing"]
    commands = {
        "shards": command,
        "ray": [*ray, folder / "ray", "--actors", number],
        "beam": [*beam, f"--direct_num_workers={number}"],
    }
    seconds = {}
    for name, engine in commands.items():
        begun = time.monotonic()
        subprocess.run([*map(str, engine)], check=True, stdout=subprocess.DEVNULL)
        seconds[name] = round(time.monotonic() - begun, 1)
    expected = list(zip(texts, read_lines(folder / "out", "*.txt"), strict=True))
    found = {"ray": read_parquet(folder / "ray"), "beam": read_json(folder / "beam")}
    # Beam gives lines in any order. No two texts are alike.
    places = {text: place for place, text in enumerate(texts)}
    found["beam"].sort(key=lambda row: places[row[0]])
    figures = {
        "lines": {name: len(rows) for name, rows in {"shards": expected, **found}.items()},
        "lines that differ": {
            name: sum(map(operator.ne, rows, expected)) for name, rows in found.items()
        },
        "byte for byte": {name: rows == expected for name, rows in found.items()},
        "seconds": seconds,
    }
    print(json.dumps(figures, indent=2))
    return int(any(rows != expected for rows in found.values()))


def read_parquet(folder):
    """Texts and translations of a folder of Parquet files, in their order."""
    from pyarrow import parquet

    table = parquet.read_table(folder)
    return list(zip(*(table[name].to_pylist() for name in ("text", "translation")), strict=True))


def read_json(folder):
    """Texts and translations of a folder of JSON lines."""
    rows = map(json.loads, read_lines(folder, "*"))
    return [(row["text"], row["translation"]) for row in rows]


if __name__ == "__main__":
    sys.exit(main())
