"""Times training steps of this package through `model.fit`, for `benchmarks.training`.

    python -m benchmarks.ours_training --size tiny [--policy mixed_bfloat16] [--no-jit]

Sizes and data are those of the peers' scripts: random ids with about a fifth of padding. Each side
has a vocabulary, and the output is tied to the target's. Label smoothing is 0.1, the optimizer
Adam. Dropout 0.1 is wherever one of the peers has it. All have it on embeddings and sub-layers. The
Keras peers and PyTorch have it on attention weights, and PyTorch on inner layers. With --texts the
ids are made of as many words, by `translation_dataset`, and what a user's training measures is
measured. With --as-keras a part of ours is computed as Keras does it, which tells what that part is
worth. Prints one line of JSON.
"""

import argparse
import json
import os
import resource
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import ops

from benchmarks.timing import dropout_is_on
from keras_transformer import (
    FusedAdam,
    MaskedCrossentropy,
    PaddingRatio,
    Perplexity,
    TokenCount,
    Transformer,
    losses,
)
from keras_transformer.callbacks import TrainingLog
from keras_transformer.layers.dense import Projection
from keras_transformer.layers.dropout import Dropout

# fmt: off
SIZES = {
    "tiny": dict(d_model=128, num_heads=4, d_ff=256, num_layers=4, rows=128, length=16),
    "base": dict(d_model=512, num_heads=8, d_ff=2048, num_layers=6, rows=32, length=32),
}
# fmt: on
VOCAB_SIZE = 8000
NUM_BATCHES = 8


def crossentropy(labels, logits, label_smoothing=0.0, mask=None):
    """`losses.token_crossentropy` with the gradient that the backend finds."""
    label_logits = ops.take_along_axis(logits, ops.cast(labels, "int32")[..., None], axis=-1)
    values = ops.logsumexp(logits, axis=-1) - (1 - label_smoothing) * label_logits[..., 0]
    values = values - label_smoothing * ops.mean(logits, axis=-1)
    return values if mask is None else ops.where(mask, values, 0.0)


# part: what is replaced, and by what
AS_KERAS = {
    "dropout": (Dropout, "call", keras.layers.Dropout.call),
    "projections": (Projection, "call", keras.layers.EinsumDense.call),
    "loss": (losses, "token_crossentropy", crossentropy),
}


def main():
    """Builds the model, trains it for the asked seconds and prints tokens a second."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--policy", default="float32")
    parser.add_argument("--no-jit", dest="jit", action="store_false", help="no XLA")
    parser.add_argument("--no-dropout", dest="dropout", action="store_false")
    parser.add_argument("--remat", action="store_true", help="compute layers again, save memory")
    parser.add_argument("--as-keras", choices=AS_KERAS, metavar="PART", help=", ".join(AS_KERAS))
    parser.add_argument("--texts", action="store_true", help="from texts, with metrics and log")
    parser.add_argument("--steps-per-execution", type=int, default=1, metavar="N", help="Keras's")
    parser.add_argument("--seconds", type=float, default=6.0)
    args = parser.parse_args()
    keras.config.set_dtype_policy(args.policy)
    if args.as_keras:
        owner, name, keras_own = AS_KERAS[args.as_keras]
        setattr(owner, name, keras_own)
    keras.utils.set_random_seed(1)
    size = dict(SIZES[args.size])
    rows, length = size.pop("rows"), size.pop("length")
    dropouts = "dropout", "attention_dropout", "feed_forward_dropout"
    size |= dict.fromkeys(dropouts, 0.1 if args.dropout else 0.0)
    vocabularies = {f"{side}_vocab_size": VOCAB_SIZE for side in ("source", "target")}
    model = Transformer(**vocabularies, **size, remat=args.remat)
    model.build()
    model.compile(
        optimizer=FusedAdam(1e-4, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        loss=MaskedCrossentropy(label_smoothing=0.1),
        metrics=[Perplexity(), TokenCount(), PaddingRatio()] if args.texts else None,
        jit_compile=args.jit,
        steps_per_execution=args.steps_per_execution,
    )
    data = (batches_of_texts if args.texts else batches)(rows, length)
    at_once = args.steps_per_execution
    begun = time.perf_counter()
    model.fit(data(at_once), epochs=1, steps_per_epoch=at_once, verbose=0, shuffle=False)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    model.fit(data(2 * at_once), epochs=1, steps_per_epoch=2 * at_once, verbose=0, shuffle=False)
    step_seconds = (time.perf_counter() - begun) / (2 * at_once)
    # The log measures a step in each epoch: not in every fifth step, as it never would for a user.
    # In less than a second nothing is measured but that it runs.
    least = 25 if args.texts and args.seconds >= 1 else 2
    steps = at_once * max(least, round(args.seconds / 5 / step_seconds / at_once))
    clock, log = EpochClock(), [TrainingLog()] if args.texts else []
    timed = dict(epochs=6, steps_per_epoch=steps, callbacks=[clock, *log])
    model.fit(data(6 * steps), **timed, verbose=0, shuffle=False)
    speed = rows * length * steps / statistics.median(clock.seconds[1:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = {
        "contestant": f"ours {args.policy}{'' if args.jit else ' without XLA'}"
        + " rematerialised" * args.remat
        + (f" with {args.as_keras} as Keras" if args.as_keras else "")
        + " from texts" * args.texts
        + (f" by {at_once} steps" if at_once > 1 else ""),
        "size": args.size,
        "tok_s": round(speed),
        "first_s": round(first, 1),
        "rss_mb": round(peak),
        "dropout": dropout_is_on(model, first_again(data)),
    }
    print(json.dumps(line), flush=True)


def batches(rows, length):
    """Returns a function that makes an iterator of this many batches."""
    random = np.random.default_rng(0)

    def side():
        ids = random.integers(3, VOCAB_SIZE, (NUM_BATCHES, rows, length), "int32")
        lengths = random.integers(round(0.6 * length), length + 1, (NUM_BATCHES, rows, 1))
        return np.where(np.arange(length) < lengths, ids, 0).astype("int32")

    sources, targets = side(), side()
    inputs = np.concatenate([np.ones_like(targets[..., :1]), targets[..., :-1]], -1)
    inputs = np.where(targets == 0, 0, inputs)

    def data(number):
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            ids = tf.data.Dataset.from_tensor_slices(((sources, inputs), targets))
            return ids.cache().repeat().prefetch(2)
        order = (index % NUM_BATCHES for index in range(number))
        return (((sources[i], inputs[i]), targets[i]) for i in order)

    return data


def batches_of_texts(rows, length):
    """As `batches`, from texts of as many words: tokenised, shuffled and padded by the package."""
    from keras_transformer.text import SymbolTokenizer, translation_dataset

    random, tokenizer = np.random.default_rng(0), SymbolTokenizer(map(str, range(VOCAB_SIZE - 4)))

    def texts():
        for number in random.integers(round(0.6 * length), length, 64 * rows):
            yield " ".join(map(str, random.integers(0, VOCAB_SIZE - 4, number)))

    dataset = translation_dataset(
        texts(), texts(), tokenizer, tokens_per_batch=rows * length, max_length=length,
        max_shapes=1, shuffle=True, seed=1, verbose=False,
    )  # fmt: skip
    if dataset.report.shapes != ((rows, length, length),):
        raise ValueError(f"the batches must be as the peers'. Received: {dataset.report.shapes}")
    endless = dataset.repeat()
    return lambda number: endless


def first_again(data):
    """A function that returns the first batch of `data(1)` each time: those of texts go on."""
    if keras.backend.backend() != "tensorflow":
        return lambda: data(1)
    # Not a generator of arrays, whose shapes are open, so that it is compiled again.
    once = data(1).take(1).cache()
    return lambda: once


class EpochClock(keras.callbacks.Callback):
    """Notes the seconds of each epoch."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        """Starts the clock."""
        self.begun = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        """Notes the time."""
        self.seconds.append(time.perf_counter() - self.begun)


if __name__ == "__main__":
    main()
