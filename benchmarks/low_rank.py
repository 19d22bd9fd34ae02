"""Fine-tuning of all weights beside that of low-rank changes: quality, memory and the ways out.

    python -m benchmarks.low_rank runs/fine-tuning/hugging-face --data multi30k --output DIR

The directory is a Marian model, such as the one that `benchmarks.fine_tuning` trains. `--data`
holds train and val texts, `.en` and `.de`. Each way of training is a process of its own, which
prints a row of the table. The row has the numbers that are trained, the MiB of the optimizer, and
the seconds of an epoch. It also has the peak memory beyond that before training, and BLEU on the
validation texts (greedy, sacreBLEU 13a). Last, a low-rank change leaves on three ways, and each
way's translations are compared with those of this process. A row that was measured is not measured
again.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.fine_tuning import read_texts, score_bleu

ATTENTION = ("query", "key", "value", "attention_output")
FEED_FORWARD = ("inner", "outer")
WAYS = {  # the arguments of `enable_lora`, or None
    "all weights": None,
    "rank 4, query and value": {"rank": 4},
    "rank 16, query and value": {"rank": 16},
    "rank 16, all matrices": {"rank": 16, "names": ATTENTION + FEED_FORWARD},
    "rank 16, all matrices and embeddings": {
        "rank": 16, "names": ATTENTION + FEED_FORWARD, "embeddings": True
    },
}  # fmt: skip
LEAVES = "rank 16, all matrices"
ENGINES = ("saved-model", "hugging-face", "ctranslate2")


def main():
    """Trains each way in a process of its own, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="directory of a Marian model of Hugging Face")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--pairs", type=int, help="how many pairs to train on; default: all")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="default: all")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        train(args)
        return
    args.output.mkdir(parents=True, exist_ok=True)
    print("| trained | numbers | optimizer, MiB | peak, MiB | seconds an epoch | BLEU |")
    print("|---|---|---|---|---|---|", flush=True)
    for way in args.ways:
        path = name_figures(args, way)
        if not path.exists():
            command = [sys.executable, "-m", "benchmarks.low_rank", *sys.argv[1:], "--way", way]
            subprocess.run(command, check=True)
        print(format_row(way, json.loads(path.read_text(encoding="utf-8"))), flush=True)
    if LEAVES in args.ways:
        compare(args)


def name_figures(args, way):
    """The file of a row."""
    return args.output / f"{way.replace(', ', '-').replace(' ', '-')}.json"


def format_row(way, found):
    """A line of the table."""
    bleu = " → ".join(f"{value:.2f}" for value in found["bleu"])
    figures = f"{found['numbers']:,} | {found['optimizer']:.1f} | {found['peak']:,.0f}"
    return f"| {way} | {figures} | {found['seconds']:.0f} | {bleu} |"


def mebibytes():
    """The largest memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def train(args):
    """Trains one way, writes its figures, and the three directories of the one that leaves."""
    import keras

    from keras_transformer import FusedAdam, GreedySearch, MaskedCrossentropy
    from keras_transformer.interop import load_hugging_face, save_ctranslate2, save_hugging_face
    from keras_transformer.lora import enable_lora
    from keras_transformer.text import translation_dataset

    keras.utils.set_random_seed(1)
    options = {"search": GreedySearch(), "max_length": 63}
    translator = load_hugging_face(args.model, **options)
    model = translator.model
    if WAYS[args.way]:
        enable_lora(model, **WAYS[args.way])
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    texts = read_texts(args, "train", args.pairs)
    settings = {"tokens_per_batch": 2048, "shuffle": True, "seed": 1, "verbose": False}
    data = translation_dataset(*texts, *tokenizers, **settings)
    optimizer = FusedAdam(5e-4 if not WAYS[args.way] else 2e-3, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, MaskedCrossentropy(pad_id=model.pad_id))
    source, target = read_texts(args, "val")
    before = mebibytes()
    bleu, seconds = [], []
    peak = 0.0
    for epoch in range(args.epochs):
        begun = time.perf_counter()
        model.fit(data, epochs=epoch + 1, initial_epoch=epoch, verbose=0, shuffle=False)
        seconds.append(time.perf_counter() - begun)
        peak = peak or mebibytes() - before  # of training alone: later a search has been compiled
        translations = translator(source)
        bleu.append(score_bleu(translations, target))
    size = sum(math.prod(variable.shape) for variable in optimizer.variables)
    found = {
        "numbers": sum(math.prod(weight.shape) for weight in model.trainable_weights),
        "optimizer": size * 4 / 2**20,
        "peak": peak,
        "seconds": min(seconds),
        "bleu": bleu,
        "translations": translations,
    }
    if args.way == LEAVES:
        translator.export(args.output / "saved-model", verbose=False)
        save_hugging_face(translator, args.output / "hugging-face")
        save_ctranslate2(translator, args.output / "ctranslate2")
    name_figures(args, args.way).write_text(json.dumps(found), encoding="utf-8")


def compare(args):
    """Prints how many translations of each way out are those of the model that was trained."""
    found = json.loads(name_figures(args, LEAVES).read_text(encoding="utf-8"))["translations"]
    program = [sys.executable, "-m"]
    if not (args.output / "run").exists():
        directories = [args.output / "hugging-face", "--output", args.output / "run"]
        imported = [*program, "keras_transformer", "import", *directories]
        subprocess.run(imported, check=True, stdout=subprocess.DEVNULL)
    for engine in ENGINES:
        one = [*program, "benchmarks.ways_out", args.output / "run", "--alone", engine]
        one += ["--source", args.data / "val.en", "--output", args.output, "--rounds", "1"]
        out = subprocess.run(one, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
        theirs = json.loads(out.splitlines()[-1])["translations"]
        same = sum(one == other for one, other in zip(found, theirs, strict=True))
        print(f"{LEAVES}, as {engine}: {same:,} of {len(found):,} translations the same")


if __name__ == "__main__":
    main()
