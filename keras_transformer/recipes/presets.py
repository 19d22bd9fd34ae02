"""Presets: settings of training that go together, by the name of a size."""

from typing import Any

# Each is the defaults of `Settings` with these in their place.
# fmt: off
PRESETS: dict[str, dict[str, Any]] = {
    # Nothing is uncertain about a date in another language: smoothed labels only blur it.
    "dates": dict(num_layers=2, dropout=0.1, learning_rate=0.002, warmup_steps=300, vocab_size=600,
                  epochs=8, tokens_per_batch=2048, label_smoothing=0.0, max_shapes=2),
    "mini": dict(num_layers=2, dropout=0.1, learning_rate=0.002, warmup_steps=300, max_shapes=2),
    # The widths and the dropout of Wu et al. 2021, "Good for Misconceived Reasons", for corpora
    # like Multi30K. At this rate an encoder that normalises last collapses to one vector.
    "tiny": {},
    "small": dict(num_layers=6, d_model=512, d_ff=1024, learning_rate=0.001, warmup_steps=4000),
    # Vaswani et al. 2017, table 3, and the largest rate of equation 3.
    "base": dict(num_layers=6, d_model=512, num_heads=8, d_ff=2048, dropout=0.1, norm_first=False,
                 learning_rate=(512 * 4000) ** -0.5, warmup_steps=4000),
    "big": dict(num_layers=6, d_model=1024, num_heads=16, d_ff=4096, norm_first=False,
                learning_rate=(1024 * 4000) ** -0.5, warmup_steps=4000),
    "symbols": dict(num_layers=2, d_ff=512, position="rotary", inner_dropout=0.1, epochs=1000,
                    minutes=60.0, tokens_per_batch=2048, learning_rate=0.003, clip_norm=1.0,
                    max_length=256, max_shapes=3, measure_every=5, average=10, beam_size=1),
    # Wu et al. 2021, "Applying the Transformer to Character-level Transduction", table 1 and its
    # recipe.
    "symbols-paper": dict(d_model=256, d_ff=1024, inner_dropout=0.3, epochs=1000, minutes=60.0,
                          tokens_per_batch=8192, learning_rate=0.001, warmup_steps=4000,
                          clip_norm=1.0, max_length=256, max_shapes=3, measure_every=5,
                          beam_size=1),
}
# fmt: on
# In place of a preset's, for a run that goes on training a model of another system. That model is
# at the end of its own training: a rate for random weights would undo much of it.
FINE_TUNING: dict[str, Any] = dict(learning_rate=0.0002, warmup_steps=200)
# Layers of the encoder and of the decoder of the presets that translate fast. Kasai et al. 2021,
# "Deep Encoder, Shallow Decoder", have 12 and 1 in place of 6 and 6. Those of the small presets are
# our own.
FAST_LAYERS = {"dates": (4, 1), "mini": (4, 1), "tiny": (6, 1)}
FAST_LAYERS |= dict.fromkeys(("small", "base", "big"), (12, 1))
PRESETS |= {
    f"fast-{name}": {**PRESETS[name], "num_layers": encoder, "num_decoder_layers": decoder}
    for name, (encoder, decoder) in FAST_LAYERS.items()
}
# With an LSTM and additive attention a recurrent model has the parameters of that preset's
# Transformer within 3 %. With a GRU it has a fifth fewer. "mini" is "dates" with more subwords, and
# the sizes of symbols are of the same order.
RECURRENT_SIZES: dict[str, dict[str, Any]] = {
    "dates": dict(num_layers=1, d_model=176),
    "mini": dict(num_layers=1, d_model=176),
    "tiny": dict(num_layers=1, d_model=200),
    "small": dict(num_layers=2, d_model=896),
    "base": dict(num_layers=2, d_model=1056),
    "big": dict(num_layers=4, d_model=1600),
    "symbols": dict(num_layers=1, d_model=200),
    "symbols-paper": dict(num_layers=2, d_model=512),
}
