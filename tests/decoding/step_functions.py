"""Step functions for the searches: a language written down as one table, random or by hand."""

import math

import numpy as np
from keras import ops

from tests.numpy_reference import log_softmax

PAD, BOS, EOS, A, B = range(5)
VOCAB = 5
SPECIAL = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
UNLIKELY = -30.0


def table_size(max_length):
    """Prefixes are numbers in base VOCAB with `bos` as the first digit."""
    return 2 * VOCAB ** (max_length - 1)


def random_table(seed, sentences, max_length, scale=2.0, eos_bonus=0.0):
    """Gives each prefix of each sentence logits of its own: (sentence, prefix, vocab)."""
    shape = (sentences, table_size(max_length), VOCAB)
    table = np.random.default_rng(seed).normal(scale=scale, size=shape)
    table[..., EOS] += eos_bonus
    return table.astype("float32")


def table_of(probabilities, max_length):
    """Writes down one sentence: `{prefix: {token: probability}}`; elsewhere only `eos` follows."""
    table = np.full((1, table_size(max_length), VOCAB), UNLIKELY, "float32")
    table[..., EOS] = 0.0
    for prefix, following in probabilities.items():
        table[0, number_of(prefix)] = UNLIKELY
        for token, probability in following.items():
            table[0, number_of(prefix), token] = math.log(probability)
    return table


def number_of(prefix):
    number = BOS
    for token in prefix:
        number = number * VOCAB + token
    return number


def steps_of(table):
    """Makes the step function of a table and its first state.

    The state remembers the whole prefix as a number, and the sentence: a search that reorders
    state wrongly reads logits of another prefix.
    """
    sentences, prefixes, _ = table.shape
    flat = ops.reshape(ops.convert_to_tensor(table), (sentences * prefixes, VOCAB))

    def step(tokens, index, state):
        prefix = state["prefix"] * VOCAB + tokens
        logits = ops.take(flat, state["sentence"] * prefixes + prefix, axis=0)
        return logits, {"prefix": prefix, "sentence": state["sentence"]}

    state = {
        "prefix": ops.zeros((sentences,), "int32"),
        "sentence": ops.arange(sentences, dtype="int32"),
    }
    return step, state


def log_probs_of(table, sentence):
    """The same table for plain Python: prefix to log-probabilities of the next token."""
    log_probs = log_softmax(table[sentence])
    return lambda prefix: log_probs[number_of(prefix)]


def log_prob(table, sentence, ids):
    """Log-probability of a sequence, token by token."""
    following = log_probs_of(table, sentence)
    return sum(following(tuple(ids[:position]))[token] for position, token in enumerate(ids))
