"""Trains one model on one device, then on eight in two ways; or on four of each of two processes.

    python tests/train_on_eight_devices.py                         # eight devices
    python tests/train_on_eight_devices.py ADDRESS NUMBER          # process NUMBER of two

Prints JSON: losses of every step, weights, translations, and what the first device holds.
"""

import json
import os
import sys

TWO_PROCESSES = len(sys.argv) > 1
DEVICES = 4 if TWO_PROCESSES else 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ["KERAS_BACKEND"] = "jax"

import keras  # noqa: E402
import numpy as np  # noqa: E402

if TWO_PROCESSES:  # before JAX knows its devices
    keras.distribution.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))

from keras_transformer import (  # noqa: E402
    BeamSearch,
    FusedAdam,
    MaskedCrossentropy,
    Perplexity,
    TokenCount,
    Transformer,
)
from keras_transformer.batches import PairDataset  # noqa: E402
from keras_transformer.distribution import TransformerParallel  # noqa: E402
from keras_transformer.process_group import whole_array  # noqa: E402

VOCAB_SIZE, STEPS = 24, 50
RANDOM = np.random.default_rng(0)


def sentences(count=400):
    return [list(RANDOM.integers(4, VOCAB_SIZE, RANDOM.integers(2, 12))) for _ in range(count)]


SOURCES, TARGETS = sentences(), sentences()


class Losses(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        if len(self.losses) == STEPS:
            self.model.stop_training = True


def bytes_on_one_device(array):
    """The bytes of an array on the first device of this process, which holds a part of each."""
    shards = array.addressable_shards
    return sum(shard.data.nbytes for shard in shards if shard.device == shards[0].device)


def error_without_parts():
    """What a model says that the layout map divides nowhere."""
    keras.distribution.set_distribution(TransformerParallel(2, 4))
    model = keras.Sequential([keras.layers.Dense(4)])
    model.build((None, 4))
    model.compile("sgd", "mse")
    try:
        model.fit(np.ones((8, 4)), np.ones((8, 4)), verbose=0)
    except ValueError as error:
        return str(error)
    finally:
        keras.distribution.set_distribution(None)
    return None


def trained(distribution, process=(0, 1)):
    """The figures of some steps in batches of unequal padding."""
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(1)
    sizes = dict(num_layers=1, d_model=16, num_heads=4, d_ff=32)
    model = Transformer(VOCAB_SIZE, **sizes, dropout=0.1)
    model.build()
    # Adam's first steps divide by the size of a gradient: they make much of its rounding.
    model.compile(
        FusedAdam(1e-3, epsilon=1e-3), MaskedCrossentropy(0.1), metrics=[Perplexity(), TokenCount()]
    )
    data = PairDataset(
        SOURCES, TARGETS, tokens_per_batch=256, shuffle=True, seed=1, rows_multiple=8,
        max_shapes=2, process=process, verbose=False,
    )  # fmt: skip
    seen = Losses()
    epochs = -(-STEPS // len(data))
    history = model.fit(data, epochs=epochs, shuffle=False, verbose=0, callbacks=[seen]).history
    figures = {
        "losses": seen.losses,
        "perplexity": history["perplexity"],
        "tokens": history["tokens"],
        "rows": data[0][1].shape[0],
        "first device": {
            variable.path: list(variable.value.addressable_shards[0].data.shape)
            for variable in [*model.weights, *model.optimizer.variables]
        },
        "bytes": {  # of each variable, and of its parts on one device
            variable.path: [variable.value.nbytes, bytes_on_one_device(variable.value)]
            for variable in [*model.variables, *model.optimizer.variables]
        },
    }
    figures["weights"] = {
        weight.path.split("/", 1)[1]: whole_array(weight.value).tolist() for weight in model.weights
    }
    if not TWO_PROCESSES:
        ids = np.array([[*row[:2], 3] for row in SOURCES[:8]])
        figures["ids"] = np.asarray(model.generate(ids, BeamSearch(2), max_length=8).ids).tolist()
    keras.distribution.set_distribution(None)
    return figures


def main():
    """Prints the figures."""
    if TWO_PROCESSES:
        process = int(sys.argv[2]), 2
        print(json.dumps(trained(TransformerParallel(2, 4), process)))
        return
    distributions = {
        "one": None,
        "data": keras.distribution.DataParallel(auto_shard_dataset=False),
        "model": TransformerParallel(2, 4),
    }
    results = {name: trained(distribution) for name, distribution in distributions.items()}
    try:
        trained(TransformerParallel(2, 3))
    except ValueError as error:
        results["error"] = str(error)
    results["error without parts"] = error_without_parts()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
