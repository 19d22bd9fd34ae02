"""A small Transformer of the package's layers, with free widths, positions and dropout."""

import keras

from keras_transformer import (
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PositionalEncoding,
    TokenEmbedding,
)

MAX_LENGTH = 128  # of learned positions
D_FF_FACTOR = 2  # d_ff is this often d_model


def small_translator(
    vocab_size,
    *,
    num_layers=1,
    d_model=64,
    num_heads=4,
    key_dim=None,
    position="sinusoidal",
    combine="add",
    dropout=0.0,
):
    """Returns an encoder-decoder, normalised first, from (source_ids, target_ids) to logits.

    Where `Transformer` ties widths together, this one does not: `key_dim` is free, and positions
    may be appended to embeddings of half the width. The output has a matrix of its own.

    Args:
        vocab_size, num_layers, d_model, num_heads, dropout: as in `Transformer`; d_ff is twice
            d_model.
        key_dim: width of the queries and keys of a head; that of its values, d_model / num_heads,
            when None.
        position: "sinusoidal", "learned" or "none".
        combine: "add" or "concat".
    """
    width = d_model // 2 if combine == "concat" else d_model
    embedding = TokenEmbedding(vocab_size, width)

    def embedded(ids):
        hidden = new_position(position, combine)(embedding(ids))
        return keras.layers.Dropout(dropout)(hidden)

    def attended(hidden, memory=None, causal=False):
        value_dim = d_model // num_heads
        attention = MultiHeadAttention(num_heads, key_dim or value_dim, value_dim)
        normed = keras.layers.LayerNormalization()(hidden)
        seen = normed if memory is None else memory
        return added(hidden, attention(normed, seen, use_causal_mask=causal))

    def transformed(hidden):
        normed = keras.layers.LayerNormalization()(hidden)
        return added(hidden, FeedForward(D_FF_FACTOR * d_model)(normed))

    def added(hidden, change):
        return keras.layers.Add()([hidden, keras.layers.Dropout(dropout)(change)])

    source_ids, target_ids = (keras.Input((None,), dtype="int32") for _ in range(2))
    memory = embedded(source_ids)
    for _ in range(num_layers):
        memory = transformed(attended(memory))
    memory = keras.layers.LayerNormalization()(memory)
    hidden = embedded(target_ids)
    for _ in range(num_layers):
        hidden = transformed(attended(attended(hidden, causal=True), memory))
    hidden = keras.layers.LayerNormalization()(hidden)
    logits = keras.layers.Dense(vocab_size, dtype="float32")(hidden)
    return keras.Model((source_ids, target_ids), logits)


def new_position(position, combine):
    """The layer that tells positions apart."""
    if position == "none":
        return keras.layers.Identity()
    if position == "learned":
        return LearnedPositionalEncoding(MAX_LENGTH, combine=combine)
    return PositionalEncoding(combine=combine)
