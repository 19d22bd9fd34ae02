"""Forward and backward time of our MultiHeadAttention beside Keras's and torch's layer.

    python -m benchmarks.attention [--seconds 2] [--backends tensorflow jax torch]

Self-attention, float32, a padding mask, the same weights' shapes, gradients by
the weights and the input. Each backend runs in a process of its own. Within it the layers take
turns and medians are compared, so ratios hold while the machine's speed drifts. A ratio below 1
says that ours is faster.
"""

import argparse
import os
import subprocess
import sys

# batch, length, d_model, heads
SIZES = [(32, 32, 128, 4), (16, 64, 512, 8), (4, 256, 512, 8), (1, 1024, 512, 8)]
MODES = ("inference", "training", "training, dropout 0.1")


def main():
    """Runs each backend in a process and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each line of the table")
    parser.add_argument("--backends", nargs="+", default=["tensorflow", "jax", "torch"])
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.seconds)
        return
    for backend in args.backends:
        command = [sys.executable, "-m", "benchmarks.attention", "--measure"]
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        print(f"\n{backend}, milliseconds (ours / theirs)", flush=True)
        done = subprocess.run(
            [*command, "--seconds", str(args.seconds)], env=environment, check=False
        )
        if done.returncode:
            sys.exit(f"error: the measurement on {backend} failed")


def measure(seconds):
    """Prints the lines of the backend that runs here."""
    import keras

    from benchmarks.timing import interleaved

    ratios = {}
    for size in SIZES:
        for mode in MODES:
            times = interleaved(candidates(keras.backend.backend(), size, mode), seconds)
            ours = times.pop("ours")
            shown = [
                f"{name} {theirs:8.2f} ({ours / theirs:4.2f})" for name, theirs in times.items()
            ]
            print(f"{size!s:<22} {mode:<22} ours {ours:8.2f}   " + "   ".join(shown), flush=True)
            for name, theirs in times.items():
                ratios.setdefault(name, []).append(ours / theirs)
    for name, values in ratios.items():
        middle = sorted(values)[len(values) // 2]
        print(f"ours / {name}: median {middle:.2f}, from {min(values):.2f} to {max(values):.2f}")


def candidates(backend, size, mode):
    """A function to time for each layer of the backend."""
    import keras

    from keras_transformer.layers import MultiHeadAttention

    batch, length, d_model, heads = size
    dropout = 0.1 if "dropout" in mode else 0.0
    make = {
        "ours": lambda: MultiHeadAttention(heads, d_model // heads, dropout=dropout),
        "Keras": lambda: keras.layers.MultiHeadAttention(heads, d_model // heads, dropout=dropout),
    }
    steps = {"tensorflow": tensorflow_step, "jax": jax_step, "torch": torch_step}[backend]
    functions = {}
    for name, layer in make.items():
        functions |= steps(name, layer(), size, mode)
    if backend == "torch":
        import torch

        layer = torch.nn.MultiheadAttention(d_model, heads, dropout, batch_first=True)
        functions |= torch_step("torch", layer, size, mode)
    return functions


def inputs(size):
    """Hidden vectors and a padding mask; the last sentence is three quarters long."""
    import numpy as np

    batch, length, d_model, _ = size
    hidden = np.random.default_rng(0).normal(size=(batch, length, d_model)).astype("float32")
    lengths = np.linspace(length * 3 // 4, length, batch).astype(int)
    return hidden, np.arange(length)[None] < lengths[:, None]


def tensorflow_step(name, layer, size, mode):
    """One call of the layer, compiled as `fit` and an export compile it."""
    import tensorflow as tf

    hidden, mask = map(tf.constant, inputs(size))
    layer.build(hidden.shape, hidden.shape)

    def forward(hidden, training):
        return layer(hidden, hidden, value_mask=mask, training=training)

    def infer():
        return tf.reduce_sum(forward(hidden, False))

    def train():
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            loss = tf.reduce_sum(forward(hidden, True) ** 2)
        sources = [hidden, *(weight.value for weight in layer.trainable_weights)]
        return sum(tf.reduce_sum(gradient) for gradient in tape.gradient(loss, sources))

    run = tf.function(infer if mode == "inference" else train, jit_compile=True)
    return {name: lambda: run().numpy()}


def jax_step(name, layer, size, mode):
    """One call of the layer, compiled as `fit` compiles it."""
    import jax

    hidden, mask = map(jax.numpy.asarray, inputs(size))
    layer.build(hidden.shape, hidden.shape)
    kept = [variable.value for variable in layer.non_trainable_variables]

    def forward(values, hidden, kept, training):
        return layer.stateless_call(
            values, kept, hidden, hidden, value_mask=mask, training=training
        )

    @jax.jit
    def infer(values, hidden, kept):
        return forward(values, hidden, kept, False)[0].sum()

    @jax.jit
    def train(values, hidden, kept):
        def loss(values, hidden):
            output, _ = forward(values, hidden, kept, True)
            return (output**2).sum()

        found = jax.tree.leaves(jax.grad(loss, (0, 1))(values, hidden))
        return sum(gradient.sum() for gradient in found)

    run = infer if mode == "inference" else train
    values = [variable.value for variable in layer.trainable_variables]
    return {name: lambda: float(run(values, hidden, kept))}


def torch_step(name, layer, size, mode):
    """One call of the layer, eager, as torch is run."""
    import torch

    hidden, mask = map(torch.tensor, inputs(size))
    hidden.requires_grad_(mode != "inference")
    if isinstance(layer, torch.nn.MultiheadAttention):
        layer.train(mode != "inference")
        weights = list(layer.parameters())

        def forward(training):
            return layer(hidden, hidden, hidden, key_padding_mask=~mask, need_weights=False)[0]

    else:
        layer.build(tuple(hidden.shape), tuple(hidden.shape))
        weights = [weight.value for weight in layer.trainable_weights]

        def forward(training):
            return layer(hidden, hidden, value_mask=mask, training=training)

    def infer():
        with torch.no_grad():
            return float(forward(False).sum())

    def train():
        loss = (forward(True) ** 2).sum()
        found = torch.autograd.grad(loss, [hidden, *weights])
        return float(sum(gradient.sum() for gradient in found))

    return {name: infer if mode == "inference" else train}


if __name__ == "__main__":
    main()
