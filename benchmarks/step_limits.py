"""How long a step of the exported search takes, and how long this machine needs for it at least.

    python -m benchmarks.step_limits --size base [--quantize int8] [--in-one-piece]

Each layout of the matrices, "rows" and "columns", has a table: `keras-transformer export --layout`
takes the faster one. A step is the difference of two searches of 40 and 8 forced tokens, a
thirty-second of it: encoder and start are left out. Its products alone are the decoder's
projections and logits, one after the other, compiled by XLA too. One limit is the time for all
products of a step, the other the time to read all its weights once. Both speeds are measured here
on large matrices.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks.ours_decoding import SIZES, VOCAB, source_ids
from benchmarks.timing import interleaved
from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.layers.dense import given_barrier
from keras_transformer.serving import Translator
from keras_transformer.serving.id_functions import barrier
from keras_transformer.text import CharacterTokenizer

FEW, MANY, STEPS = 8, 40, 32
LAYOUTS = ("rows", "columns")


def main():
    """Measures the machine, then each batch size greedily and with a beam of 4."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--quantize", choices=["int8"])
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    parser.add_argument("--in-one-piece", action="store_true", help="no halves side by side")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each row of the table")
    args = parser.parse_args()
    flops, bandwidth = multiplied_a_second(), read_a_second()
    print(f"this machine: {flops / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.0f} GB/s", flush=True)

    model = Transformer(VOCAB, **SIZES[args.size])
    model.build()
    for layout in args.layouts:
        if args.quantize and layout == "columns":
            print("\nint8 has rows alone: columns are slower")
        else:
            print_table(model, layout, flops, bandwidth, args)


def print_table(model, layout, flops, bandwidth, args):
    """Measures and prints a row for each search and batch size."""
    print(f"\n{args.size}, {args.quantize or 'float32'} in {layout}, milliseconds a step")
    columns = ("search", "step", "products", "to multiply", "to read", "products' part")
    print(f"{'':<22}" + "".join(f"{column:>16}" for column in columns), flush=True)
    for beam in (1, 4):
        searches = {length: searched(model, beam, length, layout, args) for length in (FEW, MANY)}
        longest = searches[MANY]
        products = build_products(longest.model)
        macs, size = count_work(longest.model)
        for batch in args.batches:
            rows = batch * beam
            taken = interleaved(
                {
                    FEW: called(searches[FEW], batch),
                    MANY: called(searches[MANY], batch),
                    "products": multiplied(products, rows, SIZES[args.size]["d_model"]),
                },
                args.seconds,
            )
            step, alone = (taken[MANY] - taken[FEW]) / STEPS, taken["products"] / STEPS
            halved = longest.search_ids.rows_at_a_time(batch) < batch
            times = 2 if halved else 1  # that all weights are read
            limits = [f"{2e3 * macs * rows / flops:.2f}", f"{1e3 * size * times / bandwidth:.2f}"]
            if args.quantize:
                limits[0] = "-"  # no product of floats
            name = f"batch {batch}, {'greedy' if beam == 1 else f'beam {beam}'}"
            cells = [f"{taken[MANY] / MANY:.2f}", f"{step:.2f}", f"{alone:.2f}", *limits]
            cells.append(f"{alone / step:.0%}")
            print(f"{name:<22}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def searched(model, beam, length, layout, args):
    """The translator's functions of ids, its outputs of exactly `length` tokens."""
    forced = {"min_length": length}
    search = GreedySearch(**forced) if beam == 1 else BeamSearch(beam, **forced)
    options = {"search": search, "max_length": length, "quantize": args.quantize}
    tokenizer = CharacterTokenizer.train(["any"])
    translator = Translator(model, tokenizer, layout=layout, **options)
    functions = translator.for_export().id_functions
    if args.in_one_piece:
        functions.search_ids.least_rows_to_halve = None
    return functions


def called(functions, batch):
    """A function of nothing that searches a batch."""
    any_ids = tf.TensorSpec([None, None], tf.int32)
    run = tf.function(functions.search_ids, [any_ids])
    ids = tf.constant(source_ids(batch))
    return lambda: run(ids)[1].numpy()


def build_products(model):
    """The products of a step, one after the other: a function (rows, 1, d_model) to the same."""

    def product(dense, hidden, *read):
        """Of vectors (rows, 1, d_model) to the same, which the layer reads as heads or whole."""
        rows, _, width = hidden.shape
        outputs = dense.step(tf.reshape(hidden, (rows, 1, *(read or [width]))))
        return tf.reshape(outputs, (rows, 1, width))

    def step(hidden):
        for layer in model.decoder.layers:
            own, cross = layer.self_attention, layer.cross_attention
            heads = own.num_heads, own.key_dim
            three = [own.query_dense, own.key_dense, own.value_dense]
            hidden = sum(product(dense, hidden) for dense in three)
            hidden = product(own.output_dense, hidden, *heads)
            hidden = product(cross.query_dense, hidden)
            hidden = product(cross.output_dense, hidden, *heads)
            inner = layer.feed_forward.inner.step(hidden)
            hidden = 0.01 * layer.feed_forward.outer.step(inner)
        logits = model.target_embedding.logits(hidden)
        return hidden + tf.reduce_max(logits, axis=-1, keepdims=True)

    return step


def multiplied(step, rows, width):
    """A function of nothing that runs the products of `STEPS` steps, compiled by XLA."""

    @tf.function(jit_compile=True)
    def run(hidden):
        with given_barrier(barrier):
            _, hidden = tf.while_loop(
                lambda index, _: index < STEPS,
                lambda index, hidden: (index + 1, step(hidden)),
                (0, hidden),
            )
        return hidden

    hidden = tf.random.normal((rows, 1, width))
    return lambda: run(hidden).numpy()


def count_work(model):
    """Multiplications of a step for each row, and the bytes of the weights it reads."""
    kernels = [weight for weight in model.decoder.weights if weight.path.endswith("kernel")]
    memory = [w for w in kernels if "cross" in w.path and ("/key" in w.path or "/value" in w.path)]
    kernels = [w for w in kernels if all(w is not other for other in memory)]
    kernels += [w for w in model.target_embedding.weights if len(w.shape) > 1][:1]
    macs = sum(int(tf.size(weight)) for weight in kernels)
    return macs, sum(int(tf.size(w)) * tf.as_dtype(w.dtype).size for w in kernels)


def multiplied_a_second(size=2048):
    """Floating point operations a second of a large product of float32."""
    matrix = tf.random.normal((size, size))
    return 2 * size**3 / best(lambda: tf.matmul(matrix, matrix).numpy())


def read_a_second(count=2**27):
    """Bytes a second of a sum over an array that no cache holds."""
    array = tf.ones((2, count // 2))
    total = tf.function(lambda: tf.reduce_sum(array, axis=1))
    return 4 * count / best(lambda: total().numpy())


def best(function, times=12):
    """The least seconds that a call takes."""
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return min(taken[2:])


if __name__ == "__main__":
    main()
