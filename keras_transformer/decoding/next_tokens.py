"""Log-probabilities of the next token, under the rules that a search was given."""

import numpy as np
from keras import ops

from keras_transformer.decoding.result import IMPOSSIBLE


def next_log_probs(search, task, logits, index, history):
    """Log-probabilities (rows, vocab) of the tokens at `index`, those ruled out -1e9.

    Rules come after normalisation, so that a hypothesis scores what the model gives; only the
    repetition penalty changes the model's logits. `history()` gives the tokens so far,
    (rows, max_length), from `index` on anything.
    """
    vocab_size = logits.shape[-1]
    check_ids(task, vocab_size)
    logits = ops.cast(logits, "float32")
    if search.repetition_penalty != 1.0:
        logits = penalised(logits, seen_tokens(history(), index, vocab_size), search)
    log_probs = ops.log_softmax(logits, axis=-1)
    allowed = ops.convert_to_tensor(allowed_tokens(search, task, vocab_size)[None])
    if task.least is not None:
        too_short = index + 1 < per_row(search, task.least)
        is_eos = ops.arange(vocab_size) == task.eos_id
        allowed = ops.logical_and(
            allowed, ops.logical_not(ops.logical_and(too_short[:, None], is_eos))
        )
    if search.no_repeat_ngram_size:
        repeated = repeated_ngrams(history(), index, search.no_repeat_ngram_size, vocab_size)
        allowed = ops.logical_and(allowed, ops.logical_not(repeated))
    if task.prefix_ids is not None:
        allowed = forced(search, task, allowed, index, vocab_size)
    # A model may rule tokens out by -inf, which has no differences; NaN is not above anything.
    return ops.where(ops.logical_and(allowed, log_probs > IMPOSSIBLE), log_probs, IMPOSSIBLE)


def allowed_tokens(search, task, vocab_size):
    """The tokens that may follow anywhere: boolean (vocab,), NumPy."""
    allowed = np.ones(vocab_size, bool)
    if search.allowed_ids is not None:
        allowed[:] = False
        allowed[list(search.allowed_ids)] = True
        allowed[task.eos_id] = True
    allowed[list(search.suppressed_ids)] = False
    # A language model may begin a text with the token that ends the one before, or pad with it.
    allowed[[token for token in (task.pad_id, task.bos_id) if token != task.eos_id]] = False
    return allowed


def check_ids(task, vocab_size):
    """Raises `ValueError` when the search names ids that the model does not have."""
    for name, largest in task.largest_ids.items():
        if largest >= vocab_size:
            raise ValueError(
                f"`{name}` must be below the size of the vocabulary, {vocab_size}. "
                f"Received: {name} with {largest}"
            )


def per_row(search, values):
    """Repeats values (batch, ...) for the beams of each sentence, which are adjacent."""
    return ops.repeat(values, search.beam_size, axis=0) if search.follows_paths else values


def penalised(logits, seen, search):
    """Logits of tokens seen before, divided by the penalty above 0 and multiplied below."""
    penalty = search.repetition_penalty
    lower = ops.where(logits > 0, logits / penalty, logits * penalty)
    return ops.where(seen, lower, logits)


def seen_tokens(history, index, vocab_size):
    """Whether each token is among those before `index`: boolean (rows, vocab)."""
    before = ops.arange(ops.shape(history)[1]) < index
    return marked(history, ops.broadcast_to(before, ops.shape(history)), vocab_size)


def repeated_ngrams(history, index, size, vocab_size):
    """Whether each token would complete an n-gram that the row already has, (rows, vocab)."""
    rows, length = ops.shape(history)
    last = size - 1
    # An n-gram from position p on ends at p + last; it counts when that is before `index`.
    starts = ops.arange(length)
    same = ops.broadcast_to(starts + last < index, (rows, length))
    padded = ops.pad(history, [(0, 0), (0, last)])
    for offset in range(last):
        here = ops.maximum(index - last + offset, 0)
        token = ops.take(history, ops.reshape(here, (1,)), axis=1)
        same = ops.logical_and(same, padded[:, offset : offset + length] == token)
    return marked(padded[:, last:], same, vocab_size)


def marked(tokens, chosen, vocab_size):
    """Whether each token is a chosen one: of (rows, length) both, boolean (rows, vocab)."""
    rows, length = ops.shape(tokens)
    row = ops.broadcast_to(ops.arange(rows, dtype="int32")[:, None], (rows, length))
    places = ops.stack([ops.reshape(row, (-1,)), ops.reshape(tokens, (-1,))], axis=1)
    counts = ops.scatter(places, ops.cast(ops.reshape(chosen, (-1,)), "int32"), (rows, vocab_size))
    return counts > 0


def forced(search, task, allowed, index, vocab_size):
    """Allows the prefix's token alone, whatever the other rules, while a sentence has one."""
    token = ops.take(task.prefix_ids, ops.reshape(index, (1,)), axis=1)
    token = per_row(search, token)  # -> (rows, 1)
    return ops.where(token != task.pad_id, ops.arange(vocab_size) == token, allowed)
