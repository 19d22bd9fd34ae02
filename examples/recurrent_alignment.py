"""Trains an LSTM with additive attention on dates, and draws the alignment that it finds.

    python examples/recurrent_alignment.py --output runs/recurrent_alignment

This is the model of Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align
and Translate". It is trained, searched and exported as the Transformer is. One to two minutes.
"""

import argparse
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer import (
    BeamSearch,
    MaskedCrossentropy,
    RecurrentSeq2Seq,
    WarmupSchedule,
    plots,
)
from keras_transformer.recipes.dates import date_pairs, split_pairs
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer, translation_dataset

TEXT = "Saturday, August 10, 2024"
D_MODEL = 128


def main():
    """Trains, tests, and writes alignment.png."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6, help="passes over the pairs")
    parser.add_argument("--attention", default="additive", help="or dot, scaled_dot, general")
    parser.add_argument("--output", type=Path, default="runs/recurrent_alignment")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)

    pairs = date_pairs(12_000, "en", "fr", seed=1)
    train, validation, test = split_pairs(pairs, num_validation=500, num_test=500, seed=1)
    tokenizer = CharacterTokenizer.train(text for pair in train for text in pair)
    data, validation_data = (
        translation_dataset(
            *zip(*part, strict=True), tokenizer, shuffle=part is train, seed=1, max_shapes=1
        )
        for part in (train, validation)
    )

    model = RecurrentSeq2Seq(
        tokenizer.vocab_size, num_layers=1, d_model=D_MODEL, attention=args.attention
    )
    model.compile(
        keras.optimizers.Adam(WarmupSchedule(D_MODEL, 200, scale=0.8), beta_2=0.98),
        MaskedCrossentropy(),
        jit_compile=True,
    )
    model.fit(data, validation_data=validation_data, epochs=args.epochs, shuffle=False, verbose=2)

    figure = draw_alignment(model, tokenizer, args.attention)
    figure.savefig(args.output / "alignment.png", dpi=120)
    print(f"Wrote {args.output / 'alignment.png'}.")
    outputs = Translator(model, tokenizer, search=BeamSearch(4))([source for source, _ in test])
    right = sum(output == target for output, (_, target) in zip(outputs, test, strict=True))
    print(f"Exact match: {right / len(test):.2%} of {len(test):,} held-out pairs.")


def draw_alignment(model, tokenizer, attention):
    """Draws the source characters that each output character comes from."""
    source_ids = [*tokenizer.tokenize([TEXT])[0].numpy(), tokenizer.eos_id]
    result = model.generate(np.array([source_ids]), BeamSearch(4, return_alignments=True))
    length = int(result.lengths[0, 0])
    return plots.alignment(
        result.alignments[0, 0, :length],
        tokenizer.pieces(result.ids[0, 0, :length]),
        tokenizer.pieces(source_ids),
        f"{attention.capitalize()} attention: where each character comes from",
    )


if __name__ == "__main__":
    main()
