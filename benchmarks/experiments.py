"""What the experiments share: results that survive a stop, runs with many seeds, tables."""

import json
import os
import time
from pathlib import Path

import keras
import numpy as np

from keras_transformer import MaskedCrossentropy, WarmupSchedule

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # told apart by all eyes
SKY, YELLOW, BLACK = "#56B4E9", "#E69F00", "#000000"
ADAM = dict(beta_2=0.98, epsilon=1e-9, global_clipnorm=1.0)
LONG_VALUE = 60  # characters; longer ones are kept, and not printed
# Student's t for 95 % intervals, by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}


class Results:
    """Results by their settings in a JSON lines file; what is there is not computed again."""

    def __init__(self, path):
        self.path = Path(path)
        self.rows = []
        if self.path.exists():
            self.rows = [
                json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()
            ]

    def find(self, key):
        """The result with the settings `key`, or None."""
        return next((row for row in self.rows if row.items() >= key.items()), None)

    def add(self, key, result):
        """Keeps a result; the file is whole at any moment."""
        self.rows.append({**key, **result})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(f".{self.path.name}")
        scratch.write_text("".join(f"{json.dumps(row)}\n" for row in self.rows), encoding="utf-8")
        os.replace(scratch, self.path)
        shown = {n: value for n, value in self.rows[-1].items() if len(str(value)) < LONG_VALUE}
        print(", ".join(f"{name} {value}" for name, value in shown.items()), flush=True)


def clock():
    """Seconds of the wall clock and of this process on all its cores."""
    return np.array([time.perf_counter(), time.process_time()])


def one_thread():
    """Takes one core alone: beside other work that costs the least time of the processor."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def compiled(model, d_model, peak, warmup):
    """Compiles a model with a warm-up to the learning rate `peak`; returns it."""
    scale = peak * (d_model * warmup) ** 0.5
    adam = keras.optimizers.Adam(WarmupSchedule(d_model, warmup, scale), **ADAM)
    # Without XLA: these runs are too short to earn its compilations back.
    model.compile(adam, MaskedCrossentropy(), jit_compile=False)
    return model


def restarted(model, make, seed):
    """Gives a compiled model the weights of a new one, and its optimizer an empty memory."""
    keras.utils.set_random_seed(seed)
    model.set_weights(make().get_weights())
    for variable in model.optimizer.variables:
        variable.assign(keras.ops.zeros_like(variable))


def interval(values):
    """The mean of a few independent values, and half of its 95 % interval by Student's t."""
    values = np.asarray(values, dtype="float64")
    if len(values) < 2:
        return float(values.mean()), float("nan")
    error = values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(STUDENT[len(values) - 1] * error)


def bootstrap(groups, draws=1000):
    """The mean over all groups, and its 95 % interval, as three numbers.

    A group has the values of one seed: seeds are drawn anew, and within each the values.
    """
    generator = np.random.default_rng(0)
    groups = [np.asarray(group, dtype="float64") for group in groups]
    means = []
    for _ in range(draws):
        chosen = generator.integers(len(groups), size=len(groups))
        means.append(np.mean([generator.choice(groups[i], len(groups[i])).mean() for i in chosen]))
    center = np.mean([group.mean() for group in groups])
    return (float(center), *map(float, np.percentile(means, [2.5, 97.5])))


def print_markdown(head, rows):
    """Prints a table as the pages of docs/ have it."""
    for cells in (head, *rows):
        print(f"| {' | '.join(cells)} |")
        if cells is head:
            print("|" + "---|" * len(head))
    print()


def plus_minus(values, digits=1):
    """The mean of a few values with half of its 95 % interval, as text."""
    mean, half = interval(values)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def new_panels(count=1, width=5.0, height=3.9, lines=1):
    """A figure with `count` panels side by side in each of `lines`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height * lines), layout="constrained")
    panels = figure.subplots(lines, count, squeeze=False).flatten()
    for panel in panels:
        panel.grid(color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def save(figure, path):
    """Writes a picture and says so."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"Drew {path}", flush=True)
