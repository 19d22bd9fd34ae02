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
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer, translation_dataset

TEXT = "Saturday, August 10, 2024"
NUM_TRAINING, NUM_VALIDATION = 5_000, 500
D_MODEL, WARMUP, SEED = 64, 100, 1
SIZES = dict(num_layers=2, d_model=D_MODEL, num_heads=4, d_ff=2 * D_MODEL, norm_first=True)
SCHEDULES = [(512, 4000), (512, 8000), (256, 4000)]  # width, and steps of the warm-up
DOTS_PER_INCH = 80


def main():
    """Trains, draws, and says what was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10, help="passes over the pairs of each run")
    parser.add_argument("--output", type=Path, default="runs/plots", help="directory to fill")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    japanese, korean, arabic = (train(locale, args.epochs) for locale in ("ja", "ko", "ar"))
    slow = train("ko", args.epochs, warmup=10 * WARMUP)
    history = korean.model.history
    names = {f"warm-up {WARMUP}": history, f"warm-up {10 * WARMUP:,}": slow.model.history}
    rates = {f"d_model {d}, warm-up {n:,}": WarmupSchedule(d, n) for d, n in SCHEDULES}
    figures = {
        **draw_positions(),
        "schedule": plots.schedule(rates),
        "learning_curve": plots.learning_curve(history),
        "learning_curves": plots.learning_curves(names),
        "attention_heads": draw_attention(japanese, "Japanese")[0],
        "alignment_korean": draw_attention(korean, "Korean")[1],
        "alignment_arabic": draw_attention(arabic, "Arabic")[1],
        "head_focus": draw_focus(korean),
    }
    for name, figure in figures.items():
        figure.savefig(args.output / f"{name}.png", dpi=DOTS_PER_INCH)
    best = 100 * max(history.history["val_masked_accuracy"])
    print(f"Wrote {len(figures)} pictures to {args.output}; {best:.1f} % of Korean tokens right")


def draw_positions():
    """Returns the figures of positional encodings; a learned table is the noise it begins as."""
    keras.utils.set_random_seed(SEED)
    nothing = np.zeros((1, 100, D_MODEL), "float32")
    waves = keras.ops.convert_to_numpy(PositionalEncoding()(nothing))[0]
    learned = keras.ops.convert_to_numpy(LearnedPositionalEncoding(100)(nothing))[0]
    learned *= np.linalg.norm(waves) / np.linalg.norm(learned)  # of one size, to compare
    encodings = {"sines and cosines": waves, "untrained table: noise, scaled up": learned}
    return {
        "positional_encoding": plots.positional_encoding(waves),
        "dot_product_by_distance": plots.dot_product_by_distance(encodings),
    }


def train(locale, epochs, warmup=WARMUP):
    """Trains a model from English to a locale; returns it with its tokenizers."""
    keras.utils.set_random_seed(SEED)
    pairs = make_dates(locale)
    pairs, validation = pairs[:NUM_TRAINING], pairs[NUM_TRAINING:]
    source, target = (
        SentencePieceTokenizer.train(texts, 200, shrink_to_fit=True)
        for texts in zip(*pairs, strict=True)
    )
    vocabularies = dict(source_vocab_size=source.vocab_size, target_vocab_size=target.vocab_size)
    model = Transformer(**vocabularies, **SIZES)
    adam = keras.optimizers.Adam(WarmupSchedule(D_MODEL, warmup, scale=0.3), beta_2=0.98)
    model.compile(adam, MaskedCrossentropy(), metrics=[Perplexity(), MaskedAccuracy()])
    print(f"Training: English to {locale!r}, {len(pairs):,} pairs, warm-up over {warmup:,} updates")
    options = dict(tokens_per_batch=1024, max_shapes=1)
    sides = zip(*pairs, strict=True), zip(*validation, strict=True)
    data = translation_dataset(*sides[0], source, target, shuffle=True, seed=SEED, **options)
    validation_data = translation_dataset(*sides[1], source, target, **options)
    model.fit(data, validation_data=validation_data, epochs=epochs, shuffle=False, verbose=2)
    return Translator(model, source, target)


def make_dates(locale):
    """Returns pairs of different days, written out in English and in the locale."""
    generator = random.Random(SEED)
    kind = next(kind for kind in all_kinds() if kind.name == "full date")
    pairs = {}
    while len(pairs) < NUM_TRAINING + NUM_VALIDATION:
        source, target = write_pair(kind, kind.draw(generator), Locale("en"), Locale(locale))
        pairs[source] = target
    return list(pairs.items())


def draw_attention(run, language):
    """Returns two figures of `TEXT`: the heads of the last decoder layer, and the alignment."""
    source_ids = [*run.source_tokenizer.tokenize([TEXT])[0].numpy(), run.source_tokenizer.eos_id]
    search = GreedySearch(return_alignments=True)
    result = run.model.generate(np.array([source_ids]), search, max_length=40)
    length = int(result.lengths[0, 0])
    output_ids = keras.ops.convert_to_numpy(result.ids)[0, 0, :length]
    # The row of an input token is where the model looks while it writes the next one.
    target_ids = [run.model.bos_id, *output_ids[:-1]]
    weights = run.model.attention_weights(np.array([source_ids]), np.array([target_ids]))[-1]
    pieces = run.target_tokenizer.pieces(output_ids), run.source_tokenizer.pieces(source_ids)
    title = f"English to {language}"
    where = f"{title}: where the last layer looks while it writes"
    heads = plots.attention_heads(weights[0], *pieces, title=where)
    return heads, plots.alignment(result.alignments[0, 0, :length], *pieces, title)


def draw_focus(run):
    """Returns the figure of where each head looks, on average over a hundred dates."""
    texts = zip(*make_dates("ko")[-100:], strict=True)
    data = translation_dataset(*texts, run.source_tokenizer, run.target_tokenizer, max_shapes=1)
    (source_ids, target_ids), _ = next(iter(data))
    weights = run.model.attention_weights(source_ids, target_ids)
    query_mask = target_ids.numpy() != run.model.pad_id
    layers = [plots.head_statistics(layer, query_mask) for layer in weights]
    return plots.head_focus(layers, title="Where the decoder's heads look in the source")


if __name__ == "__main__":
    main()
