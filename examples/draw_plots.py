"""Draws every picture of `keras_transformer.plots`, from small translators that it trains first.

They write English dates in Japanese, Korean and Arabic. Five to six minutes of processor
time; nothing to download, but the Japanese and Korean pictures need a font with those letters
(Debian and Ubuntu: `apt-get install fonts-noto-cjk`):

    python examples/draw_plots.py --output runs/plots
"""

import argparse
import os
import random
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from babel import Locale

from keras_transformer import (
    LearnedPositionalEncoding,
    MaskedAccuracy,
    MaskedCrossentropy,
    Perplexity,
    PositionalEncoding,
    Transformer,
    WarmupSchedule,
    plots,
)
from keras_transformer.decoding import GreedySearch
from keras_transformer.recipes.dates import all_kinds, write_pair
from keras_transformer.text import SentencePieceTokenizer, translation_dataset

TEXT = "Saturday, August 10, 2024"
NUM_TRAINING, NUM_VALIDATION = 5_000, 500
D_MODEL, WARMUP = 64, 100
DOTS_PER_INCH = 80


class Run(NamedTuple):
    """A trained model, its two tokenizers, and the history of its training."""

    model: Any
    source_tokenizer: Any
    target_tokenizer: Any
    history: Any


def main():
    """Trains, draws, and says what was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the pairs and the models")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the pairs of each run")
    parser.add_argument("--output", type=Path, default="runs/plots", help="directory to fill")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)

    figures = draw_positions(args.seed) | {"schedule": draw_schedules()}
    japanese, korean, arabic = (train(locale, args) for locale in ("ja", "ko", "ar"))
    slow = train("ko", args, warmup=10 * WARMUP)
    names = {f"warm-up {WARMUP}": korean.history, f"warm-up {10 * WARMUP:,}": slow.history}
    figures |= {
        "learning_curve": plots.learning_curve(korean.history),
        "learning_curves": plots.learning_curves(names),
        "attention_heads": draw_heads(japanese),
        "alignment_korean": draw_alignment(korean, "English to Korean"),
        "alignment_arabic": draw_alignment(arabic, "English to Arabic"),
        "head_focus": draw_focus(korean, args),
    }
    for name, figure in figures.items():
        figure.savefig(args.output / f"{name}.png", dpi=DOTS_PER_INCH)
    best = max(korean.history.history["val_masked_accuracy"])
    print(
        f"Wrote {len(figures)} pictures to {args.output}; {100 * best:.1f} % of Korean tokens right"
    )


def draw_positions(seed):
    """Returns the figures of positional encodings; a learned table is the noise it begins as."""
    keras.utils.set_random_seed(seed)
    nothing = np.zeros((1, 100, D_MODEL), "float32")
    waves = keras.ops.convert_to_numpy(PositionalEncoding()(nothing))[0]
    learned = keras.ops.convert_to_numpy(LearnedPositionalEncoding(100)(nothing))[0]
    learned *= np.linalg.norm(waves) / np.linalg.norm(learned)  # of one size, to compare
    label = "untrained table: noise, scaled up"
    encodings = {"sines and cosines": waves, label: learned}
    return {
        "positional_encoding": plots.positional_encoding(waves),
        "dot_product_by_distance": plots.dot_product_by_distance(encodings),
    }


def draw_schedules():
    """Returns the figure of several warm-ups."""
    settings = [(512, 4000), (512, 8000), (256, 4000)]
    return plots.schedule(
        {
            f"d_model {width}, warm-up {steps:,}": WarmupSchedule(width, steps)
            for width, steps in settings
        }
    )


def train(locale, args, warmup=WARMUP):
    """Trains a translator from English to a locale."""
    keras.utils.set_random_seed(args.seed)
    pairs = make_dates(locale, args.seed)
    pairs, validation = pairs[:NUM_TRAINING], pairs[NUM_TRAINING:]
    source_tokenizer, target_tokenizer = (
        SentencePieceTokenizer.train(texts, 200, shrink_to_fit=True)
        for texts in zip(*pairs, strict=True)
    )
    options = dict(tokens_per_batch=1024, max_shapes=1)
    data, validation_data = (
        translation_dataset(
            *zip(*part, strict=True), source_tokenizer, target_tokenizer, **options, **shuffle
        )
        for part, shuffle in [(pairs, dict(shuffle=True, seed=args.seed)), (validation, {})]
    )
    model = build_model(source_tokenizer, target_tokenizer, warmup)
    print(f"Training: English to {locale!r}, {len(pairs):,} pairs, warm-up over {warmup:,} updates")
    history = model.fit(
        data, validation_data=validation_data, epochs=args.epochs, shuffle=False, verbose=2
    )
    return Run(model, source_tokenizer, target_tokenizer, history)


def make_dates(locale, seed):
    """Returns pairs of different days, written out in English and in the locale."""
    generator = random.Random(seed)
    kind = next(kind for kind in all_kinds() if kind.name == "full date")
    pairs = {}
    while len(pairs) < NUM_TRAINING + NUM_VALIDATION:
        source, target = write_pair(kind, kind.draw(generator), Locale("en"), Locale(locale))
        pairs[source] = target
    return list(pairs.items())


def build_model(source_tokenizer, target_tokenizer, warmup):
    """Returns the compiled model."""
    model = Transformer(
        source_vocab_size=source_tokenizer.vocab_size,
        target_vocab_size=target_tokenizer.vocab_size,
        num_layers=2,
        d_model=D_MODEL,
        num_heads=4,
        d_ff=2 * D_MODEL,
        norm_first=True,
    )
    model.compile(
        keras.optimizers.Adam(WarmupSchedule(D_MODEL, warmup, scale=0.3), beta_2=0.98),
        MaskedCrossentropy(),
        metrics=[Perplexity(), MaskedAccuracy()],
    )
    return model


def translate(run, text, **options):
    """Returns the ids of a text, what the model writes for it, and the `DecodeResult`."""
    source_ids = [*run.source_tokenizer.tokenize([text])[0].numpy(), run.source_tokenizer.eos_id]
    result = run.model.generate(np.array([source_ids]), GreedySearch(**options), max_length=40)
    length = int(result.lengths[0, 0])
    return source_ids, keras.ops.convert_to_numpy(result.ids)[0, 0, :length], result


def draw_heads(run):
    """Returns the figure of the heads of the last decoder layer, while it writes one text."""
    source_ids, output_ids, _ = translate(run, TEXT)
    target_ids = [run.model.bos_id, *output_ids[:-1]]
    weights = run.model.attention_weights(np.array([source_ids]), np.array([target_ids]))
    # The row of an input token is where the model looks while it writes the next one.
    return plots.attention_heads(
        weights[-1][0],
        run.target_tokenizer.pieces(output_ids),
        run.source_tokenizer.pieces(source_ids),
        title="English to Japanese: where the last layer looks while it writes",
    )


def draw_alignment(run, title):
    """Returns the figure of which source tokens each token comes from."""
    source_ids, output_ids, result = translate(run, TEXT, return_alignments=True)
    return plots.alignment(
        result.alignments[0, 0, : len(output_ids)],
        run.target_tokenizer.pieces(output_ids),
        run.source_tokenizer.pieces(source_ids),
        title,
    )


def draw_focus(run, args):
    """Returns the figure of where each head looks, on average over a hundred dates."""
    pairs = make_dates("ko", args.seed)[-100:]
    data = translation_dataset(
        *zip(*pairs, strict=True), run.source_tokenizer, run.target_tokenizer, max_shapes=1
    )
    (source_ids, target_ids), _ = next(iter(data))
    weights = run.model.attention_weights(source_ids, target_ids)
    query_mask = target_ids.numpy() != run.model.pad_id
    layers = [plots.head_statistics(layer, query_mask) for layer in weights]
    return plots.head_focus(layers, title="Where the decoder's heads look in the source")


if __name__ == "__main__":
    main()
