"""Two tasks of symbols, made at will: to reverse a sequence, and to look one up among others."""

import keras
import numpy as np

from keras_transformer import SimilarityAttention

PAD, BOS, EOS, FIRST = 0, 2, 3, 4  # the first symbol's id
NUM_SYMBOLS = 10
NUM_KEYS, NUM_VALUES, VALUE_WIDTH = 32, 16, 32  # of the task of looking up


def reversals(count, lengths, seed):
    """Pairs ((source, target input), target output) of random sequences and the same backwards.

    Args:
        count: number of pairs.
        lengths: the lengths to draw from; one number gives all that length.
        seed: another seed gives other pairs.
    """
    generator = np.random.default_rng(seed)
    lengths = generator.choice(np.atleast_1d(lengths), count)
    width = lengths.max() + 1
    source, inputs, outputs = (np.full((count, width), PAD, "int32") for _ in range(3))
    inputs[:, 0] = BOS
    for row, length in enumerate(lengths):
        symbols = generator.integers(FIRST, FIRST + NUM_SYMBOLS, length)
        source[row, : length + 1] = [*symbols, EOS]
        inputs[row, 1 : length + 1] = symbols[::-1]
        outputs[row, : length + 1] = [*symbols[::-1], EOS]
    return (source, inputs), outputs


def share_right(model, pairs):
    """The share of symbols that a model names right, given the right ones before."""
    inputs, outputs = pairs
    written = model.predict(inputs, batch_size=128, verbose=0).argmax(axis=-1)
    real = outputs != PAD
    return float((written == outputs)[real].mean())


def lookups(count, num_entries, seed):
    """Queries, tables of keys with their values, and the value of the key that is the query."""
    generator = np.random.default_rng(seed)
    keys = np.argsort(generator.random((count, NUM_KEYS)), axis=1)[:, :num_entries]
    values = generator.integers(NUM_VALUES, size=keys.shape)
    chosen = generator.integers(num_entries, size=count)
    rows = np.arange(count)
    queries = keys[rows, chosen][:, None]
    inputs = [part.astype("int32") for part in (queries, keys, values)]
    return inputs, values[rows, chosen].astype("int32")


def lookup_model(similarity, d_k):
    """One attention that must learn which query means which key; its vectors have d_k numbers.

    The vectors of queries and keys are apart. They start with mean 0 and variance 1, as the paper
    assumes of vectors in a dot product. The output has one logit for each value.
    """
    query, keys, values = (keras.Input((size,), dtype="int32") for size in (1, None, None))
    normal = keras.initializers.RandomNormal
    queries, memory = (
        keras.layers.Embedding(NUM_KEYS, d_k, normal(stddev=1.0), name=name)(ids)
        for name, ids in (("queries", query), ("keys", keys))
    )
    attention = SimilarityAttention(similarity)
    _, weights = attention(queries, memory, return_attention_scores=True)
    read = keras.ops.matmul(weights, keras.layers.Embedding(NUM_VALUES, VALUE_WIDTH)(values))
    answer = keras.layers.Dense(NUM_VALUES)(read[:, 0])
    return keras.Model([query, keys, values], answer)
