"""Time and peak memory of attention over long rows: full, and in blocks of a local window.

    python -m benchmarks.long_sequences [--window 128] [--lengths 1024 2048 ...] [--picture FILE]

Self-attention at inference, one row, d_model 256, 4 heads, float32. Each measurement is a process
of its own, so its peak memory is its own. What the process holds before the first call is
subtracted.
"""

import argparse
import json
import os
import subprocess
import sys

D_MODEL, HEADS = 256, 4
LENGTHS = [1024, 2048, 4096, 8192, 16384]
KINDS = {"full": "full attention", "local": "local window"}


def main():
    """Measures every length with both kinds, prints the table and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--picture", metavar="FILE", default="docs/long_sequences.png")
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.lengths[0], args.window, args.causal)))
        return
    rows = []
    print(f"{'positions':>9}  {'kind':<14} {'seconds':>8}  {'peak MiB':>8}", flush=True)
    for length in args.lengths:
        for kind, name in KINDS.items():
            row = {"length": length, "kind": kind, **in_own_process(kind, length, args)}
            rows.append(row)
            print(
                f"{length:>9,}  {name:<14} {row['seconds']:8.3f}  {row['mebibytes']:8.0f}",
                flush=True,
            )
    draw(rows, args)
    last = {row["kind"]: row for row in rows if row["length"] == args.lengths[-1]}
    faster = last["full"]["seconds"] / last["local"]["seconds"]
    smaller = last["full"]["mebibytes"] / max(last["local"]["mebibytes"], 1)
    print(f"Drew {args.picture}")
    print(
        f"At {args.lengths[-1]:,} positions a window of {args.window} is {faster:.0f} times faster "
        f"and takes {smaller:.0f} times less memory."
    )


def in_own_process(kind, length, args):
    """Runs one measurement and returns its figures."""
    command = [sys.executable, "-m", "benchmarks.long_sequences", "--measure", kind]
    command += ["--lengths", str(length), "--window", str(args.window)]
    command += ["--causal"] * args.causal
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        sys.exit(f"error: {kind} attention over {length} positions failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(kind, length, window, causal):
    """Seconds of a call after the first, and the peak memory that the calls added."""
    import resource
    import time

    import keras
    import numpy as np

    from keras_transformer.layers import MultiHeadAttention

    layer = MultiHeadAttention(
        HEADS, D_MODEL // HEADS, window=window if kind == "local" else None, use_bias=False
    )
    hidden = np.random.default_rng(0).normal(size=(1, length, D_MODEL)).astype("float32")
    hidden = keras.ops.convert_to_tensor(hidden)

    def run():
        return keras.ops.convert_to_numpy(layer(hidden, hidden, use_causal_mask=causal))

    # The first call of a process loads and allocates what no later one does: make it a small one.
    small = hidden[:, : min(length, 256)]
    keras.ops.convert_to_numpy(layer(small, small, use_causal_mask=causal))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    times = []
    for _ in range(3):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": sorted(times)[1], "mebibytes": peak / 1024}


def draw(rows, args):
    """Draws seconds and memory over the length, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = figure.subplots(1, 2)
    styles = {"full": ("#D55E00", "o"), "local": ("#0072B2", "s")}
    labels = {"full": "full attention", "local": f"window of {args.window} either side, in blocks"}
    for panel, key, label in zip(
        panels, ("seconds", "mebibytes"), ("seconds a call", "peak memory (MiB)"), strict=True
    ):
        for kind, (color, marker) in styles.items():
            points = [(row["length"], max(row[key], 1e-3)) for row in rows if row["kind"] == kind]
            panel.plot(*zip(*points, strict=True), color=color, marker=marker, label=labels[kind])
            value = points[-1][1]
            panel.annotate(
                f"{value:.2f}" if value < 10 else f"{value:,.0f}",
                points[-1],
                textcoords="offset points",
                xytext=(0, 7),
                ha="center",
                color=color,
            )
        panel.set(xscale="log", yscale="log", xlabel="positions", ylabel=label)
        panel.set_xticks(args.lengths, [f"{length // 1024}k" for length in args.lengths])
        panel.minorticks_off()
        panel.margins(y=0.12)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, loc="upper left")
    os.makedirs(os.path.dirname(args.picture) or ".", exist_ok=True)
    figure.savefig(args.picture, dpi=120)


if __name__ == "__main__":
    main()
