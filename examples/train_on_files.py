"""Trains on your own two files, line n of one translating line n of the other, and exports.

    python examples/train_on_files.py train.en train.de --output runs/en-de

It keeps the epoch with the lowest validation loss. Every two hundredth pair is held out for that.
`keras-transformer train --train train.en train.de` does more: it goes on where it was stopped,
measures BLEU, averages epochs, and takes the sizes of the papers.
"""

import argparse
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

from keras_transformer import (
    BeamSearch,
    FusedAdam,
    MaskedCrossentropy,
    Perplexity,
    Transformer,
    WarmupSchedule,
)
from keras_transformer.callbacks import TrainingLog
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer, translation_dataset

D_MODEL, WARMUP_STEPS = 128, 1000


def main():
    """Reads, trains, shows three translations, and writes the SavedModel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="file of the source texts")
    parser.add_argument("target", type=Path, help="file of their translations")
    parser.add_argument("--output", type=Path, default=Path("runs/train_on_files"))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--vocab-size", type=int, default=8000)
    args = parser.parse_args()
    keras.utils.set_random_seed(1)

    sources, targets = map(read_lines, (args.source, args.target))
    if len(sources) != len(targets):
        parser.error(f"{len(sources):,} sources and {len(targets):,} targets: not as many")
    texts = [*sources, *targets]
    tokenizer = SentencePieceTokenizer.train(texts, args.vocab_size, shrink_to_fit=True)
    train, validation = (
        translation_dataset(
            [text for number, text in enumerate(sources) if (number % 200 == 0) == held_out],
            [text for number, text in enumerate(targets) if (number % 200 == 0) == held_out],
            tokenizer,
            shuffle=not held_out,
            seed=1,
            max_length=128,
        )
        for held_out in (False, True)
    )

    model = build_model(tokenizer.vocab_size)
    args.output.mkdir(parents=True, exist_ok=True)
    best = keras.callbacks.ModelCheckpoint(
        args.output / "model.keras", monitor="val_perplexity", mode="min", save_best_only=True
    )
    history = model.fit(
        train,
        validation_data=validation,
        epochs=args.epochs,
        shuffle=False,  # the dataset does it
        verbose=2,
        callbacks=[best, TrainingLog(every=200)],
    )

    model = keras.saving.load_model(args.output / "model.keras")
    translator = Translator(model, tokenizer, search=BeamSearch(4, length_penalty=0.6))
    for source, translation in zip(sources[:3], translator(sources[:3]), strict=True):
        print(f"{source}\n    {translation}")
    export = next(
        path for path in (args.output / "export" / str(n) for n in range(1, 10**6))
        if not path.exists()
    )  # fmt: skip
    translator.export(export, verbose=False)
    print(f"Wrote {export}. Translate with it: keras-transformer translate {export} FILE")
    lowest = min(history.history["val_perplexity"])
    print(f"Lowest validation perplexity: {lowest:.2f}.")


def read_lines(path):
    """The lines of a file. Only line feeds end one: `read_text` would end it at `\\r` too."""
    lines = path.read_bytes().decode("utf-8-sig").split("\n")
    return [line.rstrip("\r") for line in (lines if lines[-1] else lines[:-1])]


def build_model(vocab_size):
    """Returns the compiled model: a small one, for 10,000 to 1,000,000 pairs."""
    model = Transformer(
        vocab_size,
        num_layers=4,
        d_model=D_MODEL,
        num_heads=4,
        d_ff=2 * D_MODEL,
        dropout=0.3,
        norm_first=True,
    )
    model.compile(
        # The largest rate is 0.004.
        FusedAdam(
            WarmupSchedule(D_MODEL, WARMUP_STEPS, scale=0.004 * (D_MODEL * WARMUP_STEPS) ** 0.5),
            beta_2=0.98,
            epsilon=1e-9,
        ),
        MaskedCrossentropy(label_smoothing=0.1),
        metrics=[Perplexity()],
        jit_compile=True,
    )
    return model


if __name__ == "__main__":
    main()
