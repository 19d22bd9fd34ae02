"""Runs a peer's training script in its folder, and finds out whether its dropout is on.

    python benchmarks/peer_training.py [--backend jax [--drop]] [--policy mixed_bfloat16] \\
        [--texts] keras_tutorial.py --size tiny --jit 1

`benchmarks.training` starts it. The first two options are for a script of Keras that has none of
its own. The script's line of JSON has `dropout` besides.

On JAX `fit` goes around the model's `__call__` (Keras 3.15). The tutorial's model leaves it to
Keras to pass `training` to its layers, so it trains with all dropout off. --drop turns dropout on
in every layer, so the peer does the work of the others. With --texts a script of Keras on
TensorFlow is given the batches that `benchmarks.ours_training --texts` makes of texts, and measures
nothing besides its loss.
"""

import argparse
import os
import runpy
import sys

from benchmarks.timing import dropout_is_on


def main():
    """Puts the check before the report of the peers' common part, and runs the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend")
    parser.add_argument("--policy")
    parser.add_argument("--drop", action="store_true")
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT [OPTIONS]")
    args = parser.parse_args()
    script, *options = args.script
    sys.path.insert(0, os.getcwd())
    import common

    if args.backend or args.policy:
        os.environ["KERAS_BACKEND"] = args.backend or "tensorflow"
        import keras  # the backend that it is imported with stays

        keras.config.set_dtype_policy(args.policy or "float32")
    if args.drop:
        drop_always()
    checks = {}
    fit_bench, measure, report = common.keras_fit_bench, common.measure, common.report

    def checked_fit_bench(model, make_data, sizes, *options, **kwargs):
        first = make_data
        if args.texts:
            make_data, first = data_of_texts(sizes["B"], sizes["T"])
        checks["dropout"] = lambda: dropout_is_on(model, first)
        fit_bench(model, make_data, sizes, *options, **kwargs)

    def checked_measure(step, *args, **kwargs):
        checks["dropout"] = lambda: losses_differ(step.__globals__)
        measure(step, *args, **kwargs)

    def checked_report(windows, sizes, label, size_name, first, extra=None):
        peak = common.rss_mb()  # of the training, before the check adds to it
        common.rss_mb = lambda: peak
        extra = {**(extra or {}), "dropout": checks["dropout"]()}
        report(windows, sizes, label, size_name, first, extra)

    common.keras_fit_bench, common.measure = checked_fit_bench, checked_measure
    common.report = checked_report
    sys.argv = [script, *options]
    runpy.run_path(script, run_name="__main__")


def data_of_texts(rows, length):
    """What makes ours' batches of texts, and what makes the first of them again and again."""
    from benchmarks.ours_training import batches_of_texts, first_again

    data = batches_of_texts(rows, length)
    return lambda: data(1), first_again(data)


def drop_always():
    """Lets every dropout of Keras think that it is in training."""
    import keras

    call = keras.layers.Dropout.call
    keras.layers.Dropout.call = lambda layer, inputs, training=True: call(layer, inputs, True)


def losses_differ(names):
    """Whether two losses of a PyTorch script's model on its first batch differ."""
    rows = slice(0, names["B"])
    batch = [names[part][rows] for part in ("src", "inp", "tgt")]
    return names["fwd"](*batch).item() != names["fwd"](*batch).item()


if __name__ == "__main__":
    main()
