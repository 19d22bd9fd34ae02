"""A shortlist beside the whole vocabulary: the same translations, and how much faster.

    python -m benchmarks.shortlist --speed
    python -m benchmarks.shortlist --run runs/multi30k --data multi30k --split val

`--speed` times greedy search and a beam of 4 of base with random weights. The vocabulary has 32,000
tokens, a source has 24, and an output has 32. Both searches of a row take turns.

`--run` learns a shortlist from train.en and train.de of `--data`. It translates the other texts
with it and without, in batches of 1 and 8. It prints how many translations are the same, and BLEU
(sacreBLEU, 13a).
"""

import argparse
import functools
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from benchmarks import timing
from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.decoding import Shortlist
from keras_transformer.recipes import load_translator
from keras_transformer.recipes.shortlists import learn_shortlist
from keras_transformer.serving.id_functions import IdFunctions

BASE = {"num_layers": 6, "d_model": 512, "num_heads": 8, "d_ff": 2048}
VOCAB_SIZE, NUM_TARGETS, NUM_FREQUENT = 32_000, 64, 2048
SOURCE_LENGTH, TARGET_LENGTH = 24, 32
BATCHES = (1, 8)


def main():
    """Prints what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--speed", action="store_true", help="time base with random weights")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row of --speed")
    parser.add_argument("--run", type=Path, help="directory of a run")
    parser.add_argument("--data", type=Path, help="directory with the pairs, .en and .de")
    parser.add_argument("--split", default="val", help="the texts to translate")
    parser.add_argument("--lines", type=int, help="how many of them; default: all")
    parser.add_argument("--lowercase", action="store_true", help="the run reads lower case")
    args = parser.parse_args()
    if args.speed:
        print_speed(args.seconds)
    if args.run:
        print_agreement(args)


def print_speed(seconds):
    """A row for each search and size of batch."""
    keras.utils.set_random_seed(1)
    model = Transformer(VOCAB_SIZE, **BASE)
    model.build()
    generator = np.random.default_rng(1)
    table = generator.integers(0, VOCAB_SIZE, (VOCAB_SIZE, NUM_TARGETS))
    frequent = generator.permutation(VOCAB_SIZE)[:NUM_FREQUENT]
    odds = np.full(table.shape, 1 / NUM_TARGETS)
    shortlist = Shortlist(table, odds, frequent, vocab_size=VOCAB_SIZE)
    print(
        "| search | batch | tokens a second | with the shortlist | ratio |\n|---|---|---|---|---|"
    )
    lengths = {"min_length": TARGET_LENGTH}
    for name, search in {
        "greedy": GreedySearch(**lengths), "beam 4": BeamSearch(4, **lengths)
    }.items():  # fmt: skip
        sizes = {"max_length": TARGET_LENGTH, "max_source_length": SOURCE_LENGTH}
        sizes |= {"max_batch_tokens": 2048, "jit_compile": True, "quantize": None}
        both = {
            kind: IdFunctions(model, search, **sizes, shortlist=which)
            for kind, which in (("whole", None), ("shortlist", shortlist))
        }
        for batch in BATCHES:
            ids = generator.integers(5, VOCAB_SIZE, (batch, SOURCE_LENGTH)).astype("int32")
            ids[:, -1] = model.eos_id
            calls = {
                kind: functools.partial(searched, functions, tf.constant(ids))
                for kind, functions in both.items()
            }
            taken = timing.interleaved(calls, seconds=seconds)
            whole, short = (batch * TARGET_LENGTH / taken[kind] * 1000 for kind in calls)
            print(
                f"| {name} | {batch} | {whole:,.0f} | {short:,.0f} | {short / whole:.2f} |",
                flush=True,
            )


def searched(functions, ids):
    """The ids of a search, when they are there."""
    return functions.search_ids(ids)[0].numpy()


def print_agreement(args):
    """A row for each size of batch: translations that are the same, and BLEU of both."""
    import sacrebleu

    files = {
        part: [args.data / f"{part}.{side}" for side in ("en", "de")]
        for part in ("train", args.split)
    }
    shortlist = learn_shortlist(args.run, *files["train"])
    sources, references = (
        file.read_text(encoding="utf-8").splitlines()[: args.lines] for file in files[args.split]
    )
    if args.lowercase:
        sources = [text.lower() for text in sources]
    whole, short = (load_translator(args.run, shortlist=which) for which in (None, shortlist))
    print("| batch | texts | the same | BLEU, whole | BLEU, shortlist |\n|---|---|---|---|---|")
    for batch in BATCHES:
        one, other = (translated(which, sources, batch) for which in (whole, short))
        same = sum(first == second for first, second in zip(one, other, strict=True))
        bleu = [
            sacrebleu.corpus_bleu(found, [references], lowercase=args.lowercase).score
            for found in (one, other)
        ]
        share = f"{same:,} ({100 * same / len(sources):.1f} %)"
        print(
            f"| {batch} | {len(sources):,} | {share} | {bleu[0]:.2f} | {bleu[1]:.2f} |", flush=True
        )


def translated(translator, texts, batch):
    """The translations in the order of the texts; those of a batch are of similar lengths."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    found = [""] * len(texts)
    bar = keras.utils.Progbar(len(texts), unit_name="text")
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        for number, text in zip(part, translator([texts[n] for n in part]), strict=True):
            found[number] = text
        bar.update(min(start + batch, len(order)))
    return found


if __name__ == "__main__":
    main()
