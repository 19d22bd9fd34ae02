"""Step functions for the searches: a language written down as one table, random or by hand."""

import math

import numpy as np
from keras import ops

from tests.numpy_reference import log_softmax

PAD, BOS, EOS, A, B = range(5)
VOCAB = 5
SPECIAL = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
UNLIKELY = -30.0


def table_size(max_length, vocab=VOCAB):
    """Prefixes are numbers in base `vocab` with `bos` as the first digit."""
    return 2 * vocab ** (max_length - 1)


def random_table(seed, sentences, max_length, scale=2.0, eos_bonus=0.0, vocab=VOCAB):
    """Gives each prefix of each sentence logits of its own: (sentence, prefix, vocab)."""
    shape = (sentences, table_size(max_length, vocab), vocab)
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


def number_of(prefix, vocab=VOCAB):
    number = BOS
    for token in prefix:
        number = number * vocab + token
    return number


def steps_of(table, attention=None):
    """Makes the step function of a table and its first state.

    The state remembers the whole prefix as a number, and the sentence. A search that reorders
    state wrongly reads logits of another prefix, and attention (sentence, prefix, source).
    """
    sentences = ops.shape(table)[0]
    read = reader(table, attention)

    def step(tokens, index, state):
        prefix = state["prefix"] * table.shape[-1] + tokens
        logits, attended = read(state["sentence"], prefix)
        return logits, {"prefix": prefix, "sentence": state["sentence"]}, *attended

    state = {
        "prefix": ops.zeros((sentences,), "int32"),
        "sentence": ops.arange(sentences, dtype="int32"),
    }
    return step, state


def reader(table, attention):
    """Reads the logits of rows (sentence, prefix), and their attention when there is any."""
    prefixes = ops.shape(table)[1]
    tables = [table] if attention is None else [table, attention]
    flat = [ops.reshape(ops.convert_to_tensor(t), (-1, t.shape[-1])) for t in tables]

    def read(sentence, prefix):
        logits, *attended = (ops.take(t, sentence * prefixes + prefix, axis=0) for t in flat)
        return logits, attended

    return read


class StepsThatStay:
    """The step function of a table whose state stays where it is: it follows paths.

    The state is every token by (sentence, slot, position). A token is written once, into the slot
    and position where it came; only the paths tell which tokens are those of a hypothesis.
    """

    follows_paths = True

    def __init__(self, table, attention=None):
        self.vocab = table.shape[-1]
        self.read = reader(table, attention)

    def first_state(self, sentences, beam_size, max_length):
        written = ops.zeros((sentences, beam_size, max_length + 1), "int32")
        return {"written": written, "sentence": ops.arange(sentences, dtype="int32")}

    def __call__(self, tokens, index, state, paths=None):
        rows, slots, positions = ops.shape(state["written"])
        written = ops.slice_update(
            state["written"], (0, 0, index), ops.reshape(tokens, (rows, slots, 1))
        )
        if paths is None:
            paths = ops.zeros((rows, 1, positions), "int32")
        history = ops.reshape(ops.take_along_axis(written, paths, axis=1), (-1, positions))
        prefix = history[:, 0]
        for position in range(1, positions):
            longer = prefix * self.vocab + history[:, position]
            prefix = ops.where(position <= index, longer, prefix)
        sentence = ops.repeat(state["sentence"], slots, axis=0)
        logits, attended = self.read(sentence, prefix)
        return logits, {**state, "written": written}, *attended


def log_probs_of(table, sentence):
    """The same table for plain Python: prefix to log-probabilities of the next token."""
    log_probs = log_softmax(table[sentence])
    return lambda prefix: log_probs[number_of(prefix, table.shape[-1])]


def log_prob(table, sentence, ids):
    """Log-probability of a sequence, token by token."""
    following = log_probs_of(table, sentence)
    return sum(following(tuple(ids[:position]))[token] for position, token in enumerate(ids))
