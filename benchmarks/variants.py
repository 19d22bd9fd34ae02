"""Statements about the parts of a Transformer, checked on dates by one small model and variants."""

from typing import NamedTuple

import keras
import numpy as np

from benchmarks import experiments
from benchmarks.experiments import BLUE, ORANGE, interval, plus_minus
from benchmarks.small_translator import D_FF_FACTOR, MAX_LENGTH, small_translator
from benchmarks.symbols import BOS, PAD
from keras_transformer.recipes.dates import date_pairs, split_pairs
from keras_transformer.text import SentencePieceTokenizer, translation_dataset

FEW_PAIRS = 1000
LONG_UPDATES = 2000
MEAN = dict(color=BLUE, markersize=14, markeredgewidth=2.5, capsize=4)
# The peak is that at d_model 64, and goes as 1 / sqrt(d_model) at other widths.
RECIPE = dict(peak=0.004, warmup=100, tokens_per_batch=512, vocab_size=600, max_shapes=2)
DATES = dict(dates=30_000, held_out=1000, rest=1000, dates_seed=1)
DATES_TOKENIZER = dict(lossless=True, split_digits=True)
# What a variant may change; pairs None are all.
MODEL = dict(small_translator.__kwdefaults__)
TRAINING = dict(pairs=None, updates=300)


class Statement(NamedTuple):
    """What is said, the variants it is about, and which of them are compared."""

    claim: str
    variants: dict  # label: what it changes in `MODEL` and `TRAINING`
    compared: list  # (label, label): the first, by the difference of its loss from the second


MEASURES = [("loss", 1), ("exact", 100)]  # what a result has, and how it is shown
BASE = {}
STATEMENTS = {
    "heads": Statement(
        "several heads are better than one, and too many are worse again (Table 3, A)",
        {
            "1 head of 64": dict(num_heads=1),
            "4 heads of 16": BASE,
            "32 heads of 2": dict(num_heads=32),
        },
        [("1 head of 64", "4 heads of 16"), ("32 heads of 2", "4 heads of 16")],
    ),
    "key_width": Statement(
        "narrower keys make it worse (Table 3, B)",
        {"d_k 16": BASE, "d_k 4": dict(key_dim=4), "d_k 1": dict(key_dim=1)},
        [("d_k 4", "d_k 16"), ("d_k 1", "d_k 4")],
    ),
    "positions": Statement(
        "learned positions do as well as sines (Table 3, E); without any it is worse",
        {
            "sinusoidal": BASE,
            "learned": dict(position="learned"),
            "none": dict(position="none"),
        },
        [("learned", "sinusoidal"), ("none", "sinusoidal")],
    ),
    "positions_long": Statement(
        "learned positions do as well as sines, in a longer training",
        {
            "sinusoidal": dict(updates=LONG_UPDATES),
            "learned": dict(updates=LONG_UPDATES, position="learned"),
        },
        [("learned", "sinusoidal")],
    ),
    "sum": Statement(
        "adding positions is as good as appending them to embeddings of half the width",
        {"added": BASE, "appended": dict(combine="concat")},
        [("appended", "added")],
    ),
    "dropout": Statement(
        "dropout helps where there is little to learn from (Table 3, D)",
        {
            "none": dict(pairs=FEW_PAIRS),
            "0.1": dict(pairs=FEW_PAIRS, dropout=0.1),
            "0.3": dict(pairs=FEW_PAIRS, dropout=0.3),
        },
        [("0.1", "none"), ("0.3", "none")],
    ),
    "dropout_long": Statement(
        "dropout helps where the training is long enough to learn the pairs by heart",
        {
            "none": dict(pairs=300, updates=1200),
            "0.1": dict(pairs=300, updates=1200, dropout=0.1),
        },
        [("0.1", "none")],
    ),
    "size": Statement(
        "bigger models are better (Table 3, C)",
        {
            "width 32": dict(d_model=32, num_heads=2),
            "width 64": BASE,
            "width 128": dict(d_model=128, num_heads=8),
        },
        [("width 32", "width 64"), ("width 128", "width 64")],
    ),
}


def check_parts(name, results, args):
    """Trains the missing variants of a statement, prints its outcome and draws it."""
    statement = STATEMENTS[name]
    data = None
    for options in statement.variants.values():
        missing = [seed for seed in args.seeds if not results.find(make_key(options, seed))]
        if missing:
            data = data or Dates()
            train_variant(options, missing, data, results)
    rows = {
        label: [results.find(make_key(options, seed)) for seed in args.seeds]
        for label, options in statement.variants.items()
    }
    report(statement, rows)
    draw(name, statement, rows, args)


def make_key(options, seed):
    """What a result is found by: every setting."""
    constants = {"d_ff_factor": D_FF_FACTOR, "max_length": MAX_LENGTH, **DATES_TOKENIZER}
    recipe = {**MODEL, **TRAINING, **RECIPE, **DATES, **constants, **experiments.ADAM}
    return {"experiment": "parts", "options": options, "seed": seed, "recipe": recipe}


class Dates:
    """Dates in English and French: a tokenizer, pairs to train on, and held-out ones."""

    def __init__(self):
        seed = DATES["dates_seed"]
        pairs = date_pairs(DATES["dates"], seed=seed)
        self.train, self.held_out, _ = split_pairs(
            pairs, DATES["held_out"], DATES["rest"], seed=seed
        )
        texts = [text for pair in self.train for text in pair]
        self.tokenizer = SentencePieceTokenizer.train(
            texts, RECIPE["vocab_size"], shrink_to_fit=True, **DATES_TOKENIZER
        )
        self.test = self.dataset(self.held_out, tokens_per_batch=8192, max_shapes=2)

    def dataset(self, pairs, **options):
        """Batches of these pairs."""
        return translation_dataset(
            *zip(*pairs, strict=True), self.tokenizer, verbose=False, **options
        )

    def training(self, num_pairs, num_batches, seed):
        """Batches of the first `num_pairs` pairs, pass after pass."""
        return self.dataset(
            self.train[:num_pairs],
            tokens_per_batch=RECIPE["tokens_per_batch"],
            max_shapes=RECIPE["max_shapes"],
            shuffle=True,
            seed=seed,
            batches_per_epoch=num_batches,
        )


def train_variant(options, seeds, data, results):
    """Trains one variant with each seed, and keeps what it reached on held-out pairs."""
    training, sizes = ({**part, **pick_options(options, part)} for part in (TRAINING, MODEL))
    width = sizes["d_model"]

    def make():
        return small_translator(data.tokenizer.vocab_size, **sizes)

    peak = RECIPE["peak"] * (MODEL["d_model"] / width) ** 0.5
    model = experiments.compiled(make(), width, peak, RECIPE["warmup"])
    for seed in seeds:
        experiments.restarted(model, make, seed)
        began = experiments.clock()
        history = model.fit(
            data.training(training["pairs"], training["updates"], seed), shuffle=False, verbose=0
        ).history
        seconds, cpu = experiments.clock() - began
        loss, exact = held_out(model, data.test)
        shown = {"cpu_seconds": round(cpu, 1), "seconds": round(seconds, 1)}
        shown |= {"parameters": model.count_params(), "train_loss": history["loss"][0]}
        results.add(make_key(options, seed), {"loss": loss, "exact": exact, **shown})


def pick_options(options, part):
    """Those of a variant's options that a part of the settings has."""
    return {name: value for name, value in options.items() if name in part}


def held_out(model, test):
    """The loss of a token in nats, and the share of pairs that greedy search would get right.

    Greedy search writes a reference exactly when each of its tokens is the likeliest after
    the ones before, so no search is needed.
    """
    losses = tokens = right = pairs = 0
    for inputs, outputs in test:
        logits = keras.ops.convert_to_numpy(model.predict_on_batch(inputs)).astype("float64")
        outputs = outputs.numpy()
        real = outputs != PAD
        log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        losses -= np.take_along_axis(log_probs, outputs[..., None], axis=-1)[..., 0][real].sum()
        logits[..., [PAD, BOS]] = -np.inf  # no search writes these
        equal = ((logits.argmax(axis=-1) == outputs) | ~real).all(axis=-1)
        filled = real.any(axis=-1)
        tokens, pairs = tokens + real.sum(), pairs + filled.sum()
        right += (equal & filled).sum()
    return float(losses / tokens), float(right / pairs)


def report(statement, rows):
    """Prints a table of the variants, and how the loss of one differs from that of another."""
    print(f"said: {statement.claim}\n")
    lines = []
    for label, found in rows.items():
        losses, exact = ([scale * row[key] for row in found] for key, scale in MEASURES)
        cells = [label, f"{found[0]['parameters']:,}", plus_minus(losses, 3), plus_minus(exact)]
        lines.append([*cells, *differences(label, statement, rows)])
    measures = ["held-out loss", "right (%)", "difference of loss", "outcome"]
    experiments.print_markdown(["variant", "parameters", *measures], lines)


def differences(label, statement, rows):
    """How much the loss of a variant is above that of another, within a seed, and what it says."""
    for one, other in statement.compared:
        if one == label:
            pairs = zip(rows[one], rows[other], strict=True)
            differences = [mine["loss"] - theirs["loss"] for mine, theirs in pairs]
            told = verdict(*interval(differences))
            return [f"{plus_minus(differences, 3)} from {other}", told]
    return ["", ""]


def verdict(mean, half):
    """What an interval says of a difference of losses."""
    if not half < abs(mean):
        return "no difference shown"
    return "worse" if mean > 0 else "better"


def draw(name, statement, rows, args):
    """Draws the loss of every seed and the mean, a row a variant."""
    figure, panels = experiments.new_panels(2, width=4.6, height=1.4 + 0.5 * len(rows))
    titles = ("held-out loss of a token (nats)", "held-out pairs right (%)")
    for panel, (key, scale), title in zip(panels, MEASURES, titles, strict=True):
        for place, found in enumerate(rows.values()):
            values = [scale * row[key] for row in found]
            mean, half = interval(values)
            label = {"label": "mean, 95 % interval" if place == 0 else None}
            panel.errorbar(mean, place, xerr=half, fmt="|", **MEAN, **label)
            label = {"label": "one seed" if place == 0 else None}
            panel.plot(values, [place + 0.2] * len(values), "o", color=ORANGE, **label)
        panel.set_yticks(range(len(rows)), list(rows) if key == "loss" else [""] * len(rows))
        panel.invert_yaxis()
        panel.margins(y=0.25)
        panel.set_xlabel(title)
        panel.locator_params(axis="x", nbins=8)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
    )
    experiments.save(figure, f"{args.pictures}/statement_{name}.png")
