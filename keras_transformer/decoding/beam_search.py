"""Beam search over a step function, with frozen finished hypotheses and an exact stop."""

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.decoding.result import IMPOSSIBLE, DecodeResult, next_log_probs


def length_normaliser(length, length_penalty):
    """`((5 + length) / 6) ** length_penalty` (Wu et al. 2016, equation 14)."""
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, length_penalty)


@keras.saving.register_keras_serializable(package="keras_transformer")
class BeamSearch:
    """Keeps the `beam_size` likeliest beginnings at every step, and the best finished hypotheses.

    `score = sum(log p(token_t)) / ((5 + length) / 6) ** length_penalty`, where `length` counts
    the tokens after `bos_id`, `eos_id` included

    At each step the live hypotheses are extended by every token and the `beam_size` likeliest
    extensions survive. Those that end in `eos_id`, or reach the maximum length, are finished:
    their score is frozen, and the best `beam_size` of them are kept. The search of a sentence
    stops when no live hypothesis can reach the score of the worst one kept, whatever it goes on
    with. Which other sentences are in the batch changes nothing. A beam of 1 is greedy search; a
    beam as wide as the number of sequences finds the best of all.

    Called as `search(step, state, batch_size=..., max_length=..., bos_id=..., eos_id=...,
    pad_id=0, length_limits=None)`. `step(tokens, index, state)` is given the last token of each
    row, (rows,), their position `index` (`bos_id` is at 0) and the state, and returns the next
    token's logits (rows, vocab) and the new state. The state is any nest of tensors whose first
    axis is rows; the given one has batch rows, in the loop there are batch * beam_size, the beams
    of a sentence adjacent. What is the same for all beams need not be in the state.
    `length_limits`, (batch,), gives sentences limits of their own, none above `max_length`.

    Args:
        beam_size: number of live hypotheses, and of hypotheses returned.
        length_penalty: 0 compares sums of log-probabilities, larger values favour longer
            hypotheses; at least 0.

    Returns:
        A `DecodeResult` with `beam_size` hypotheses for each sentence.

    Raises:
        ValueError: for a bad argument.

    Reference: Wu et al. 2016, "Google's Neural Machine Translation System", section 7; Vaswani
    et al. 2017, section 6.1 (beam 4, length penalty 0.6).

    Example:

    >>> from keras import ops
    >>> def step(tokens, index, state):
    ...     return ops.one_hot(ops.minimum(tokens + 1, 3), 5), state
    >>> search = BeamSearch(beam_size=2, length_penalty=0.0)
    >>> result = search(step, (), batch_size=1, max_length=4, bos_id=1, eos_id=3)
    >>> ops.convert_to_numpy(result.ids).tolist()
    [[[2, 3, 0, 0], [3, 0, 0, 0]]]
    """

    def __init__(self, beam_size=4, length_penalty=0.6):
        self.beam_size = arguments.positive_integer("beam_size", beam_size)
        self.length_penalty = arguments.number("length_penalty", length_penalty)
        if self.length_penalty < 0:
            raise ValueError(
                f"`length_penalty` must be at least 0. Received: length_penalty={length_penalty!r}"
            )

    def __call__(
        self,
        step,
        state,
        *,
        batch_size,
        max_length,
        bos_id,
        eos_id,
        pad_id=0,
        length_limits=None,
    ):
        """Runs the search."""
        beam_size, structure = self.beam_size, state
        limits = ops.broadcast_to(
            max_length if length_limits is None else length_limits, (batch_size,)
        )
        longest = length_normaliser(limits, self.length_penalty)

        def unfinished(index, tokens, ids, log_probs, done_ids, done_scores, done_lengths, *_):
            best_live = ops.max(log_probs, axis=1)
            # A log-probability only falls, and the largest normaliser brings it nearest to 0.
            can_win = ops.logical_and(
                best_live > IMPOSSIBLE / 2, best_live / longest > ops.min(done_scores, axis=1)
            )
            return ops.logical_and(index < max_length, ops.any(can_win))

        def advance(index, tokens, ids, log_probs, *done_and_state):
            done, flat_state = done_and_state[:3], done_and_state[3:]
            logits, state = step(tokens, index, keras.tree.pack_sequence_as(structure, flat_state))
            totals = ops.reshape(log_probs, (-1, 1)) + next_log_probs(logits, pad_id, bos_id)
            log_probs, beams, tokens = best_extensions(totals, batch_size, beam_size)
            first_rows = ops.arange(batch_size, dtype="int32")[:, None] * beam_size
            rows = ops.reshape(first_rows + beams, (-1,))
            state = keras.tree.map_structure(lambda part: ops.take(part, rows, axis=0), state)
            ids = ops.take(ids, rows, axis=0)
            ids = ops.slice_update(ids, (0, index), ops.reshape(tokens, (-1, 1)))

            length = index + 1
            ended = ops.logical_or(tokens == eos_id, length >= limits[:, None])
            ended = ops.logical_and(ended, log_probs > IMPOSSIBLE / 2)
            scores = log_probs / length_normaliser(length, self.length_penalty)
            ended_hypotheses = (
                ops.reshape(ids, (batch_size, beam_size, max_length)),
                ops.where(ended, scores, IMPOSSIBLE),
                ops.where(ended, length, 0),
            )
            done = best_hypotheses(done, ended_hypotheses, beam_size)
            log_probs = ops.where(ended, IMPOSSIBLE, log_probs)
            tokens = ops.reshape(tokens, (-1,))
            return (length, tokens, ids, log_probs, *done, *keras.tree.flatten(state))

        start = first_variables(state, batch_size, beam_size, max_length, bos_id, pad_id)
        _, _, _, _, ids, scores, lengths, *_ = ops.while_loop(unfinished, advance, start)
        ids = ops.where(ops.arange(max_length) < lengths[:, :, None], ids, pad_id)
        return DecodeResult(ids, scores, lengths)

    def get_config(self):
        """Returns the constructor's arguments."""
        return {"beam_size": self.beam_size, "length_penalty": self.length_penalty}

    @classmethod
    def from_config(cls, config):
        """Rebuilds the search from `get_config`."""
        return cls(**config)


def first_variables(state, batch_size, beam_size, max_length, bos_id, pad_id):
    """The loop's variables before the first step: nothing finished, one live beam a sentence."""
    # The beams of a sentence are all alike at first, so only one of them is live.
    only_first = ops.where(ops.arange(beam_size) == 0, 0.0, IMPOSSIBLE)
    state = keras.tree.map_structure(lambda part: ops.repeat(part, beam_size, axis=0), state)
    return (
        ops.convert_to_tensor(0, "int32"),
        ops.full((batch_size * beam_size,), bos_id, "int32"),
        ops.full((batch_size * beam_size, max_length), pad_id, "int32"),
        ops.tile(only_first[None, :], (batch_size, 1)),
        ops.full((batch_size, beam_size, max_length), pad_id, "int32"),
        ops.full((batch_size, beam_size), IMPOSSIBLE, "float32"),
        ops.zeros((batch_size, beam_size), "int32"),
        *keras.tree.flatten(state),
    )


def best_extensions(totals, batch_size, beam_size):
    """The best continuations of each sentence: their log-probabilities, beams and tokens.

    `totals` is (batch * beam, vocab); each of the three is (batch, beam).
    """
    vocab_size = totals.shape[-1]
    totals = ops.reshape(totals, (batch_size, beam_size * vocab_size))
    log_probs, choices = ops.top_k(totals, beam_size)
    choices = ops.cast(choices, "int32")
    return ops.maximum(log_probs, IMPOSSIBLE), choices // vocab_size, choices % vocab_size


def best_hypotheses(kept, new, beam_size):
    """The best of two sets of (ids, scores, lengths), each with a second axis of hypotheses."""
    ids, scores, lengths = (ops.concatenate(pair, axis=1) for pair in zip(kept, new, strict=True))
    scores, best = ops.top_k(scores, beam_size)
    best = ops.cast(best, "int32")
    ids = ops.take_along_axis(ids, best[:, :, None], axis=1)
    return ids, scores, ops.take_along_axis(lengths, best, axis=1)
