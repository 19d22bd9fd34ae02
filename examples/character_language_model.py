"""Learns to write English: a character language model from `Decoder` alone, without a memory.

The text is the reference manual that every Python holds for `help()`, the last tenth held out.
Rotary positions turn queries and keys, and attention looks back over a window. So the model can
write longer texts than the rows it was trained on. Runs on any Keras backend, on two cores in about
two minutes with TensorFlow; nothing to download:

    python examples/character_language_model.py
"""

import argparse
import math
import os
from collections import Counter, defaultdict
from pydoc_data.topics import topics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from keras_transformer import (
    Decoder,
    MaskedCrossentropy,
    Perplexity,
    RotaryPositionalEncoding,
    TokenEmbedding,
)
from keras_transformer.checks import check_causality

LENGTH = 128  # characters of a row
WINDOW = 64  # how far a layer looks back
D_MODEL = 96
BATCH_SIZE = 8
SEED = 1
ORDER = 5  # of the n-gram baseline; 3, 4, 6 and 7 do worse on this text
PROMPT = "The value of an expression is "


def main():
    """Trains, compares with n-grams, and writes a sample."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6, help="passes over the text")
    args = parser.parse_args()
    keras.utils.set_random_seed(SEED)
    # What stands in several topics of the manual, once.
    text = "\n\n".join(dict.fromkeys("\n\n".join(topics.values()).split("\n\n")))
    alphabet = sorted(set(text))
    ids = np.array([alphabet.index(character) + 1 for character in text])  # 0 is padding
    start = len(text) * 9 // 10
    rows = sliding_window_view(ids[:start], LENGTH + 1)[::LENGTH]
    inputs, labels = rows[:, :-1], rows[:, 1:]  # one character ahead
    validation = validation_rows(ids, start)

    model, embedding, decoder = build_model(len(alphabet) + 1, args.epochs * len(inputs))
    print(f"{start:,} characters to train {model.count_params():,} parameters ...")
    model.fit(inputs, labels, BATCH_SIZE, args.epochs, verbose=2, validation_data=validation)

    leak = check_causality(model, inputs[:2, :32])
    print(f"What comes later changes no logit by more than {leak:.1e}. A sample:\n")
    print(PROMPT + sample(embedding, decoder, alphabet, 300) + "\n")
    scores = model.evaluate(*validation, verbose=0, return_dict=True)
    bits, baseline = math.log2(scores["perplexity"]), ngram_bits(text, start, len(alphabet))
    print(f"Validation bits per character: {bits:.3f}; {ORDER}-grams: {baseline:.3f}.")


def validation_rows(ids, start):
    """Returns inputs and labels; each character from `start` on counts once.

    The rows overlap by half and only their second half counts, so that every character is read
    with at least half a row before it. Labels that do not count are 0, as padding.
    """
    half = LENGTH // 2
    rest = -(len(ids) - start) % half
    ids = np.pad(ids[start - half - 1 :], (0, rest))
    rows = sliding_window_view(ids, LENGTH + 1)[::half]
    return rows[:, :-1], np.where(np.arange(LENGTH) < half, 0, rows[:, 1:])


def build_model(vocab_size, num_rows):
    """Returns the model to train on `num_rows`, and its two layers for the sample."""
    embedding = TokenEmbedding(vocab_size, D_MODEL)
    decoder = Decoder(
        num_layers=2,
        num_heads=3,
        d_ff=4 * D_MODEL,
        dropout=0.0,
        norm_first=True,
        activation="gelu",
        position=RotaryPositionalEncoding(),
        window=WINDOW,
    )
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, embedding.logits(decoder(embedding(ids))))
    steps = num_rows // BATCH_SIZE
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - steps // 10, warmup_target=4e-3, warmup_steps=steps // 10
    )
    adam = keras.optimizers.AdamW(schedule, weight_decay=0.01, beta_2=0.98, clipnorm=1.0)
    model.compile(adam, MaskedCrossentropy(), metrics=[Perplexity()])
    return model, embedding, decoder


def sample(embedding, decoder, alphabet, count, temperature=0.8):
    """Returns `count` characters after `PROMPT`, each drawn from what the model expects next."""

    def step(character, index, cache):
        hidden, cache, _ = decoder.step(embedding(character), index, cache)
        return embedding.logits(hidden), cache

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        step = tf.function(step)
    random = np.random.default_rng(SEED)
    written = [alphabet.index(character) + 1 for character in PROMPT]
    cache = decoder.start_cache(batch_size=1, max_length=len(written) + count)
    for index in range(len(PROMPT) + count - 1):
        character = keras.ops.convert_to_tensor([[written[index]]], "int32")
        logits, cache = step(character, keras.ops.convert_to_tensor(index, "int32"), cache)
        if index >= len(PROMPT) - 1:
            logits = keras.ops.convert_to_numpy(logits)[0, 0, 1:] / temperature
            # The largest after Gumbel noise is a draw from the softmax.
            written.append(1 + int(np.argmax(logits + random.gumbel(size=logits.shape))))
    return "".join(alphabet[number - 1] for number in written[len(PROMPT) :])


def ngram_bits(text, start, num_characters):
    """Returns the bits per character of n-grams with Witten-Bell smoothing on `text[start:]`.

    The more different characters followed a context, the more the shorter contexts have a say.
    """
    counts = [defaultdict(Counter) for _ in range(ORDER)]
    for end in range(ORDER, start):
        for size in range(ORDER):
            counts[size][text[end - size : end]][text[end]] += 1
    bits = 0.0
    for end in range(start, len(text)):
        probability = 1 / num_characters
        for size in range(ORDER):
            if seen := counts[size].get(text[end - size : end]):
                shorter = len(seen) * probability
                probability = (seen[text[end]] + shorter) / (seen.total() + len(seen))
        bits -= math.log2(probability)
    return bits / (len(text) - start)


if __name__ == "__main__":
    main()
