"""Tells languages apart: a text classifier from `Encoder`, in a functional Keras model.

The texts are dates, times, numbers and amounts of money as CLDR writes them in twelve languages.
Four are Romance, four Scandinavian and four Slavic; they share an alphabet and much else. The model
reads characters. The training never shows a text of the test, though it may show the same day in
another language or style. About a minute on two cores, nothing to download:

    python examples/classify_text.py
"""

import argparse
import os
import random
from collections import Counter

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from babel import Locale

from keras_transformer import Encoder, PositionalEncoding, TokenEmbedding
from keras_transformer.checks import check_padding_invariance
from keras_transformer.recipes.dates import all_kinds, write_pair
from keras_transformer.text import CharacterTokenizer

LANGUAGES = [
    *("ca", "es", "gl", "pt"),  # Catalan, Spanish, Galician, Portuguese
    *("da", "nb", "nn", "sv"),  # Danish, Norwegian Bokmål, Norwegian Nynorsk, Swedish
    *("cs", "hr", "sk", "sl"),  # Czech, Croatian, Slovak, Slovenian
]
NUM_VALUES = 3000
D_MODEL = 64


def main():
    """Makes the texts, trains, and tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the texts and the model")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the texts")
    args = parser.parse_args()
    keras.utils.set_random_seed(args.seed)

    texts, labels = make_texts(args.seed)
    held_out = len(texts) // 10
    tokenizer = CharacterTokenizer.train(texts[held_out:])
    ids = tokenizer.tokenize(texts).to_tensor().numpy()  # -> (text, length), padded with 0
    print(
        f"{len(texts) - held_out:,} texts to train, {held_out:,} others to test, of up to "
        f"{ids.shape[1]} characters"
    )

    model = build_model(tokenizer.vocab_size)
    print(f"Training a model of {model.count_params():,} parameters ...")
    model.fit(ids[held_out:], labels[held_out:], batch_size=128, epochs=args.epochs, verbose=2)

    difference = check_padding_invariance(model, ids[:8])
    print(f"More padding and other texts in the batch change no score by over {difference:.1e}")
    predicted = model.predict(ids[:held_out], batch_size=512, verbose=0).argmax(axis=-1)
    report(labels[:held_out], predicted)


def make_texts(seed):
    """Writes values in every language; returns the texts, shuffled, and their languages' numbers.

    A text that two languages share, such as "12.5.2026", tells nothing and is dropped.
    """
    generator = random.Random(seed)
    kinds = all_kinds()
    languages_of = {}
    for kind in generator.choices(kinds, [kind.weight for kind in kinds], k=NUM_VALUES):
        value = kind.draw(generator)
        for number, code in enumerate(LANGUAGES):
            text, _ = write_pair(kind, value, Locale(code), Locale(code))
            languages_of.setdefault(text, set()).add(number)
    texts = [text for text, languages in languages_of.items() if len(languages) == 1]
    print(
        f"{NUM_VALUES:,} values in {len(LANGUAGES)} languages give {len(languages_of):,} different "
        f"texts; {len(languages_of) - len(texts):,} that several languages share are dropped"
    )
    generator.shuffle(texts)
    return texts, np.array([min(languages_of[text]) for text in texts])


def build_model(vocab_size):
    """Returns the compiled classifier; the padding mask goes from layer to layer by itself."""
    ids = keras.Input((None,), dtype="int32")
    hidden = TokenEmbedding(vocab_size, D_MODEL)(ids)  # its mask: True at real characters
    hidden = PositionalEncoding()(hidden)
    hidden = Encoder(num_layers=2, num_heads=4, d_ff=128, norm_first=True)(hidden)
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)  # the mean over real characters
    model = keras.Model(ids, keras.layers.Dense(len(LANGUAGES))(pooled))
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def report(labels, predicted):
    """Prints the languages most often taken for another, and the accuracy."""
    names = [Locale(code).english_name for code in LANGUAGES]
    wrong = Counter(
        (names[label], names[other])
        for label, other in zip(labels, predicted, strict=True)
        if label != other
    )
    print("Most often confused:")
    for (name, other), times in wrong.most_common(5):
        print(f"  {name} taken for {other}: {times} of {np.sum(labels == names.index(name))} texts")
    majority = np.bincount(labels).max() / len(labels)
    print(
        f"Test accuracy: {np.mean(labels == predicted):.2%} of {len(labels):,} texts that the "
        f"training never shows; the most frequent language alone: {majority:.2%}."
    )


if __name__ == "__main__":
    main()
