"""A training run in a process of its own, which may be killed: `train_and_resume.py DIRECTORY`."""

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
from keras_transformer.batches import PairDataset
from keras_transformer.callbacks import AverageCheckpoints, ExactResume, TranslationQuality
from keras_transformer.decoding import GreedySearch

EPOCHS = 60
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["".join(LETTERS[i * k % 26] for k in range(1, 3 + i % 7)) for i in range(400)]
REVERSED = [word[::-1] for word in WORDS]


def main(directory):
    """Trains to the end, and writes the weights: the mean of the last epochs, and the best mean."""
    resume = ExactResume(directory)
    options = dict(tokens_per_batch=256, shuffle=True, seed=3, max_shapes=1, verbose=False)
    options |= dict(first_epoch=resume.epoch, batches_per_update=2, batches_per_epoch=8)
    on_tensorflow = keras.backend.backend() == "tensorflow"
    data, translator = (from_texts if on_tensorflow else from_ids)(options)
    keras.utils.set_random_seed(1)
    size = dict(num_layers=1, d_model=32, num_heads=2, d_ff=64)
    model = Transformer(4 + len(LETTERS), **size, dropout=0.2)
    model.build()
    schedule = UpdateSchedule(WarmupSchedule(32, 50), 2)
    model.compile(
        FusedAdam(schedule, gradient_accumulation_steps=2),
        MaskedCrossentropy(0.1, reduction="sum"),
        jit_compile=not on_tensorflow,  # there the test of the command compiles
    )
    fit = dict(initial_epoch=resume.epoch, epochs=EPOCHS, verbose=0, shuffle=False)
    average = AverageCheckpoints(Path(directory) / "epochs", last=5)
    quality = TranslationQuality(
        translator(model),
        WORDS[:50],
        REVERSED[:50],
        metrics=["chrf", "exact_match"],
        every=15,
        filepath=Path(directory) / "best.keras",
        average=average,
    )
    model.fit(data, **fit, callbacks=[average, quality, resume])
    weights = {f"w{i}": value for i, value in enumerate(model.get_weights())}
    np.savez(Path(directory) / "final.npz", **weights)


def from_texts(options):
    """The data, and a function that makes a translator of the model, as TensorFlow has them."""
    from keras_transformer.serving import Translator
    from keras_transformer.text import CharacterTokenizer, translation_dataset

    tokenizer = CharacterTokenizer(LETTERS)
    data = translation_dataset(WORDS, REVERSED, tokenizer, **options)
    return data, lambda model: Translator(model, tokenizer, max_length=12, jit_compile=False)


def from_ids(options):
    """The same without TensorFlow."""

    def ids_of(word):
        return [4 + LETTERS.index(letter) for letter in word]

    def word_of(ids):
        return "".join(LETTERS[i - 4] for i in ids if i >= 4)

    def translator(model):
        def translate(words):
            rows = [[*ids_of(word), model.eos_id] for word in words]
            rows = [row + [0] * (10 - len(row)) for row in rows]
            ids = model.generate(np.array(rows, "int32"), GreedySearch(), max_length=12).ids
            return [word_of(row) for row in keras.ops.convert_to_numpy(ids)[:, 0]]

        return translate

    data = PairDataset(*([*map(ids_of, words)] for words in (WORDS, REVERSED)), **options)
    return data, translator


if __name__ == "__main__":
    main(sys.argv[1])
