"""Checks what lectures say of attention by small experiments, each with a picture and an outcome.

    python -m benchmarks.statements [NAME ...] [--seeds 1 2 3] [--results FILE] [--pictures DIR]

Names: long (attention helps most on long sequences), scaling (dot products need scaling as they
grow wide, additive similarity does not), and those of benchmarks.variants, about the parts of a
Transformer: heads, key_width, positions, sum, dropout, dropout_long, size. Without names: all.

Results stay in FILE: stopped, or with more seeds, the same command goes on with what is missing.
One thread, TensorFlow without XLA, so that the seconds of the processor say what a training costs.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from benchmarks import experiments, symbols
from benchmarks.experiments import BLACK, BLUE, GREEN, ORANGE, interval
from benchmarks.variants import STATEMENTS, check_parts
from keras_transformer import RecurrentSeq2Seq, SimilarityAttention, Transformer

LENGTHS = [5, 10, 15, 20, 25, 30]
LONG_UPDATES, LONG_BATCH = 200, 64
REVERSERS = {
    "no attention": (BLACK, "x", dict(attention=None)),
    "scaled dot": (BLUE, "s", dict(attention="scaled_dot")),
    "additive": (ORANGE, "^", dict(attention="additive")),
    "Transformer": (GREEN, "o", None),
}
WIDTHS = [4, 16, 64, 256, 1024]
TRAINED_WIDTHS = [4, 16, 64, 256]
SIMILARITIES = {"dot": (ORANGE, "o"), "scaled_dot": (BLUE, "s"), "additive": (GREEN, "^")}
LOOKUP_UPDATES, LOOKUP_BATCH, LOOKUP_RATE, NUM_ENTRIES = 400, 64, 0.01, 8


def main():
    """Runs the experiments that are asked for and missing; prints and draws their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["long", "scaling", *STATEMENTS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--results", default="runs/statements.jsonl", metavar="FILE")
    parser.add_argument("--pictures", default="docs/pictures", metavar="DIR")
    args = parser.parse_args()
    for name in args.names:
        if name not in names:
            parser.error(f"NAME must be one of {', '.join(names)}. Received: {name}")
    experiments.one_thread()
    results = experiments.Results(args.results)
    for name in args.names or names:
        print(f"\n== {name}", flush=True)
        if name == "long":
            check_long(results, args)
        elif name == "scaling":
            check_scaling(results, args)
        else:
            check_parts(name, results, args)


def check_long(results, args):
    """Trains models to reverse sequences; tests them at each length."""
    tests = {length: symbols.reversals(200, length, seed=1000 + length) for length in LENGTHS}
    for name in REVERSERS:
        model = None
        for seed in args.seeds:
            key = {"experiment": "long", "model": name, "updates": LONG_UPDATES, "seed": seed}
            if results.find(key):
                continue
            model = model or experiments.compiled(new_reverser(name), 64, 0.004, warmup=50)
            experiments.restarted(model, lambda name=name: new_reverser(name), seed)
            pairs = symbols.reversals(LONG_UPDATES * LONG_BATCH, range(5, 31), seed)
            began = experiments.clock()
            model.fit(*pairs, batch_size=LONG_BATCH, verbose=0)
            seconds, cpu = experiments.clock() - began
            right = [symbols.share_right(model, tests[length]) for length in LENGTHS]
            shown = {"cpu_seconds": round(cpu, 1), "seconds": round(seconds, 1)}
            results.add(key, {**shown, "longest": right[-1], "right": right})
    draw_long(results, args)


def new_reverser(name):
    """A model of width 64 for the task of reversing."""
    vocab_size, options = symbols.FIRST + symbols.NUM_SYMBOLS, REVERSERS[name][-1]
    if options is None:
        model = Transformer(
            vocab_size, num_layers=2, d_model=64, num_heads=4, d_ff=128, dropout=0, norm_first=True
        )
    else:
        model = RecurrentSeq2Seq(vocab_size, d_model=64, dropout=0, **options)
    model.build()
    return model


def shares_of(name, results, args):
    """The symbols that a model has right, in percent, (seeds, lengths)."""
    key = {"experiment": "long", "model": name, "updates": LONG_UPDATES}
    return 100 * np.array([results.find({**key, "seed": seed})["right"] for seed in args.seeds])


def draw_long(results, args):
    """Draws the share of right symbols by length, and prints it."""
    figure, (panel,) = experiments.new_panels(width=6.4)
    print(f"{'share right at length':<22}" + "".join(f"{length:>14}" for length in LENGTHS))
    shares = {name: shares_of(name, results, args) for name in REVERSERS}
    for name, (color, marker, _) in REVERSERS.items():
        points = [interval(column) for column in shares[name].T]
        print(f"{name:<22}" + "".join(f"{m:7.1f} ± {h:4.1f}" for m, h in points))
        middle, half = np.array(points).T
        panel.plot(LENGTHS, middle, color=color, marker=marker, label=name)
        low, high = np.clip([middle - half, middle + half], 0, 100)
        panel.fill_between(LENGTHS, low, high, color=color, alpha=0.15)
    for name in ("scaled dot", "additive"):
        gains = (shares[name] - shares["no attention"]).T
        more, half = interval(gains[-1] - gains[0])
        print(
            f"{name} attention gains {gains[0].mean():.1f} points at length {LENGTHS[0]} and "
            f"{gains[-1].mean():.1f} at {LENGTHS[-1]}: {more:.1f} ± {half:.1f} more"
        )
    panel.axhline(100 / symbols.NUM_SYMBOLS, color="#777777", linestyle=":", label="guessing")
    panel.set(xlabel="length of the sequence", ylabel="symbols right (%)", ylim=(0, 103))
    panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    experiments.save(figure, f"{args.pictures}/statement_long.png")


def check_scaling(results, args):
    """Measures the softmax at the start by width, and how well each similarity then learns."""
    start = {name: [start_of(name, width) for width in WIDTHS] for name in SIMILARITIES}
    for similarity in SIMILARITIES:
        for width in TRAINED_WIDTHS:
            model = None
            for seed in args.seeds:
                key = {"experiment": "scaling", "similarity": similarity, "d_k": width}
                key |= {"updates": LOOKUP_UPDATES, "seed": seed}
                if results.find(key):
                    continue
                model = model or compiled_lookup(similarity, width)
                began = experiments.clock()
                accuracy = trained_lookup(model, similarity, width, seed)
                seconds, cpu = experiments.clock() - began
                shown = {"cpu_seconds": round(cpu, 1), "seconds": round(seconds, 1)}
                results.add(key, {"accuracy": accuracy, **shown})
    draw_scaling(results, args, start)


def normal_vectors(width, rows=400, keys=16):
    """Queries (rows, 1, width) and keys (rows, keys, width), normal with variance 1."""
    generator = np.random.default_rng(0)
    return (generator.normal(size=(rows, n, width)).astype("float32") for n in (1, keys))


def products_of(width):
    """The dot products of queries and keys."""
    query, memory = normal_vectors(width)
    return np.einsum("bqd,bkd->bqk", query, memory)


def start_of(similarity, width):
    """What an untrained attention gives for normal queries and keys of variance 1.

    Returns the entropy of its weights in nats, and the sum over the keys of w (1 - w), the slopes
    of the weights by their own scores: near 0 the softmax passes no gradient on.
    """
    keras.utils.set_random_seed(0)
    query, memory = normal_vectors(width)
    _, weights = SimilarityAttention(similarity)(query, memory)
    weights = keras.ops.convert_to_numpy(weights)[:, 0].astype("float64")
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=-1).mean()
    return entropy, (weights * (1 - weights)).sum(axis=-1).mean()


def compiled_lookup(similarity, width):
    """A compiled model for the task of looking up."""
    model = symbols.lookup_model(similarity, width)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
    return model


def trained_lookup(model, similarity, width, seed):
    """Trains from new weights; returns the accuracy on new tables."""
    experiments.restarted(model, lambda: symbols.lookup_model(similarity, width), seed)
    model.optimizer.learning_rate = LOOKUP_RATE
    inputs, answers = symbols.lookups(LOOKUP_UPDATES * LOOKUP_BATCH, NUM_ENTRIES, seed)
    model.fit(inputs, answers, batch_size=LOOKUP_BATCH, verbose=0)
    inputs, answers = symbols.lookups(2000, NUM_ENTRIES, seed=999)
    return model.evaluate(inputs, answers, batch_size=500, verbose=0)[1]


def draw_scaling(results, args, start):
    """Draws entropy, slope and accuracy by width, and prints them."""
    variances = [np.var(products_of(width)) for width in WIDTHS]
    print(f"variance of a dot product at d_k {WIDTHS}: {np.round(variances, 1)}")
    figure, panels = experiments.new_panels(3, width=4.0, height=3.6)
    for name, (color, marker) in SIMILARITIES.items():
        key = {"experiment": "scaling", "similarity": name, "updates": LOOKUP_UPDATES}
        points = [
            interval(
                [
                    100 * results.find({**key, "d_k": width, "seed": seed})["accuracy"]
                    for seed in args.seeds
                ]
            )
            for width in TRAINED_WIDTHS
        ]
        entropy, slope = np.array(start[name]).T
        style = {"color": color, "marker": marker, "label": name.replace("_", " ")}
        panels[0].plot(WIDTHS, entropy, **style)
        panels[1].plot(WIDTHS, slope, **style)
        middle, half = np.array(points).T
        errors = [half, np.minimum(half, 100 - middle)]
        panels[2].errorbar(TRAINED_WIDTHS, middle, errors, capsize=3, **style)
        print(f"{name:<11} entropy at d_k {WIDTHS}: {np.round(entropy, 2)}")
        print(f"{'':<11} slope: {np.round(slope, 3)}")
        shown = ", ".join(f"{mean:.1f} ± {half:.1f}" for mean, half in points)
        print(f"{'':<11} accuracy after training at d_k {TRAINED_WIDTHS}: {shown}")
    panels[0].axhline(np.log(16), color="#777777", linestyle=":")
    panels[0].annotate("equal weights", (64, np.log(16)), (0, 4), textcoords="offset points")
    panels[2].axhline(100 / symbols.NUM_VALUES, color="#777777", linestyle=":")
    panels[2].annotate(
        "guessing", (4, 100 / symbols.NUM_VALUES), (0, 4), textcoords="offset points"
    )
    titles = ("entropy of the weights (nats)", "slope of the softmax", "right after training (%)")
    for panel, title in zip(panels, titles, strict=True):
        panel.set(xscale="log", xlabel="width of queries and keys, d_k", ylabel=title)
        panel.set_ylim(bottom=0)
        panel.minorticks_off()
        panel.set_xticks(WIDTHS, WIDTHS)
    panels[0].legend(frameon=False)
    experiments.save(figure, f"{args.pictures}/statement_scaling.png")


if __name__ == "__main__":
    main()
