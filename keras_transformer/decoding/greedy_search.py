"""Greedy search, and the loop that it shares with sampling: one hypothesis for each row."""

from collections.abc import Callable
from typing import NamedTuple, Unpack

import keras
from keras import ops

from keras_transformer.arguments import LogProbs, Tensor
from keras_transformer.decoding.search import (
    IMPOSSIBLE,
    DecodeResult,
    Search,
    SearchOptions,
    Task,
)
from keras_transformer.decoding.step_function import State, attention_width, flat, nest, run_step


class Progress(NamedTuple):
    """The variables of the loop over positions."""

    index: Tensor  # int32 (), the position of the last tokens
    tokens: Tensor  # int32 (rows,), the last token of each row
    ids: Tensor  # int32 (rows, max_length), the tokens so far, then `pad_id`
    token_log_probs: Tensor  # float32 (rows, max_length)
    alignments: Tensor | None  # float32 (rows, max_length, source); None unless asked for
    lengths: Tensor  # int32 (rows,), the number of tokens so far
    finished: Tensor  # bool (rows,)
    state: State  # of the step function: (rows, ...), unless the step follows paths


def likeliest(log_probs: LogProbs, index: Tensor) -> Tensor:
    """Returns the likeliest token of each row, int32 (rows,)."""
    return ops.cast(ops.argmax(log_probs, axis=-1), "int32")


class AppendingSearch(Search):
    """The base of `GreedySearch` and `Sampling`: appends one token to each row at each step."""

    def append_tokens(
        self, task: Task, state: State, choose: Callable[[LogProbs, Tensor], Tensor]
    ) -> DecodeResult:
        """Extends each row until it ends; returns one hypothesis for each sentence of the task.

        `choose(log_probs, index)` returns the next token of each row, int32 (rows,), from
        log-probabilities (rows, vocab).
        """
        start = self._first_progress(task, state)

        def unfinished(*variables: Tensor) -> Tensor:
            now = nest(start, variables)
            return ops.logical_and(
                now.index < task.max_length, ops.logical_not(ops.all(now.finished))
            )

        def advance(*variables: Tensor) -> tuple[Tensor, ...]:
            return flat(self._next_progress(task, choose, nest(start, variables)))

        end = nest(start, ops.while_loop(unfinished, advance, flat(start)))
        kept = ops.arange(task.max_length) < end.lengths[:, None]  # -> (rows, max_length)
        token_log_probs = ops.where(kept, end.token_log_probs, 0.0)
        scores = ops.where(end.lengths > 0, ops.sum(token_log_probs, axis=-1), IMPOSSIBLE)
        ids = ops.where(kept, end.ids, task.pad_id)
        alignments = end.alignments
        if alignments is not None:
            # -> (batch, 1, max_length, source)
            alignments = ops.where(kept[..., None], alignments, 0.0)[:, None]
        lengths = end.lengths[:, None]  # -> (batch, 1)
        return DecodeResult(
            ids[:, None], scores[:, None], lengths, token_log_probs[:, None], alignments
        )

    def _first_progress(self, task: Task, state: State) -> Progress:
        """The loop's variables before the first step."""
        rows = task.batch_size
        tokens = ops.full((rows,), task.bos_id, "int32")
        alignments = None
        if self.needs_attention:
            width = attention_width(task.step, tokens, state, None, task.source_mask)
            alignments = ops.zeros((rows, task.max_length, width), "float32")
        return Progress(
            index=ops.convert_to_tensor(0, "int32"),
            tokens=tokens,
            ids=ops.full((rows, task.max_length), task.pad_id, "int32"),
            token_log_probs=ops.zeros((rows, task.max_length), "float32"),
            alignments=alignments,
            lengths=ops.zeros((rows,), "int32"),
            finished=ops.zeros((rows,), "bool"),
            state=state,
        )

    def _next_progress(
        self, task: Task, choose: Callable[[LogProbs, Tensor], Tensor], now: Progress
    ) -> Progress:
        """One decoding step: the loop's variables with one token more in each row."""
        logits, state, attention = run_step(
            task.step,
            now.tokens,
            now.index,
            now.state,
            paths=None,
            needs_attention=self.needs_attention,
        )
        log_probs = self.apply_rules(task, logits, now.index, lambda: now.ids)
        tokens = choose(log_probs, now.index)
        # -> (rows, 1), then (rows,)
        gained = ops.squeeze(ops.take_along_axis(log_probs, tokens[:, None], axis=-1), -1)
        # Where the rules leave no token there is no hypothesis.
        stuck = ops.logical_and(gained <= IMPOSSIBLE / 2, ops.logical_not(now.finished))
        tokens = ops.where(now.finished, task.pad_id, tokens)
        lengths = now.lengths + ops.cast(ops.logical_not(now.finished), "int32")
        ended = ops.logical_or(tokens == task.eos_id, lengths >= task.max_lengths)
        alignments = now.alignments
        if alignments is not None and attention is not None:
            # Written as (rows, 1, source).
            alignments = ops.slice_update(alignments, (0, now.index, 0), attention[:, None])
        return Progress(
            index=now.index + 1,
            tokens=tokens,
            ids=ops.slice_update(now.ids, (0, now.index), tokens[:, None]),
            token_log_probs=ops.slice_update(now.token_log_probs, (0, now.index), gained[:, None]),
            alignments=alignments,
            lengths=ops.where(stuck, 0, lengths),
            finished=ops.logical_or(now.finished, ops.logical_or(ended, stuck)),
            state=state,
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class GreedySearch(AppendingSearch):
    """Appends the likeliest token until `eos_id` or the maximum length.

    `token_t = argmax(log p(token | token_1 ... token_{t-1}))`, `score = sum(log p(token_t))`

    `Search` describes how to call a search, and the options of every search.

    Args:
        **options: those of every search: `min_length`, `min_length_ratio`, `max_length_ratio`,
            `repetition_penalty`, `no_repeat_ngram_size`, `suppressed_ids`, `allowed_ids`,
            `return_alignments`, `renormalize`.

    Returns:
        A `DecodeResult` with one hypothesis for each sentence.

    Raises:
        ValueError: for a bad argument.

    Example:

    >>> from keras import ops
    >>> def step(tokens, index, state):
    ...     return ops.one_hot(ops.minimum(tokens + 1, 3), 5), state
    >>> result = GreedySearch()(step, (), batch_size=1, max_length=4, bos_id=1, eos_id=3)
    >>> ops.convert_to_numpy(result.ids).tolist()
    [[[2, 3, 0, 0]]]
    """

    def __init__(self, **options: Unpack[SearchOptions]) -> None:
        super().__init__(**options)

    def run(self, task: Task, state: State) -> DecodeResult:
        """Appends the likeliest token."""
        return self.append_tokens(task, state, likeliest)
