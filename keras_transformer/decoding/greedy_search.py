"""Greedy search: the likeliest token at every step."""

import keras
from keras import ops

from keras_transformer.decoding.result import DecodeResult, next_log_probs


@keras.saving.register_keras_serializable(package="keras_transformer")
class GreedySearch:
    """Appends the likeliest token until `eos_id` or the maximum length.

    `token_t = argmax(log p(token | token_1 ... token_{t-1}))`, `score = sum(log p(token_t))`

    Called as `search(step, state, batch_size=..., max_length=..., bos_id=..., eos_id=...,
    pad_id=0, length_limits=None)`, where `step(tokens, index, state)` returns the next token's
    logits and the new state; see `BeamSearch`.

    Returns:
        A `DecodeResult` with one hypothesis for each sentence.

    Example:

    >>> from keras import ops
    >>> def step(tokens, index, state):
    ...     return ops.one_hot(ops.minimum(tokens + 1, 3), 5), state
    >>> result = GreedySearch()(step, (), batch_size=1, max_length=4, bos_id=1, eos_id=3)
    >>> ops.convert_to_numpy(result.ids).tolist()
    [[[2, 3, 0, 0]]]
    """

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
        structure = state
        limits = max_length if length_limits is None else length_limits

        def unfinished(index, tokens, ids, scores, lengths, finished, *flat_state):
            return ops.logical_and(index < max_length, ops.logical_not(ops.all(finished)))

        def advance(index, tokens, ids, scores, lengths, finished, *flat_state):
            state = keras.tree.pack_sequence_as(structure, flat_state)
            logits, state = step(tokens, index, state)
            log_probs = next_log_probs(logits, pad_id, bos_id)
            tokens = ops.cast(ops.argmax(log_probs, axis=-1), "int32")
            gained = ops.squeeze(ops.take_along_axis(log_probs, tokens[:, None], axis=-1), -1)
            tokens = ops.where(finished, pad_id, tokens)
            scores = ops.where(finished, scores, scores + gained)
            lengths = lengths + ops.cast(ops.logical_not(finished), "int32")
            ended = ops.logical_or(tokens == eos_id, lengths >= limits)
            finished = ops.logical_or(finished, ended)
            ids = ops.slice_update(ids, (0, index), tokens[:, None])
            return (index + 1, tokens, ids, scores, lengths, finished, *keras.tree.flatten(state))

        start = (
            ops.convert_to_tensor(0, "int32"),
            ops.full((batch_size,), bos_id, "int32"),
            ops.full((batch_size, max_length), pad_id, "int32"),
            ops.zeros((batch_size,), "float32"),
            ops.zeros((batch_size,), "int32"),
            ops.zeros((batch_size,), "bool"),
            *keras.tree.flatten(state),
        )
        _, _, ids, scores, lengths, *_ = ops.while_loop(unfinished, advance, start)
        return DecodeResult(ids[:, None], scores[:, None], lengths[:, None])

    def get_config(self):
        """Returns the constructor's arguments: none."""
        return {}

    @classmethod
    def from_config(cls, config):
        """Rebuilds the search from `get_config`."""
        return cls(**config)
