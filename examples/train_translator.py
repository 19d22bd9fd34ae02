# %% [markdown]
# # Train a translator with `model.fit`
#
# It learns to write English dates, times and numbers in French. The pairs are made from CLDR, so
# there is nothing to download. Two to five minutes on two cores:
#
#     python examples/train_translator.py
#
# Stopped, the same command goes on from the last finished epoch. For your own files see
# `train_on_files.py`, or the command `keras-transformer train`.

# %%
import itertools
import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # texts and the export need it
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

from keras_transformer import (
    BeamSearch,
    MaskedAccuracy,
    MaskedCrossentropy,
    Transformer,
    WarmupSchedule,
)
from keras_transformer.callbacks import ExactResume
from keras_transformer.recipes.dates import date_pairs, split_pairs
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer, translation_dataset

EPOCHS = 8
OUTPUT = "runs/train_translator"
keras.utils.set_random_seed(1)

# %% [markdown]
# ## Pairs of texts
#
# `date_pairs` makes texts in any two of CLDR's languages. No source of the test is in training.

# %%
pairs = date_pairs(30_000, "en", "fr", seed=1)
train, validation, test = split_pairs(pairs, num_validation=1000, num_test=2000, seed=1)
for source, target in train[:3]:
    print(f"{source}  ->  {target}")

# %% [markdown]
# ## One vocabulary of subwords for both languages
#
# `lossless` keeps every character, and each digit is a piece of its own.

# %%
texts = [text for pair in train for text in pair]
tokenizer = SentencePieceTokenizer.train(texts, vocab_size=600, lossless=True, split_digits=True)
print(tokenizer.pieces(tokenizer.tokenize([train[0][0]])[0]))

# %% [markdown]
# ## Batches of few shapes
#
# Pairs of like length stand together. XLA compiles a training step for each shape of batch, so
# there are two. `resume.epoch` is 0 at first, and later the number of epochs that are finished.

# %%
resume = ExactResume(OUTPUT)


def batches(pairs, **options):
    """The batches of some pairs."""
    sources, targets = zip(*pairs, strict=True)
    return translation_dataset(sources, targets, tokenizer, tokens_per_batch=2048, **options)


train_data = batches(train, max_shapes=2, shuffle=True, seed=1, first_epoch=resume.epoch)
validation_data = batches(validation, max_shapes=1)

# %% [markdown]
# ## The model and its training
#
# The learning rate follows equation 3 of "Attention Is All You Need". It rises for 300 updates and
# then falls as their inverse square root. The loss is the mean over real tokens.

# %%
model = Transformer(
    tokenizer.vocab_size,
    num_layers=2,
    d_model=128,
    num_heads=4,
    d_ff=256,
    dropout=0.1,
    norm_first=True,
)
model.build()
schedule = WarmupSchedule(d_model=128, warmup_steps=300, scale=0.4)
model.compile(
    keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9),
    loss=MaskedCrossentropy(),
    metrics=[MaskedAccuracy()],
    jit_compile=True,
)
model.summary()
model.fit(
    train_data,
    validation_data=validation_data,
    initial_epoch=resume.epoch,
    epochs=EPOCHS,
    shuffle=False,  # the dataset does it
    verbose=2,
    callbacks=[resume],
)

# %% [markdown]
# ## Strings in, strings out
#
# A `Translator` joins the tokenizer, the model and a search. Its export is a SavedModel that needs
# TensorFlow and TensorFlow Text alone; `translate_saved_model.py` calls it. Each run of this script
# exports under the next number.

# %%
translator = Translator(model, tokenizer, search=BeamSearch(beam_size=4, length_penalty=0.6))
exports = (f"{OUTPUT}/export/{number}" for number in itertools.count(1))
export = next(path for path in exports if not os.path.exists(path))
translator.export(export, verbose=False)
sources = [source for source, _ in test]
translations = translator(sources)
for (source, target), ours in zip(test[:5], translations, strict=False):
    print(f"{source}  ->  {ours}{'' if ours == target else f'  (right: {target})'}")
right = sum(ours == target for ours, (_, target) in zip(translations, test, strict=True))
print(f"Wrote the SavedModel {export}.")
print(f"Exact match: {right / len(test):.2%} of {len(test):,} held-out pairs.")
