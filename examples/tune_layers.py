"""Uses the layers in a functional Keras model, and chooses its sizes by a small random search.

    python examples/tune_layers.py --trials 6

`build_model(hp)` is what KerasTuner calls too: `keras_tuner.RandomSearch(build_model, ...)`. Here
ten lines draw the sizes, so that there is nothing to install. The task: does the first digit of a
row come again? One to two minutes.
"""

import argparse
import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer import EncoderLayer, PositionalEncoding, TokenEmbedding

LENGTH = 12
VOCAB_SIZE = 11  # 0 is padding, 1 to 10 are the digits


def main():
    """Draws sizes, trains each, and tests the best on new rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=6, help="models to try")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the rows of each")
    args = parser.parse_args()
    generator = np.random.default_rng(1)
    train, validation, test = (make_rows(generator, number) for number in (6000, 1000, 2000))

    best, best_accuracy, best_sizes = None, 0.0, ""
    for trial in range(args.trials):
        keras.utils.set_random_seed(trial)
        sizes = Sizes(trial)
        model = build_model(sizes)
        model.fit(*train, batch_size=128, epochs=args.epochs, verbose=0)
        _, accuracy = model.evaluate(*validation, batch_size=500, verbose=0)
        print(f"{sizes}, {model.count_params():,} parameters: validation accuracy {accuracy:.3f}")
        if accuracy > best_accuracy:
            best, best_accuracy, best_sizes = model, accuracy, str(sizes)
    _, accuracy = best.evaluate(*test, batch_size=500, verbose=0)
    print(f"Best: {best_sizes}.")
    print(f"Test accuracy: {accuracy:.2%} of {len(test[0]):,} new rows; guessing: 50.00%.")


class Sizes:
    """Draws sizes as KerasTuner's `HyperParameters` does, and remembers them."""

    def __init__(self, seed):
        self.generator, self.drawn = random.Random(seed), {}

    def Choice(self, name, values):  # noqa: N802  (KerasTuner's name)
        """One of the values."""
        return self.drawn.setdefault(name, self.generator.choice(values))

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in self.drawn.items())


def build_model(hp):
    """Returns the compiled model: embeddings, positions, encoder layers, and a mean over tokens."""
    d_model = hp.Choice("d_model", [16, 32, 64])
    num_heads = hp.Choice("num_heads", [1, 2, 4])
    ids = keras.Input((None,), dtype="int32")
    hidden = PositionalEncoding()(TokenEmbedding(VOCAB_SIZE, d_model)(ids))
    for _ in range(hp.Choice("num_layers", [1, 2, 3])):
        # The padding mask of the embedding comes along by itself.
        hidden = EncoderLayer(num_heads, d_ff=2 * d_model, norm_first=True)(hidden)
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model(ids, keras.layers.Dense(1, activation="sigmoid")(pooled))
    model.compile(keras.optimizers.Adam(0.002), "binary_crossentropy", metrics=["accuracy"])
    return model


def make_rows(generator, number):
    """Rows of 6 to 12 digits, padded with 0, and whether the first comes again: in half of them."""
    ids = np.zeros((number, LENGTH), "int32")
    labels = (np.arange(number) % 2).astype("float32")
    for row, label in zip(ids, labels, strict=True):
        length = int(generator.integers(6, LENGTH + 1))
        first = generator.integers(10)
        others = (first + generator.integers(1, 10, length - 1)) % 10
        if label:
            others[generator.integers(length - 1)] = first
        row[:length] = [1 + first, *(1 + others)]
    return ids, labels


if __name__ == "__main__":
    main()
