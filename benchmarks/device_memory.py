"""MiB that a device holds of a model and of Adam's moments, as the layout map divides them.

    python -m benchmarks.device_memory [--sizes base big] [--vocab-size 32000]

A calculation from the shapes of the weights and `distribution.LAYOUTS`, on any backend and without
devices: float32, two moments of each weight. Gradients and activations come on top.
"""

import argparse
import re

import numpy as np

from keras_transformer.distribution import LAYOUTS
from keras_transformer.recipes.build import build_model
from keras_transformer.recipes.settings import Settings

PARTS = ((1, 1), (8, 1), (2, 4))


def main():
    """Prints a row for each size and each way to divide it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["base", "big"])
    parser.add_argument("--vocab-size", type=int, default=32_000)
    args = parser.parse_args()
    print("| size | batch by, weights by | weights, MiB | with Adam's moments, MiB |")
    print("|---|---|---|---|")
    for size in args.sizes:
        model = build_model(Settings.from_preset(size), vocab_size=args.vocab_size)
        weights = {weight.path: tuple(weight.shape) for weight in model.weights}
        for parts in PARTS:
            held = bytes_of_a_device(weights, parts[1]) / 2**20
            print(f"| {size} | {parts[0]}, {parts[1]} | {held:,.0f} | {3 * held:,.0f} |")


def bytes_of_a_device(weights, model_parallel):
    """The bytes of float32 that a device holds of `weights`, the shape of each path."""
    return sum(
        4 * int(np.prod(shape)) // (model_parallel if is_divided(path) else 1)
        for path, shape in weights.items()
    )


def is_divided(path):
    """Whether the layout map divides the weight of a path."""
    return any(re.fullmatch(pattern, path) for pattern in LAYOUTS)


if __name__ == "__main__":
    main()
