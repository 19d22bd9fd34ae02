"""Tokens a second of our exported search beside other engines, measured in turns.

    python -m benchmarks.decoding [--peers DIR] [--peer-python PYTHON] [--rounds 3]
        [--parts races rooms start] [--only WORD ...] [--sizes base tiny] [--beams 1 4]

Random weights, sources of 24 tokens, exactly 32 target tokens, strings left out. Base has d_model
512 and 6+6 layers, tiny 128 and 4+4, both a vocabulary of 8,000. "onnx" is `translator.onnx`, run
by onnxruntime alone in two threads. The peers are timed by scripts of their own, which `--peers`
names; they need torch, transformers, ctranslate2 and keras-hub in the environment of
`--peer-python`. Every measurement is a process of its own, and all contestants take turns in each
round. Speeds are medians over the rounds, and ratios are medians of the ratios of each round. A
peer that has several settings, such as CTranslate2, counts with the best one of each round and
batch. Peak memory is that of the process when it has run all batches. Leave the machine alone
meanwhile.

The part "rooms" gives our search room for 32, 128 and 512 tokens, and 32 are written in each. The
part "start" times new processes: one that answers from a whole export, which takes texts.

The models of the peers are made once, by `make_models.py` of that folder, where $PEER_MODELS says.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.timing import THREADS, choose_threads, collect_lines
from keras_transformer.processor import processor_features, processor_kind

# Each peer: name, script, its options, and the searches it runs at which size.
PEERS = {
    "CTranslate2 float32": ("ctranslate2_translate.py", ["--compute", "float32"]),
    "CTranslate2 int8": ("ctranslate2_translate.py", ["--compute", "int8"]),
    "Hugging Face float32": ("huggingface.py", []),
    "KerasHub": ("kerashub.py", []),
}
RECOMPUTING = "recomputing the prefix"


class Race(NamedTuple):
    """What is compared with what, and the ratios asked for at batches of 1, 8 and 32."""

    size: str
    beam: int
    ours: str
    rival: str
    avx2: tuple[float, ...] = ()
    avx512: tuple[float, ...] = ()


RACES = [
    Race("base", 1, "ours float32", "CTranslate2 float32", (0.9, 1.2, 1.0), (0.98, 0.95, 1.25)),
    Race("base", 1, "ours float32", "Hugging Face float32"),
    Race("base", 1, "ours float32", "KerasHub"),
    Race("base", 4, "ours float32", "CTranslate2 float32", (1.1, 0.9, 1.0), (0.85, 1.1, 1.1)),
    Race("base", 1, "ours int8", "CTranslate2 int8", (0.95, 0.9, 0.85), (1.1, 0.85, 0.8)),
    Race("tiny", 1, "ours float32", "CTranslate2 float32", (0.7, 0.7, 0.9), (0.7, 0.65, 1.2)),
    Race("tiny", 4, "ours float32", "CTranslate2 float32"),
    Race("base", 1, "ours float32", RECOMPUTING),
    *(
        Race(size, beam, "ours onnx float32", rival)
        for size in ("base", "tiny")
        for beam in (1, 4)
        for rival in ("ours float32", "CTranslate2 float32")
    ),
    Race("base", 1, "ours onnx int8", "ours int8"),
    Race("base", 1, "ours onnx int8", "CTranslate2 int8"),
]
BATCHES = (1, 8, 32)
ROOMS, ROOM_BATCHES = (32, 128, 512), (1, 8)
PARTS = ("races", "rooms", "start")


class Measured(NamedTuple):
    """What one contestant did in one round: tokens a second at each batch, and MiB at the end."""

    speeds: list[float]
    mebibytes: float


def main():
    """Runs the parts that are chosen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="../shared/peers/decoding", metavar="DIR")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="races of names with such a word")
    parser.add_argument("--sizes", nargs="+", default=["base", "tiny"], choices=["base", "tiny"])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4], choices=[1, 4])
    args = parser.parse_args()
    print(f"processor: {processor_name()}; {' '.join(processor_features())}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for part in args.parts:
            {"races": run_races, "rooms": run_rooms, "start": run_starts}[part](args, folder)


def run_races(args, folder):
    """Runs the contestants in turns and prints their medians and the table of ratios."""
    races = [race for race in RACES if is_chosen(race, args)]
    if not os.path.isdir(args.peers):
        print(f"no peers in {args.peers}: ours alone")
        races = [race for race in races if race.rival not in PEERS]
    contestants = dict.fromkeys(
        (race.size, race.beam, name) for race in races for name in (race.ours, race.rival)
    )
    rounds = {contestant: [] for contestant in contestants}
    print(f"{'':<51} {'tokens a second at batch 1, 8, 32':>36} {'peak':>9}", flush=True)
    for number in range(args.rounds):
        for contestant in contestants:
            found = measured(contestant, args, folder)
            rounds[contestant].append(found)
            print(f"round {number + 1}  {told(contestant, found)}", flush=True)
    print("\nmedians of the rounds")
    for contestant, found in rounds.items():
        print(f"         {told(contestant, median(found))}")
    print_table(races, rounds, processor_kind())


def is_chosen(race, args):
    """Whether the options of the command ask for a race."""
    names = f"{race.ours} {race.rival}".lower()
    named = not args.only or any(word.lower() in names for word in args.only)
    return named and race.size in args.sizes and race.beam in args.beams


def processor_name():
    """The name of the processor, its family and model, and how many of it there are."""
    found = {}
    info = Path("/proc/cpuinfo")
    for line in info.read_text(encoding="utf-8").splitlines() if info.exists() else []:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    name, family, model = (found.get(key, "?") for key in ("model name", "cpu family", "model"))
    return f"{name}, family {family}, model {model}, {os.cpu_count()} cores"


def told(contestant, found):
    """What one contestant did, in one line of text."""
    size, beam, name = contestant
    shown = " ".join(f"{speed:11,.0f}" for speed in found.speeds)
    return f"{size} beam {beam}  {name:<26} {shown} {found.mebibytes:>6,.0f} MiB"


def median(rounds):
    """The medians over the rounds of one contestant, without those where it failed."""
    speeds = zip(*(found.speeds for found in rounds), strict=True)
    peaks = [found.mebibytes for found in rounds]
    return Measured([middle(speed) for speed in speeds], middle(peaks))


def middle(numbers):
    """The median of the numbers above 0; NaN without any."""
    numbers = [number for number in numbers if number > 0]
    return statistics.median(numbers) if numbers else math.nan


def print_table(races, rounds, kind):
    """Prints the median of each race's ratios, and what is asked for on a kind of processor."""
    head = " ".join(f"{f'batch {batch}':>9}" for batch in BATCHES)
    print(f"\n{'median of the ratios of each round':<58} {head}   asked on {kind}")
    reached = total = 0
    for race in races:
        asked = race.avx512 if kind == "AVX-512" else race.avx2
        ours = rounds[race.size, race.beam, race.ours]
        found = ratios(ours, rounds[race.size, race.beam, race.rival])
        total += len(asked)
        reached += sum(ratio >= least for ratio, least in zip(found, asked, strict=False))
        name = f"{race.size} beam {race.beam}  {race.ours} / {race.rival}"
        cells = " ".join(f"{ratio:8.2f}x" for ratio in found)
        print(f"{name:<58} {cells}   {' / '.join(f'{least:g}' for least in asked)}".rstrip())
    print(f"{reached} of {total} reached")


def ratios(ours, rival):
    """For each batch the median over the rounds of one's speed as a multiple of the other's."""
    found = []
    for index in range(len(ours[0].speeds)):
        pairs = [(a.speeds[index], b.speeds[index]) for a, b in zip(ours, rival, strict=True)]
        found.append(middle([mine / other for mine, other in pairs if other]))
    return found


def run_rooms(args, folder):
    """Prints how time and memory grow with the room for tokens; 32 are written."""
    print("\nours, base, 32 tokens written, tokens a second at batch 1 / 8", flush=True)
    for beam in args.beams:
        rounds = {room: [] for room in ROOMS}
        for number in range(args.rounds):
            for room in ROOMS:
                directory = os.path.join(folder, f"room-{room}-{beam}")
                if not os.path.exists(directory):
                    options = ["--size", "base", "--beam", str(beam), "--room", str(room)]
                    ours(["export", directory, *options], args)
                lines = ours(["time", directory], args, batches=ROOM_BATCHES)
                rounds[room].append(found := figures(lines, ROOM_BATCHES))
                speeds = " / ".join(f"{speed:,.0f}" for speed in found.speeds)
                print(f"round {number + 1}  beam {beam}  room {room:>4}  {speeds}", flush=True)
        print(
            f"{'medians':<18} {'batch 1':>15} {'batch 8':>15} {'to room for 32':>15} {'peak':>10}"
        )
        for room, found in rounds.items():
            middles = median(found)
            shown = " ".join(f"{speed:15,.0f}" for speed in middles.speeds)
            shares = " ".join(f"{ratio:6.2f}x" for ratio in ratios(found, rounds[ROOMS[0]]))
            peak = f"{middles.mebibytes:>6,.0f} MiB"
            print(f"beam {beam}  room {room:>4}  {shown} {shares} {peak}", flush=True)


def run_starts(args, folder):
    """Prints the seconds of each stage of a new process up to its second answer."""
    for size in args.sizes:
        directory = os.path.join(folder, f"{size}-texts")
        ours(["export-texts", directory, "--size", size], args)
        found = [line for _ in range(args.rounds) for line in ours(["start", directory], args)]
        print(f"\nstart of {size} in a new process, texts in and out, medians of the rounds")
        for stage in [name for name in found[0] if name != "compilations"] if found else []:
            print(f"{stage:>34}: {statistics.median(line[stage] for line in found):6.2f} s")


def measured(contestant, args, folder):
    """What one contestant does at each batch size, 0 where it fails."""
    size, beam, name = contestant
    if name == RECOMPUTING:
        lines = ours(["recompute", "--size", size], args)
    elif name in PEERS:
        lines = peer(name, size, beam, args)
    else:
        _, *kind, weights = name.split()
        directory = os.path.join(folder, f"{size}-{beam}-{'-'.join([*kind, weights])}")
        export, run = ("export-onnx", "time-onnx") if kind else ("export", "time")
        if not os.path.exists(directory):
            quantize = ["--quantize", "int8"] if weights == "int8" else []
            ours([export, directory, "--size", size, "--beam", str(beam), *quantize], args)
        lines = ours([run, directory], args)
    return figures(lines, BATCHES)


def figures(lines, batches):
    """The best speed of the lines at each batch, and the peak memory that goes with the last."""
    fastest = {}
    for line in lines:
        if read_speed(line) > read_speed(fastest.get(line["batch"], {})):
            fastest[line["batch"]] = line
    last = fastest.get(batches[-1], {})
    speeds = [read_speed(fastest.get(batch, {})) for batch in batches]
    return Measured(speeds, last.get("peak_mebibytes", last.get("peak_rss_mb", 0)))


def read_speed(line):
    """Tokens a second of a line of ours or of a peer's."""
    return line.get("tokens_per_second", line.get("tok_s", 0))


def ours(job, args, batches=BATCHES):
    """The lines printed by a job of `benchmarks.ours_decoding`."""
    command = [sys.executable, "-m", "benchmarks.ours_decoding", *job]
    command += ["--seconds", str(args.seconds), "--batches", *map(str, batches)]
    return collect_lines(command, {"TF_CPP_MIN_LOG_LEVEL": "3"})


def peer(name, size, beam, args):
    """The lines printed by a peer's script, in each of the settings that it has."""
    script, options = PEERS[name]
    command = [args.peer_python, script, "--models", f"{size}8k", "--beams", str(beam), *options]
    command += ["--batches", ",".join(map(str, BATCHES)), "--budget", str(args.seconds)]
    settings = [(choose_threads(script), [])]
    if script.startswith("ctranslate2"):
        settings.append(({**THREADS, "CT2_USE_MKL": "0"}, []))
        settings.append(({"OMP_NUM_THREADS": "1"}, ["--threads", "1", "--inter", "2"]))
    found = []
    for environment, more in settings:
        found += collect_lines([*command, *more], environment, cwd=args.peers)
    return found


if __name__ == "__main__":
    main()
