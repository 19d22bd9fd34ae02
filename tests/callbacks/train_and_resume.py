"""A training for a process of its own, which may be killed: `train_and_resume.py DIRECTORY`."""

import sys
from pathlib import Path

import keras
import numpy as np

from keras_transformer import (
    FusedAdam,
    MaskedCrossentropy,
    Transformer,
    UpdateSchedule,
    WarmupSchedule,
)
from keras_transformer.callbacks import AverageCheckpoints, ExactResume, TranslationQuality
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer, translation_dataset

EPOCHS = 120


def main(directory):
    """Trains to the end, and writes the weights: the mean of the last epochs, and the best mean."""
    words = ["".join(chr(97 + (i * k) % 26) for k in range(1, 3 + i % 7)) for i in range(400)]
    tokenizer = CharacterTokenizer("abcdefghijklmnopqrstuvwxyz")
    resume = ExactResume(directory)
    data = translation_dataset(
        words,
        [word[::-1] for word in words],
        tokenizer,
        tokens_per_batch=256,
        shuffle=True,
        seed=3,
        max_shapes=1,
        first_epoch=resume.epoch,
        batches_per_update=2,
        batches_per_epoch=8,
        verbose=False,
    )
    keras.utils.set_random_seed(1)
    model = Transformer(
        tokenizer.vocab_size, num_layers=1, d_model=32, num_heads=2, d_ff=64, dropout=0.2
    )
    model.build()
    schedule = UpdateSchedule(WarmupSchedule(32, 50), 2)
    model.compile(
        FusedAdam(schedule, gradient_accumulation_steps=2),
        MaskedCrossentropy(0.1, reduction="sum"),
        jit_compile=True,
    )
    fit = dict(initial_epoch=resume.epoch, epochs=EPOCHS, verbose=0, shuffle=False)
    average = AverageCheckpoints(Path(directory) / "epochs", last=5)
    quality = TranslationQuality(
        Translator(model, tokenizer, max_length=12),
        words[:50],
        [word[::-1] for word in words[:50]],
        metrics=["chrf", "exact_match"],
        every=15,
        filepath=Path(directory) / "best.keras",
        average=average,
    )
    model.fit(data, **fit, callbacks=[average, quality, resume])
    weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
    np.savez(Path(directory) / "final.npz", **weights)


if __name__ == "__main__":
    main(sys.argv[1])
