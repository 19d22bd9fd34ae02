"""Whether attention helps most on long sequences: models learn to write symbols backwards."""

import numpy as np

from benchmarks import experiments, symbols
from benchmarks.experiments import BLACK, BLUE, GREEN, ORANGE, interval, plus_minus
from keras_transformer import RecurrentSeq2Seq, Transformer

LENGTHS = [5, 10, 15, 20, 25, 30]
RECIPE = dict(updates=200, batch=64, shortest=5, longest=30, peak=0.004, warmup=50, d_model=64)
TEST = dict(test_count=200, test_seed=1000)  # sequences of each length
TRANSFORMER = dict(num_layers=2, num_heads=4, d_ff=128, norm_first=True)
NO_ATTENTION = "no attention"
REVERSERS = {
    NO_ATTENTION: (BLACK, "x", dict(attention=None)),
    "scaled dot": (BLUE, "s", dict(attention="scaled_dot")),
    "additive": (ORANGE, "^", dict(attention="additive")),
    "Transformer": (GREEN, "o", TRANSFORMER),
}


def make_key(name, seed):
    """What a result is found by: every setting."""
    recipe = {**RECIPE, **TEST, **experiments.ADAM, "symbols": symbols.NUM_SYMBOLS}
    recipe |= {"lengths": LENGTHS, **REVERSERS[name][-1]}
    return {"experiment": "long", "model": name, "seed": seed, "recipe": recipe}


def check_long(results, args):
    """Trains models to reverse sequences; tests them at each length."""
    for name in REVERSERS:
        model = None
        for seed in args.seeds:
            if results.find(make_key(name, seed)):
                continue
            model = model or experiments.compiled(
                new_reverser(name), RECIPE["d_model"], RECIPE["peak"], RECIPE["warmup"]
            )
            results.add(make_key(name, seed), train_and_test(model, name, seed))
    draw_long(results, args)


def train_and_test(model, name, seed):
    """Trains from new weights; returns the share of right symbols at each length."""
    experiments.restarted(model, lambda: new_reverser(name), seed)
    lengths = range(RECIPE["shortest"], RECIPE["longest"] + 1)
    pairs = symbols.reversals(RECIPE["updates"] * RECIPE["batch"], lengths, seed)
    began = experiments.clock()
    model.fit(*pairs, batch_size=RECIPE["batch"], verbose=0)
    seconds, cpu = experiments.clock() - began
    tests = [symbols.reversals(TEST["test_count"], n, seed=TEST["test_seed"] + n) for n in LENGTHS]
    right = [symbols.share_right(model, test) for test in tests]
    return {"cpu_seconds": round(cpu, 1), "seconds": round(seconds, 1), "right": right}


def new_reverser(name):
    """A model for the task of reversing."""
    vocab_size, options = symbols.FIRST + symbols.NUM_SYMBOLS, REVERSERS[name][-1]
    kind = RecurrentSeq2Seq if "attention" in options else Transformer
    model = kind(vocab_size, d_model=RECIPE["d_model"], dropout=0, **options)
    model.build()
    return model


def draw_long(results, args):
    """Prints and draws the share of right symbols by length, and prints what attention gains."""
    shares = {
        name: 100 * np.array([results.find(make_key(name, seed))["right"] for seed in args.seeds])
        for name in REVERSERS
    }  # (seeds, lengths)
    print_shares(shares)
    print_gains(shares)
    figure, (panel,) = experiments.new_panels(width=6.4)
    for name, (color, marker, _) in REVERSERS.items():
        middle, half = np.array([interval(column) for column in shares[name].T]).T
        panel.plot(LENGTHS, middle, color=color, marker=marker, label=name)
        low, high = np.clip([middle - half, middle + half], 0, 100)
        panel.fill_between(LENGTHS, low, high, color=color, alpha=0.15)
    panel.axhline(100 / symbols.NUM_SYMBOLS, color="#777777", linestyle=":", label="guessing")
    panel.set(xlabel="length of the sequence", ylabel="symbols right (%)", ylim=(0, 103))
    panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    experiments.save(figure, f"{args.pictures}/statement_long.png")


def print_shares(shares):
    """Prints the share of right symbols, a column a length."""
    lines = [[name, *map(plus_minus, found.T)] for name, found in shares.items()]
    experiments.print_markdown(["symbols right (%)", *map(str, LENGTHS)], lines)


def print_gains(shares):
    """Prints what attention gains in percentage points, and by what factor it divides errors.

    Points have a ceiling, the errors without attention, which is low where sequences are short; a
    factor has none.
    """
    without = shares[NO_ATTENTION]
    others = {name: found for name, found in shares.items() if name != NO_ATTENTION}
    lines = [["most that can be gained", *(f"{100 - mean:.1f}" for mean in without.mean(axis=0))]]
    for name, found in others.items():
        lines.append([f"{name}, points", *map(plus_minus, (found - without).T)])
    for name, found in others.items():
        factors = divided(100 - without.mean(axis=0), 100 - found.mean(axis=0))
        lines.append([f"{name}, errors divided by", *(f"{factor:.1f}" for factor in factors)])
    experiments.print_markdown(["gained by attention", *map(str, LENGTHS)], lines)
    ends = f"from {LENGTHS[0]} to {LENGTHS[-1]}"
    lines = [[name, *changes(found, without)] for name, found in others.items()]
    experiments.print_markdown([ends, "points gained", "errors divided by"], lines)


def changes(shares, without):
    """How both gains change from the shortest to the longest sequences, within a seed."""
    points = plus_minus((shares - without)[:, -1] - (shares - without)[:, 0])
    factors = divided(100 - without, 100 - shares)  # (seeds, lengths)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, half = interval(np.log(factors[:, -1] / factors[:, 0]))
    low, middle, high = np.exp([mean - half, mean, mean + half])
    return f"{points} more", f"{middle:.2f} times ({low:.2f} to {high:.2f})"


def divided(errors, fewer):
    """The quotient, infinite where nothing is left."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return errors / fewer
