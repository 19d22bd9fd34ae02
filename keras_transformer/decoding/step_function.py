"""Calls of a step function, with checks of what it returns."""

import keras
from keras import ops


def run_step(search, task, tokens, index, state, paths=None):
    """The step's logits (rows, vocab), new state, and attention (rows, source) or None."""
    follows = getattr(task.step, "follows_paths", False)
    answer = task.step(tokens, index, state, *([paths] if follows else []))
    if not isinstance(answer, (tuple, list)) or len(answer) not in (2, 3):
        raise ValueError(
            "the step function must return (logits, state) or (logits, state, attention). "
            f"Received: {answer!r:.200}"
        )
    logits, state, attention = (*answer, None)[:3]
    check_rows("logits", logits, "vocab", tokens)
    if not search.needs_attention:
        return logits, state, None
    if attention is None:
        raise ValueError(
            "the step function must return (logits, state, attention) for alignments and the "
            "coverage penalty. Received: no attention"
        )
    check_rows("attention", attention, "source", tokens)
    return logits, state, ops.cast(attention, "float32")


def check_rows(name, tensor, width, tokens):
    """Raises `ValueError` when a tensor of the step's is not (rows, width), as many as tokens."""
    shape, rows = tuple(tensor.shape), tokens.shape[0]
    if len(shape) != 2 or (None not in (rows, shape[0]) and shape[0] != rows):
        raise ValueError(
            f"the step function's {name} must be (rows, {width}). "
            f"Received: shape {shape} for {rows} rows"
        )


def check_state(task, state):
    """Raises `ValueError` when a part of the first state does not begin with the batch.

    A step that follows paths keeps its state as it likes.
    """
    if getattr(task.step, "follows_paths", False) or not isinstance(task.batch_size, int):
        return
    for part in keras.tree.flatten(state):
        shape = (task.batch_size,) if part is None else tuple(getattr(part, "shape", ()))
        if not shape or shape[0] not in (None, task.batch_size):
            raise ValueError(
                "each part of `state` must be a tensor whose first axis is the batch. "
                f"Received: shape {shape} for {task.batch_size} sentences"
            )


def attention_width(search, task, tokens, state):
    """How many positions the step attends to, from a step that is thrown away."""
    paths = ops.zeros((task.batch_size, search.beam_size, task.max_length + 1), "int32")
    paths = paths if search.follows_paths else None
    _, _, attention = run_step(
        search, task, tokens, ops.convert_to_tensor(0, "int32"), state, paths
    )
    width, mask = ops.shape(attention)[1], task.source_mask
    of_mask = width if mask is None else ops.shape(mask)[1]
    if isinstance(width, int) and isinstance(of_mask, int) and width != of_mask:
        raise ValueError(
            "`source_mask` must be as wide as the step function's attention. "
            f"Received: widths {of_mask} and {width}"
        )
    return width


def change_state(function, state):
    """Applies a function to each tensor of a nest; None stays None."""
    return keras.tree.map_structure(lambda part: None if part is None else function(part), state)


def flat(variables):
    """A nest as the tuple of tensors that a loop carries; None is left out."""
    return tuple(part for part in keras.tree.flatten(variables) if part is not None)


def nest(structure, tensors):
    """The nest that `flat` took apart."""
    tensors = iter(tensors)
    parts = [None if part is None else next(tensors) for part in keras.tree.flatten(structure)]
    return keras.tree.pack_sequence_as(structure, parts)
