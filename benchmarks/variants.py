"""Statements about the parts of a Transformer, checked on dates by one small model and variants."""

from typing import NamedTuple

import keras
import numpy as np

from benchmarks import experiments
from benchmarks.experiments import BLUE, ORANGE, interval
from benchmarks.small_translator import small_translator
from benchmarks.symbols import BOS, PAD
from examples.date_pairs import make_pairs, split_pairs
from keras_transformer.text import SentencePieceTokenizer, translation_dataset

UPDATES, WARMUP, TOKENS_PER_BATCH = 300, 100, 512
PEAK = 0.004  # at d_model 64, and as 1 / sqrt(d_model) at other widths
FEW_PAIRS = 1000
MEAN = dict(color=BLUE, markersize=14, markeredgewidth=2.5, capsize=4)


class Statement(NamedTuple):
    """What is said, the variants that it compares, and which should have the lower loss."""

    claim: str
    variants: dict  # label: options of `small_translator`, `pairs` to train on and `updates`
    better: list  # (label, label): the first is said to be better than the second


BASE = {}
STATEMENTS = {
    "heads": Statement(
        "several heads are better than one, and too many are worse again (Table 3, A)",
        {
            "1 head of 64": dict(num_heads=1),
            "4 heads of 16": BASE,
            "32 heads of 2": dict(num_heads=32),
        },
        [("4 heads of 16", "1 head of 64"), ("4 heads of 16", "32 heads of 2")],
    ),
    "key_width": Statement(
        "narrower keys make it worse (Table 3, B)",
        {"d_k 16": BASE, "d_k 4": dict(key_dim=4), "d_k 1": dict(key_dim=1)},
        [("d_k 16", "d_k 4"), ("d_k 4", "d_k 1")],
    ),
    "positions": Statement(
        "learned positions do as well as sines (Table 3, E); without any it is worse",
        {
            "sinusoidal": BASE,
            "learned": dict(position="learned"),
            "none": dict(position="none"),
        },
        [("sinusoidal", "learned"), ("sinusoidal", "none")],
    ),
    "sum": Statement(
        "adding positions is as good as appending them to embeddings of half the width",
        {"added": BASE, "appended": dict(combine="concat")},
        [("added", "appended")],
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
        [("width 64", "width 32"), ("width 128", "width 64")],
    ),
}


def check_parts(name, results, args):
    """Trains the missing variants of a statement, prints its outcome and draws it."""
    statement = STATEMENTS[name]
    data = None
    for options in statement.variants.values():
        missing = [seed for seed in args.seeds if not results.find(key_of(options, seed))]
        if missing:
            data = data or Dates()
            train_variant(options, missing, data, results)
    rows = {
        label: [results.find(key_of(options, seed)) for seed in args.seeds]
        for label, options in statement.variants.items()
    }
    report(statement, rows)
    draw(name, statement, rows, args)


def key_of(options, seed):
    """What a result is found by: every setting."""
    settings = {"updates": UPDATES, "peak": PEAK, "tokens_per_batch": TOKENS_PER_BATCH}
    return {"experiment": "parts", "options": options, **settings, "seed": seed}


class Dates:
    """Dates in English and French: a tokenizer, pairs to train on, and held-out ones."""

    def __init__(self):
        pairs = make_pairs(30_000, seed=1)
        self.train, self.held_out, _ = split_pairs(pairs, 1000, 1000, seed=1)
        texts = [text for pair in self.train for text in pair]
        self.tokenizer = SentencePieceTokenizer.train(
            texts, 600, shrink_to_fit=True, lossless=True, split_digits=True
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
            tokens_per_batch=TOKENS_PER_BATCH,
            max_shapes=2,
            shuffle=True,
            seed=seed,
            batches_per_epoch=num_batches,
        )


def train_variant(options, seeds, data, results):
    """Trains one variant with each seed, and keeps what it reached on held-out pairs."""
    training = {"pairs": None, "updates": UPDATES, **options}
    options_of_model = {n: value for n, value in options.items() if n not in ("pairs", "updates")}
    width = options.get("d_model", 64)

    def make():
        return small_translator(data.tokenizer.vocab_size, **options_of_model)

    model = experiments.compiled(make(), width, PEAK * (64 / width) ** 0.5, WARMUP)
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
        results.add(key_of(options, seed), {"loss": loss, "exact": exact, **shown})


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
    """Prints each variant, and whether the statement held."""
    print(f"said: {statement.claim}")
    for label, found in rows.items():
        loss, half = interval([row["loss"] for row in found])
        exact, half_exact = interval([100 * row["exact"] for row in found])
        print(
            f"  {label:<14} {found[0]['parameters']:>8,} parameters, held-out loss "
            f"{loss:.3f} ± {half:.3f}, exact {exact:.1f} ± {half_exact:.1f} %"
        )
    for better, worse in statement.better:
        pairs = zip(rows[worse], rows[better], strict=True)
        mean, half = interval([bad["loss"] - good["loss"] for bad, good in pairs])
        print(
            f"  {better} against {worse}: lower by {mean:.3f} ± {half:.3f}: {verdict(mean, half)}"
        )


def verdict(mean, half):
    """What an interval says of a difference that should be above 0."""
    if not half < abs(mean):
        return "no difference shown"
    return "better" if mean > 0 else "worse"


def draw(name, statement, rows, args):
    """Draws the loss of every seed and the mean, a row a variant."""
    figure, panels = experiments.new_panels(2, width=4.6, height=1.4 + 0.5 * len(rows))
    for panel, key, scale, title in (
        (panels[0], "loss", 1, "held-out loss of a token (nats)"),
        (panels[1], "exact", 100, "held-out pairs right (%)"),
    ):
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
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
    )
    experiments.save(figure, f"{args.pictures}/statement_{name}.png")
