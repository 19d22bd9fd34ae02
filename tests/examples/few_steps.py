"""Runs an example that trains for three steps: `python -m tests.examples.few_steps SCRIPT ...`."""

import runpy
import sys
from pathlib import Path

import keras

STEPS = 3


def shorten(fit):
    """Returns a `fit` that takes one epoch of three batches, and validates on one."""

    def short(self, *args, epochs=1, **options):
        if options.get("validation_data") is not None:
            options["validation_steps"] = 1
        return fit(self, *args[:3], epochs=1, steps_per_epoch=STEPS, **options)

    return short


if __name__ == "__main__":
    keras.Model.fit = shorten(keras.Model.fit)
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
