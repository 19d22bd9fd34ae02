"""Checks that people run on their own models: does padding leak, does the future leak?"""

import keras
import numpy as np
from keras import ops

from keras_transformer import arguments

__all__ = ["check_causality", "check_padding_invariance"]


def check_padding_invariance(model, inputs, pad_id=0, extra=7, tolerance=1e-5):
    """Checks that outputs at real positions depend neither on padding nor on the rest of a batch.

    `max |model(inputs) - model(inputs with more padding)| <= tolerance`, and the same for each
    row alone, without its padding.

    Args:
        model: a model or layer, or any function of `inputs`.
        inputs: integer ids (batch, length), or a tuple, list or dict of such arrays, with
            sentences of different lengths. The model must take any batch size and length.
        pad_id: the id that is padding.
        extra: how much padding is added; to a second array of inputs one more, and so on, which
            tells the array that an output is aligned with.
        tolerance: the largest difference that is no leak.

    Shapes:
        Outputs that grow with an array of inputs are (batch, length, ...) and compared at its
        real tokens; others are (batch, ...) and compared whole.

    Returns:
        The largest difference found.

    Raises:
        AssertionError: naming the position, the size and the cause of the largest leak.
        ValueError: for inputs that are not integers of rank 2.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import Transformer
    >>> model = Transformer(vocab_size=11, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> source_ids, target_ids = np.array([[5, 6, 3], [7, 3, 0]]), np.array([[2, 5], [2, 0]])
    >>> check_padding_invariance(model, (source_ids, target_ids)) < 1e-5
    True
    """
    arguments.positive_integer("extra", extra)
    parts = [_ids(part) for part in keras.tree.flatten(inputs)]
    run = _runner(model, inputs)
    whole = run(parts)
    more = [extra + index for index in range(len(parts))]
    longer = run(
        [
            np.pad(part, [(0, 0), (0, count)], constant_values=pad_id)
            for part, count in zip(parts, more, strict=True)
        ]
    )
    leaks = []
    for number, (output, grown) in enumerate(zip(whole, longer, strict=True)):
        aligned = _aligned_part(output, grown, more)
        real = np.ones(output.shape[:1], bool) if aligned is None else parts[aligned] != pad_id
        if aligned is not None:
            grown = grown[:, : output.shape[1]]
        cause = f"with {' and '.join(map(str, more))} more padding tokens"
        leaks.append(_largest(output, grown, real, number, cause, row=None))
    for row in range(len(parts[0])):
        alone = run([_trimmed(part[row : row + 1], pad_id) for part in parts])
        for number, (output, single) in enumerate(zip(whole, alone, strict=True)):
            aligned = _aligned_part(output, longer[number], more)
            mine = output[row : row + 1]
            real = np.ones((1,), bool)
            if aligned is not None:
                mine = mine[:, : single.shape[1]]
                real = parts[aligned][row : row + 1, : single.shape[1]] != pad_id
            cause = f"with sentence {row} alone, without its padding"
            leaks.append(_largest(mine, single, real, number, cause, row))
    return _judge(leaks, tolerance, "padding", len(whole))


def check_causality(model, inputs, pad_id=0, tolerance=1e-5):
    """Checks that no output depends on a later position of the input.

    `max over t of |model(inputs) - model(inputs changed at t)|[:, :t] <= tolerance`

    Args:
        model: a model or layer, or any function of `inputs`.
        inputs: integer ids (batch, length) or numbers (batch, length, ...), or a tuple, list or
            dict of arrays, of which the last is changed: the target of a `Transformer`.
        pad_id: the id that is padding, which stays as it is.
        tolerance: the largest difference that is no leak.

    Shapes:
        Outputs must be (batch, length, ...), as long as the array that is changed.

    Returns:
        The largest difference found.

    Raises:
        AssertionError: naming the changed position, and the position and size of the largest
            leak.
        ValueError: when an output is not as long as the input, or an id has no other to be
            changed to.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import Decoder, PositionalEncoding
    >>> decoder = Decoder(num_layers=1, num_heads=2, d_ff=16)
    >>> check_causality(lambda x: decoder(PositionalEncoding()(x)), np.ones((1, 4, 8))) < 1e-5
    True
    """
    parts = [np.asarray(part) for part in keras.tree.flatten(inputs)]
    run, varied = _runner(model, inputs), parts[-1]
    whole = run(parts)
    for output in whole:
        if output.ndim < 2 or output.shape[1] != varied.shape[1]:
            raise ValueError(
                "an output must be as long as the input that is changed. Received: an output of "
                f"shape {output.shape} for an input of shape {varied.shape}"
            )
    leaks = []
    for position in range(1, varied.shape[1]):
        changed = _changed(varied, position, pad_id)
        for number, (output, other) in enumerate(
            zip(whole, run([*parts[:-1], changed]), strict=True)
        ):
            before = np.ones((len(output), position), bool)
            cause = f"when position {position} of the input changes"
            leaks.append(
                _largest(output[:, :position], other[:, :position], before, number, cause, None)
            )
    return _judge(leaks, tolerance, "the future", len(whole))


def _ids(part):
    part = np.asarray(part)
    if part.ndim != 2 or not np.issubdtype(part.dtype, np.integer):
        raise ValueError(
            "`inputs` must be integer ids of shape (batch, length). "
            f"Received: an array of shape {part.shape} and dtype {part.dtype}"
        )
    return part


def _runner(model, inputs):
    """A function from a flat list of inputs to a flat list of outputs as NumPy arrays."""

    def run(parts):
        packed = keras.tree.pack_sequence_as(inputs, parts)
        outputs = keras.tree.flatten(model(packed))
        return [ops.convert_to_numpy(ops.cast(output, "float32")) for output in outputs]

    return run


def _aligned_part(output, grown, more):
    """The number of the inputs that an output grew with, or None."""
    if output.ndim < 2 or grown.shape[1] - output.shape[1] not in more:
        return None
    return more.index(grown.shape[1] - output.shape[1])


def _trimmed(row, pad_id):
    real = np.flatnonzero((row != pad_id).any(axis=0))
    return row[:, : real[-1] + 1 if len(real) else 1]


def _changed(varied, position, pad_id):
    """`varied` with another value at `position`, except where it is padding."""
    changed = varied.copy()
    if not np.issubdtype(varied.dtype, np.integer):
        changed[:, position] += 1
        return changed
    known = np.unique(varied[varied != pad_id])
    if len(known) < 2:
        raise ValueError(
            "`inputs` must hold at least two different ids to change one for another. "
            f"Received: {known.tolist()}"
        )
    following = dict(zip(known, np.roll(known, 1), strict=True))
    changed[:, position] = [following.get(token, token) for token in varied[:, position]]
    return changed


def _largest(output, other, compared, number, cause, row):
    """(size, words) of the largest difference where `compared` is True."""
    apart = np.abs(output - other)
    apart = np.where(np.isnan(apart), np.inf, apart)  # NaN on one side or on both is a leak
    apart = apart.reshape(*compared.shape, -1).max(axis=-1, initial=0.0)
    apart = np.where(compared, apart, 0.0)
    where = list(np.unravel_index(apart.argmax(), apart.shape)) if apart.size else [0]
    size = float(apart.max(initial=0.0))
    where[0] = where[0] if row is None else row
    return size, number, [int(index) for index in where], cause


def _judge(leaks, tolerance, what, num_outputs):
    size, number, where, cause = max(leaks, key=lambda leak: leak[0], default=(0.0, 0, [], ""))
    if size > tolerance:
        name = "the output" if num_outputs == 1 else f"output {number}"
        found = [leak[0] for leak in leaks if leak[0] > tolerance]
        raise AssertionError(
            f"{what} leaks: {name} at {where} changes by {size:.3g} {cause}; "
            f"{len(found)} of {len(leaks)} comparisons are off by more than {tolerance:g}."
        )
    return size
