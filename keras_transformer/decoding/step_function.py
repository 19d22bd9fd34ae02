"""The contract of a step function: its calls, checks of what it returns, and its nested state."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import keras
from keras import ops

from keras_transformer.arguments import BeamPaths, Logits, PaddingMask, Tensor

State: TypeAlias = Any
"""A nest of tensors whose first axis is rows; a part may be None."""

StepAnswer: TypeAlias = tuple[Logits, State] | tuple[Logits, State, Tensor | None]
"""What a step function returns: a `StepOutput`, or a plain tuple of its two or three fields."""


class StepOutput(NamedTuple):
    """What a step function of this package returns."""

    logits: Logits  # (rows, vocab)
    state: State
    attention: Tensor | None = None  # (rows, source); for alignments and the coverage penalty


class PlainStep(Protocol):
    """A step whose state the search reorders as it reorders the hypotheses."""

    def __call__(self, tokens: Tensor, index: Tensor, state: State, /) -> StepAnswer:
        """Decodes one position."""


class StepAlongPaths(Protocol):
    """A step that keeps its state in place and reads it along the paths of the hypotheses."""

    follows_paths: bool

    def __call__(
        self, tokens: Tensor, index: Tensor, state: State, paths: BeamPaths | None, /
    ) -> StepAnswer:
        """Decodes one position; `paths` is None in a search without beams."""


StepFunction: TypeAlias = PlainStep | StepAlongPaths
"""One decoding step; `Search` says what it takes and returns."""


def follows_paths(step: StepFunction) -> bool:
    """Whether the step keeps its state in place and reads it along the paths of the hypotheses."""
    # Any function may be a step: most have no such attribute.
    return getattr(step, "follows_paths", False)


def check_state(step: StepFunction, state: State, batch_size: int | Tensor) -> None:
    """Raises `ValueError` when the first axis of a part of the first state is not the batch.

    A step that follows paths may have a state of any shape.
    """
    if follows_paths(step) or not isinstance(batch_size, int):
        return
    for part in keras.tree.flatten(state):
        shape = (batch_size,) if part is None else tuple(getattr(part, "shape", ()))
        if not shape or shape[0] not in (None, batch_size):
            raise ValueError(
                "each part of `state` must be a tensor whose first axis is the batch. "
                f"Received: shape {shape} for {batch_size} sentences"
            )


def run_step(
    step: StepFunction,
    tokens: Tensor,
    index: Tensor,
    state: State,
    *,
    paths: BeamPaths | None,
    needs_attention: bool,
) -> StepOutput:
    """Calls the step and checks what it returns.

    `tokens` (rows,) are at position `index`. `paths` (batch, beam, max_length + 1) is for a step
    that follows paths.
    """
    # What a user's function returns is checked here, whatever its annotation.
    answer: Any = step(tokens, index, state, *([paths] if follows_paths(step) else []))
    if not isinstance(answer, (tuple, list)) or len(answer) not in (2, 3):
        raise ValueError(
            "the step function must return (logits, state) or (logits, state, attention). "
            f"Received: {answer!r:.200}"
        )
    logits, state, attention = (*answer, None)[:3]
    check_rows("logits", logits, "vocab", tokens)
    if not needs_attention:
        return StepOutput(logits, state, None)
    if attention is None:
        raise ValueError(
            "the step function must return (logits, state, attention) for alignments and the "
            "coverage penalty. Received: no attention"
        )
    check_rows("attention", attention, "source", tokens)
    return StepOutput(logits, state, ops.cast(attention, "float32"))


def check_rows(name: str, tensor: Tensor, axis: str, tokens: Tensor) -> None:
    """Raises `ValueError` unless the tensor is (rows, `axis`), with a row for each token."""
    shape, rows = tuple(tensor.shape), tokens.shape[0]
    if len(shape) != 2 or (None not in (rows, shape[0]) and shape[0] != rows):
        raise ValueError(
            f"the step function's {name} must be (rows, {axis}). "
            f"Received: shape {shape} for {rows} rows"
        )


def attention_width(
    step: StepFunction,
    tokens: Tensor,
    state: State,
    paths: BeamPaths | None,
    source_mask: PaddingMask | None,
) -> int | Tensor:
    """Returns the number of source positions: calls the first step and drops what it returns."""
    start = ops.convert_to_tensor(0, "int32")
    attention = run_step(step, tokens, start, state, paths=paths, needs_attention=True).attention
    width = ops.shape(attention)[1]
    of_mask = width if source_mask is None else ops.shape(source_mask)[1]
    if isinstance(width, int) and isinstance(of_mask, int) and width != of_mask:
        raise ValueError(
            "`source_mask` must be as wide as the step function's attention. "
            f"Received: widths {of_mask} and {width}"
        )
    return width


def change_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """Applies a function to each tensor of a nest; None stays None."""
    return keras.tree.map_structure(lambda part: None if part is None else function(part), state)


def flat(variables: Any) -> tuple[Tensor, ...]:
    """Returns the tensors of a nest as a tuple, which a loop carries; leaves None out."""
    return tuple(part for part in keras.tree.flatten(variables) if part is not None)


def nest(structure: Any, tensors: Any) -> Any:
    """Returns the nest that `flat` took apart; `structure` is one like it."""
    tensors = iter(tensors)
    parts = [None if part is None else next(tensors) for part in keras.tree.flatten(structure)]
    return keras.tree.pack_sequence_as(structure, parts)
