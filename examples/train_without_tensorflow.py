"""Learns to spell words backwards on JAX or PyTorch, where TensorFlow is not installed.

    KERAS_BACKEND=jax python examples/train_without_tensorflow.py

Ids come from a dictionary of characters, batches from `PairDataset`, and outputs from
`model.generate`. Half a minute to two minutes. For files of pairs see `keras-transformer train`.
"""

import argparse
import os
import random

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

from keras_transformer import (
    BeamSearch,
    MaskedAccuracy,
    MaskedCrossentropy,
    Transformer,
    WarmupSchedule,
)
from keras_transformer.batches import PairDataset

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FIRST_ID = 4  # 0 is padding, 2 begins a target and 3 ends a text
EOS_ID = 3
LONGEST = 8


def main():
    """Makes words, trains, and tests on words that the training did not have."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    keras.utils.set_random_seed(1)
    print(f"Keras runs on {keras.backend.backend()}.")

    words = make_words(6000)
    train, validation, test = words[:5000], words[5000:5500], words[5500:]
    data, validation_data = (
        PairDataset(
            [encode(word) for word in part],
            [encode(word[::-1]) for word in part],
            tokens_per_batch=1024,
            max_shapes=1,
            shuffle=part is train,
            seed=1,
        )
        for part in (train, validation)
    )

    model = Transformer(
        FIRST_ID + len(LETTERS), num_layers=2, d_model=64, num_heads=4, d_ff=128, norm_first=True
    )
    model.compile(
        keras.optimizers.Adam(WarmupSchedule(64, warmup_steps=200, scale=0.5), beta_2=0.98),
        MaskedCrossentropy(),
        metrics=[MaskedAccuracy()],
        jit_compile=keras.backend.backend() != "torch",
    )
    model.fit(data, validation_data=validation_data, epochs=args.epochs, shuffle=False, verbose=2)

    outputs = translate(model, test)
    for word, output in zip(test[:3], outputs, strict=False):
        print(f"{word} -> {output}")
    right = sum(output == word[::-1] for word, output in zip(test, outputs, strict=True))
    print(f"Exact match: {right / len(test):.2%} of {len(test):,} new words.")


def make_words(number):
    """Different words of three to eight letters, drawn at random."""
    generator, words = random.Random(1), {}
    while len(words) < number:
        words["".join(generator.choices(LETTERS, k=generator.randint(3, LONGEST)))] = None
    return list(words)


def encode(word):
    """The ids of a word."""
    return [FIRST_ID + LETTERS.index(letter) for letter in word]


def translate(model, words):
    """The best output of each word, by a beam of 4."""
    source_ids = np.zeros((len(words), LONGEST + 1), "int32")  # -> (word, letter), 0 is padding
    for row, word in zip(source_ids, words, strict=True):
        row[: len(word) + 1] = [*encode(word), EOS_ID]
    result = model.generate(source_ids, BeamSearch(4), max_length=LONGEST + 2)
    best = keras.ops.convert_to_numpy(result.ids)[:, 0]  # -> (word, letter)
    return ["".join(LETTERS[n - FIRST_ID] for n in row if n >= FIRST_ID) for row in best]


if __name__ == "__main__":
    main()
