"""Load on an export behind `keras-transformer serve`: speed, right answers, steady memory.

    python -m benchmarks.serving_load                      # a tiny untrained model, exported anew
    python -m benchmarks.serving_load runs/x/export --texts test.en --seconds 120 --clients 16

Every answer, text and score, is compared with the one that a single client got before. The server
compiles every shape before it serves. While it works its memory and the number of compiled shapes
are read. Both must stand still after the first quarter.
"""

import argparse
import concurrent.futures
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

SERVE = ("-m", "keras_transformer", "serve")
WORDS = [
    "a",
    "the",
    "man",
    "woman",
    "dog",
    "child",
    "red",
    "old",
    "runs",
    "sees",
    "holds",
    "ball",
    "street",
    "near",
    "with",
    "two",
]


def main():
    """Runs the program; its exit status is 1 when a promise was not kept."""
    args = parse_arguments()
    with tempfile.TemporaryDirectory() as scratch:
        directory = args.directory or export_tiny(os.path.join(scratch, "tiny"))
        server, address = start(directory, args.name)
        try:
            return 0 if measure(server, address, args) else 1
        finally:
            server.terminate()
            server.wait(60)


def export_tiny(directory):
    """Exports an untrained model of the preset "tiny" of `keras-transformer train`."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras

    from keras_transformer import BeamSearch, Transformer
    from keras_transformer.serving import Translator
    from keras_transformer.text import CharacterTokenizer

    print("Exporting an untrained tiny model ...", flush=True)
    keras.utils.set_random_seed(0)
    tokenizer = CharacterTokenizer.train([" ".join(WORDS)])
    sizes = dict(num_layers=4, d_model=128, num_heads=4, d_ff=256)
    model = Transformer(8000, **sizes)
    # Untrained it writes anything, so its outputs are held to the letters that it can spell.
    search = BeamSearch(4, allowed_ids=range(4, tokenizer.vocab_size))
    options = dict(search=search, max_length=24, max_source_length=64)
    Translator(model, tokenizer, **options).export(os.path.join(directory, "1"), verbose=False)
    return directory


def start(directory, name):
    """Starts the server; returns its process and address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, *SERVE, directory, "--port", str(port), "--name", name]
    server = subprocess.Popen(
        [*command, "--batch-size", "16", "--replay"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    for line in server.stdout:
        print(f"server: {line}", end="", flush=True)
        if "Serving on" in line:
            return server, f"http://127.0.0.1:{port}"
    raise SystemExit("error: the server did not start")


def measure(server, address, args):
    """Sends requests from all clients for the time asked; returns whether all promises held."""
    texts = texts_to_send(args)
    print(f"One client asks for each of {len(texts)} texts ...", flush=True)
    expected = {text: translate(address, args.name, text) for text in texts}
    print(f"{args.clients} clients for {args.seconds:g} seconds ...", flush=True)
    seconds, wrong, states = [], [], []
    ends = time.monotonic() + args.seconds
    done = threading.Event()

    def watch():
        while not done.wait(1):
            states.append((time.monotonic(), read_memory(server.pid), compiled(address)))

    def client(number):
        generator = random.Random(number)
        while time.monotonic() < ends:
            text = generator.choice(texts)
            began = time.perf_counter()
            answer = translate(address, args.name, text)
            seconds.append(time.perf_counter() - began)
            if not same(answer, expected[text]):
                wrong.append((text, answer, expected[text]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.clients) as clients:
        list(clients.map(client, range(args.clients)))
    took = time.monotonic() - began
    done.set()
    watcher.join()
    return report(seconds, wrong, states, began, took)


def report(seconds, wrong, states, began, took):
    """Prints the figures; returns whether all promises held."""
    settled = [state for state in states if state[0] - began > took / 4]
    first, last = settled[0], settled[-1]
    cuts = statistics.quantiles(seconds, n=100)
    growth = last[1] - first[1]
    rate = len(seconds) / took
    print(f"requests               {len(seconds):,} in {took:.0f} s, {rate:.1f} a second")
    print(f"seconds to an answer   p50 {cuts[49]:.3f}, p95 {cuts[94]:.3f}, p99 {cuts[98]:.3f}")
    print(f"wrong answers          {len(wrong)}")
    print(f"memory of the server   {first[1]:.0f} MiB after a quarter, {last[1]:.0f} at the end")
    print(f"shapes compiled        {first[2]} after a quarter, {last[2]} at the end")
    kept = not wrong and growth < max(16, 0.02 * first[1]) and first[2] == last[2]
    print("All promises held." if kept else f"Not held; first wrong: {wrong[:1]}", flush=True)
    return kept


def texts_to_send(args):
    """The texts of a file, or made up."""
    if args.texts:
        lines = Path(args.texts).read_text(encoding="utf-8").splitlines()
        return list(dict.fromkeys(line for line in lines if line.strip()))[: args.count]
    generator = random.Random(5)
    lengths = [generator.randint(1, 9) for _ in range(args.count)]
    return list({" ".join(generator.choices(WORDS, k=length)): 0 for length in lengths})


def same(answer, expected):
    """Whether two answers are one translation and one score, which rounds as the batch does."""
    return answer[0] == expected[0] and abs(answer[1] - expected[1]) < 1e-4


def translate(address, name, text):
    """The translation of `text` and its score."""
    body = json.dumps({"instances": [text]}).encode()
    request = urllib.request.Request(f"{address}/v1/models/{name}:predict", body)
    with urllib.request.urlopen(request, timeout=120) as answer:
        (row,) = json.loads(answer.read())["predictions"]
    return row["translation"], row["score"]


def compiled(address):
    """How many shapes the server has compiled."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        return int(float(re.search(r"^compiled_shapes (\S+)", answer.read().decode(), re.M)[1]))


def read_memory(process):
    """Resident memory of a process in MiB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def parse_arguments():
    """Returns the command line's arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", metavar="DIR", nargs="?", help="an export, as for the server")
    parser.add_argument("--name", default="translator")
    parser.add_argument("--texts", metavar="FILE", help="one a line; made up when not given")
    parser.add_argument("--count", type=int, default=200, help="texts (default: 200)")
    parser.add_argument("--clients", type=int, default=16, help="default: 16")
    parser.add_argument("--seconds", type=float, default=120, help="default: 120")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
