"""Process NUMBER of two that train one model: `resume_in_two_processes.py ADDRESS NUMBER FOLDER`.

Both save a state in a directory that they share, then go on from directories that hold other
states. Prints JSON: for each case the epoch that the state then has, or what was refused.
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import keras  # noqa: E402
import numpy as np  # noqa: E402

from keras_transformer.callbacks import ExactResume  # noqa: E402
from keras_transformer.distribution import TransformerParallel  # noqa: E402
from keras_transformer.process_group import join_processes  # noqa: E402


def train(directory, seed=1):
    """One more epoch from the state in a directory; returns its number, or the error."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    try:
        resume = ExactResume(directory)
        fit = dict(initial_epoch=resume.epoch, epochs=resume.epoch + 1, verbose=0, shuffle=False)
        data = np.ones((2, 1), "float32")
        model.fit(data, data, batch_size=2, callbacks=[resume], **fit)
    except ValueError as error:
        return str(error)
    return ExactResume(directory).epoch


def main(address, number, folder):
    """Trains from states that are the same, of another epoch, missing, and of other weights."""
    join_processes(2, number, address)
    keras.distribution.set_distribution(TransformerParallel(2))
    shared = Path(folder) / "shared"
    found = {"none": train(shared)}
    own = {name: Path(folder) / f"{name}-{number}" for name in ("epoch", "missing", "weights")}
    shutil.copytree(shared, own["weights"])
    if number == 0:
        shutil.copytree(shared, own["missing"])
        shutil.copytree(shared, own["epoch"])
    found["same"] = train(shared)
    if number == 1:
        shutil.copytree(shared, own["epoch"])
        shutil.rmtree(own["weights"])
    other = Path(folder) / "other"
    found["other seed"] = train(other, seed=2)
    if number == 1:
        shutil.copytree(other, own["weights"])
    found |= {name: train(directory) for name, directory in own.items()}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
