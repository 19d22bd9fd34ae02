"""A translator that has really learned something small: to write letters in capitals, reversed."""

import functools
import json
import random
import shutil

import keras
import numpy as np

from keras_transformer import BeamSearch, MaskedCrossentropy, Transformer
from keras_transformer.serving import Translator
from keras_transformer.text import CharacterTokenizer, SymbolTokenizer, translation_dataset

LETTERS = "abcdefg"
EPOCHS = 12
OPTIONS = {
    "search": BeamSearch(beam_size=3, length_penalty=0.6),
    "max_length": 12,
    "max_source_length": 32,
    "max_batch_tokens": 64,
}
CARD = {"languages": "letters to capitals", "data": "made up", "scores": {"exact match": 0.98}}


def words(count, seed):
    generator = random.Random(seed)
    return ["".join(generator.choices(LETTERS, k=generator.randint(1, 6))) for _ in range(count)]


def answer(word):
    return word.upper()[::-1]


@functools.cache
def translator():
    """One vocabulary for both sides, and nothing for XLA to compile, which takes long."""
    return learned(lambda sources, targets: [CharacterTokenizer.train([*sources, *targets])])


class Exported:
    """Stands for `translator` where a run exports it: copies an export that was made before."""

    def __init__(self, path):
        self.path = path

    def export(self, path, card, verbose):
        shutil.copytree(self.path, path)
        file = path / "assets.extra" / "model_card.json"
        written = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**written, **card}), encoding="utf-8")


@functools.cache
def compiled_translator():
    """Another of the same model, which XLA compiles."""
    own = translator()
    return Translator(own.model, own.source_tokenizer, **OPTIONS)


def log_prob_of(source, hypothesis):
    """The log-probability of a hypothesis of `translator`, by its model, and its tokens.

    A hypothesis as long as the longest output is cut, and its ids end without `eos_id`.
    """
    own = translator()
    source_ids, target_ids = (
        own.source_tokenizer.tokenize([text]).to_list()[0] for text in (source, hypothesis)
    )
    end = [own.model.eos_id]
    target_ids += end if len(target_ids) < own.max_length else []
    score = own.model.score(np.array([source_ids + end]), np.array([target_ids]))
    return float(score.log_prob[0]), len(target_ids)


@functools.cache
def translator_of_reversed_symbols():
    """Each letter is a symbol, and the target tokenizer reverses."""

    def tokenizers(sources, targets):
        source = SymbolTokenizer.train([*sources, *targets])
        return [source, SymbolTokenizer(source.symbols, reverse=True)]

    return learned(tokenizers, spaced)


def spaced(text):
    return " ".join(text)


def learned(train_tokenizers, written=str):
    """What has learned the answers, both sides `written` in the way that the tokenizers read."""
    keras.utils.set_random_seed(5)
    sources = words(2000, seed=1)
    targets = [written(answer(word)) for word in sources]
    sources = list(map(written, sources))
    tokenizers = train_tokenizers(sources, targets)
    names = ["vocab_size"] if len(tokenizers) == 1 else ["source_vocab_size", "target_vocab_size"]
    sizes = {name: t.vocab_size for name, t in zip(names, tokenizers, strict=True)}
    model = Transformer(**sizes, num_layers=1, d_model=32, num_heads=2, d_ff=64, dropout=0.0)
    data = translation_dataset(
        sources,
        targets,
        *tokenizers,
        tokens_per_batch=512,
        max_shapes=1,
        shuffle=True,
        seed=1,
        verbose=False,
    )
    # A rate that falls: with a constant one the rounding of a processor decides how good it ends.
    rate = keras.optimizers.schedules.CosineDecay(0.01, EPOCHS * len(data))
    model.compile(keras.optimizers.Adam(rate), MaskedCrossentropy(), jit_compile=False)
    model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0)
    return Translator(model, *tokenizers, **OPTIONS, jit_compile=False)
