# %% [markdown]
# # Look at attention
#
# A small model learns to write dates of one form in another. Then we look at what its heads
# attend to while it writes. About a minute on two cores:
#
#     python examples/look_at_attention.py

# %%
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"  # texts need it
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import datetime
import random

import keras
import numpy as np

from keras_transformer import (
    GreedySearch,
    MaskedAccuracy,
    MaskedCrossentropy,
    PositionalEncoding,
    Transformer,
    WarmupSchedule,
    plots,
)
from keras_transformer.text import CharacterTokenizer, translation_dataset

EPOCHS = 12
OUTPUT = Path("runs/look_at_attention")
OUTPUT.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(1)

# %% [markdown]
# ## Dates
#
# `14 March 1879` becomes `1879-03-14`: the model copies digits, and translates the month.

# %%
first, generator = datetime.date(1800, 1, 1), random.Random(1)
days = [first + datetime.timedelta(n) for n in generator.sample(range(80_000), 6000)]
sources = [f"{day.day} {day:%B} {day.year}" for day in days]
targets = [day.isoformat() for day in days]
tokenizer = CharacterTokenizer.train([*sources, *targets])
data = translation_dataset(
    sources[:5500], targets[:5500], tokenizer, tokens_per_batch=2048, shuffle=True, seed=1,
    max_shapes=1,
)  # fmt: skip
validation_data = translation_dataset(sources[5500:], targets[5500:], tokenizer, max_shapes=1)
print(f"{sources[0]}  ->  {targets[0]}")

# %% [markdown]
# ## A model of one layer
#
# One layer with four heads is enough, and easy to look at.

# %%
model = Transformer(
    tokenizer.vocab_size, num_layers=1, d_model=64, num_heads=4, d_ff=128, norm_first=True
)
model.compile(
    keras.optimizers.Adam(WarmupSchedule(64, warmup_steps=150, scale=0.5), beta_2=0.98),
    MaskedCrossentropy(),
    metrics=[MaskedAccuracy()],
    jit_compile=True,
)
history = model.fit(data, validation_data=validation_data, epochs=EPOCHS, shuffle=False, verbose=2)

# %% [markdown]
# ## Positions
#
# The only thing that tells the model where a character stands (section 3.5 of the paper).

# %%
waves = PositionalEncoding()(np.zeros((1, 20, 64), "float32"))[0]
figure = plots.positional_encoding(waves)
figure.savefig(OUTPUT / "positions.png", dpi=100)
figure

# %% [markdown]
# ## Where each head looks while the model writes
#
# A row is a character that is written, a column one of the source. The heads share the work.

# %%
text = "14 March 1879"
source_ids = [*tokenizer.tokenize([text])[0].numpy(), tokenizer.eos_id]
result = model.generate(np.array([source_ids]), GreedySearch(), max_length=12)
output_ids = keras.ops.convert_to_numpy(result.ids)[0, 0, : int(result.lengths[0, 0])]
target_ids = [tokenizer.bos_id, *output_ids[:-1]]
weights = model.attention_weights(np.array([source_ids]), np.array([target_ids]))
figure = plots.attention_heads(
    weights[-1][0],  # of the last layer, of the first sentence
    tokenizer.pieces(output_ids),
    tokenizer.pieces(source_ids),
    title=f"{text}, written as a date of ISO 8601",
)
figure.savefig(OUTPUT / "attention.png", dpi=100)
print(f"{text}  ->  {tokenizer.detokenize([output_ids]).numpy()[0].decode()}")
figure

# %% [markdown]
# ## How it learned

# %%
figure = plots.learning_curve(history)
figure.savefig(OUTPUT / "learning_curve.png", dpi=100)
print(f"Wrote three pictures to {OUTPUT}.")
accuracy = history.history["val_masked_accuracy"][-1]
print(f"Characters right: {accuracy:.2%} of those of {len(sources) - 5500} new dates.")
