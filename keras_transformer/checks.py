"""Checks that people run on their own models: does padding leak, does the future leak?"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import Tensor
from keras_transformer.integer_ids import LARGEST_EXACT

__all__ = ["check_causality", "check_padding_invariance"]

Inputs: TypeAlias = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
"""The inputs of a model: an array, or a sequence or dictionary of arrays, which may be nested."""

Parts: TypeAlias = Sequence[np.ndarray]  # the inputs, or the outputs, of a model
Run: TypeAlias = Callable[[Parts], list[np.ndarray]]  # from inputs to outputs


class Leak(NamedTuple):
    """The largest difference of one output: its size and place, and what made it."""

    size: float
    output: int
    where: list[int]
    cause: str


def check_padding_invariance(
    model: Callable[..., Any],
    inputs: Inputs,
    pad_id: int = 0,
    extra: int = 7,
    tolerance: float = 1e-5,
    *,
    side: str = "right",
) -> float:
    """Checks that outputs at real positions depend neither on padding nor on the rest of a batch.

    `max |model(inputs) - model(inputs with more padding)| <= tolerance`, and the same for each
    row alone, without its padding.

    Args:
        model: a model or layer, or any function of `inputs`. It must take any batch size and
            length.
        inputs: integer ids or a boolean mask, True at real positions, (batch, length), with rows
            of different lengths. Or a tuple, list or dict of arrays that holds some. Where it
            holds none, floats (batch, length) that are whole numbers are ids. Numbers
            (batch, length, ...) need ids or a mask of their length; every other array has no
            padding and stays as it is.
        pad_id: the id that is padding. Masks are padded with False, numbers with large noise.
        extra: how much padding is added; to a second array of ids one more, and so on. The
            amount tells the array that an output is aligned with. Arrays of one length get as
            much as each other if there are masks or numbers, or if the model needs it.
        tolerance: the largest difference that is not a leak.
        side: "right" or "left", where the inputs are padded.

    Shapes:
        Outputs that grow with an array of inputs are (batch, length, ...) and compared at its
        real positions: where its mask is True or, without one, where not all ids of arrays that
        grew with it are `pad_id`. Others are (batch, ...) and compared whole.

    Returns:
        The largest difference found.

    Raises:
        AssertionError: naming the position, the size and the cause of the largest leak.
        ValueError: for inputs that cannot be padded, a model that raises when they are, or an
            output that grows otherwise than its input.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import Transformer
    >>> model = Transformer(vocab_size=11, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> source_ids, target_ids = np.array([[5, 6, 3], [7, 3, 0]]), np.array([[2, 5], [2, 0]])
    >>> check_padding_invariance(model, (source_ids, target_ids)) < 1e-5
    True
    """
    extra = arguments.positive_integer("extra", extra)
    step = 1 if arguments.one_of("side", side, ("right", "left")) == "right" else -1
    parts = _parts(inputs)
    run = _runner(model, inputs)
    whole = run(parts)
    amounts, longer = _run_longer(run, parts, pad_id, extra, step)
    reals = [_real(parts, amounts, amount, pad_id) for amount in amounts]
    compared = [
        _compared(*outputs, dict(zip(amounts, reals, strict=True)))
        for outputs in zip(whole, longer, strict=True)
    ]
    added = " and ".join(str(amount) for amount in dict.fromkeys(amounts) if amount)
    leaks = _leaks(whole, longer, compared, cause=f"with {added} more padding tokens", step=step)
    for row in range(len(parts[0])):
        alone = [_alone(part, real, row, step) for part, real in zip(parts, reals, strict=True)]
        cause = f"with sentence {row} alone, without its padding"
        changed = _run_changed(run, parts, alone)
        leaks += _leaks(whole, changed, compared, cause=cause, step=step, row=row)
    return _judge(leaks, tolerance, "padding", len(whole))


def check_causality(
    model: Callable[..., Any], inputs: Inputs, pad_id: int = 0, tolerance: float = 1e-5
) -> float:
    """Checks that no output depends on a later position of the input.

    `max over t of |model(inputs) - model(inputs changed at t)|[:, :t] <= tolerance`

    Args:
        model: a model or layer, or any function of `inputs`.
        inputs: integer ids (batch, length) or numbers (batch, length, ...), or a tuple, list or
            dict of arrays. The last array is changed: the target of a `Transformer`. Floats are ids
            as in `check_padding_invariance`. Ids become other ids of `inputs`, and booleans their
            opposite. Numbers become the opposite of themselves and of noise of their feature's
            size, which no norm hides.
        pad_id: the id that is padding, which stays as it is.
        tolerance: the largest difference that is not a leak.

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
    parts = _parts(inputs)
    run, varied = _runner(model, inputs), parts[-1]
    whole = run(parts)
    for output in whole:
        if output.ndim < 2 or output.shape[1] != varied.shape[1]:
            raise ValueError(
                "an output must be as long as the input that is changed. Received: an output of "
                f"shape {output.shape} for an input of shape {varied.shape}"
            )
    leaks, random = [], np.random.default_rng(0)
    for position in range(1, varied.shape[1]):
        others = run([*parts[:-1], _changed(varied, position, pad_id, random)])
        before = np.broadcast_to(np.arange(varied.shape[1]) < position, varied.shape[:2])
        cause = f"when position {position} of the input changes"
        leaks += _leaks(whole, others, [before] * len(whole), cause=cause)
    return _judge(leaks, tolerance, "the future", len(whole))


def _parts(inputs: Inputs) -> list[np.ndarray]:
    """A flat list of the inputs as arrays, ids that came as floats made integers."""
    parts = [np.asarray(part) for part in keras.tree.flatten(inputs)]
    if any(_tells_padding(part) for part in parts):
        return parts
    return [part.astype("int32") if _holds_float_ids(part) else part for part in parts]


def _holds_float_ids(part: np.ndarray) -> bool:
    if part.ndim != 2 or part.dtype.name not in LARGEST_EXACT:
        return False
    largest = LARGEST_EXACT[part.dtype.name]
    return bool(np.all((part == np.floor(part)) & (part >= 0) & (part <= largest)))


def _runner(model: Callable[..., Any], inputs: Inputs) -> Run:
    """A function from a flat list of inputs to a flat list of outputs as NumPy arrays."""

    def run(parts: Parts) -> list[np.ndarray]:
        packed = keras.tree.pack_sequence_as(inputs, parts)
        outputs = keras.tree.flatten(model(packed))
        return [ops.convert_to_numpy(ops.cast(output, "float32")) for output in outputs]

    return run


def _run_changed(run: Run, parts: Parts, changed: Parts) -> list[np.ndarray]:
    """`run(changed)`, or a `ValueError` that tells its shapes from those of the inputs."""
    try:
        return run(changed)
    except Exception as error:
        took, refused = (", ".join(str(part.shape) for part in some) for some in (parts, changed))
        raise ValueError(
            "`model` must take any length and any batch size. Received: a model that took "
            f"{took} and raised {type(error).__name__} for {refused}"
        ) from error


def _run_longer(
    run: Run, parts: Parts, pad_id: int, extra: int, step: int
) -> tuple[list[int], list[np.ndarray]]:
    """(the padding that each part got, the outputs with it)."""
    shared = _shared_amounts(parts, extra)
    if all(part.ndim == 2 and np.issubdtype(part.dtype, np.integer) for part in parts):
        own = [extra + index for index in range(len(parts))]
        try:
            return own, run(_padded(parts, own, pad_id, step))
        except Exception:  # the model may want them equally long, as ids and their segments
            pass
    return shared, _run_changed(run, parts, _padded(parts, shared, pad_id, step))


def _shared_amounts(parts: Parts, extra: int) -> list[int]:
    """The padding for each part: the same for arrays of one length, 0 for those without any."""
    lengths = list(dict.fromkeys(part.shape[1] for part in parts if _tells_padding(part)))
    if not lengths:
        found = ", ".join(f"{part.dtype} {part.shape}" for part in parts)
        raise ValueError(
            "`inputs` must hold integer ids or a boolean mask of shape (batch, length), which "
            f"tell what is padding. Received: {found}"
        )
    return [
        extra + lengths.index(part.shape[1]) if part.ndim > 1 and part.shape[1] in lengths else 0
        for part in parts
    ]


def _tells_padding(part: np.ndarray) -> bool:
    return part.ndim == 2 and (part.dtype == bool or np.issubdtype(part.dtype, np.integer))


def _padded(parts: Parts, amounts: Sequence[int], pad_id: int, step: int) -> list[np.ndarray]:
    """The parts with padding: False, `pad_id` or large noise."""
    random, padded = np.random.default_rng(0), []
    for part, amount in zip(parts, amounts, strict=True):
        if amount:
            padding = random.normal(size=(len(part), amount, *part.shape[2:])) * 10 * _size(part)
            if part.dtype == bool or np.issubdtype(part.dtype, np.integer):
                padding = np.full_like(padding, pad_id if part.dtype != bool else False)
            part = np.concatenate([part[:, ::step], padding.astype(part.dtype)], axis=1)[:, ::step]
        padded.append(part)
    return padded


def _real(parts: Parts, amounts: Sequence[int], amount: int, pad_id: int) -> np.ndarray | None:
    """True (batch, length) where the parts that got this amount are not padding; None for 0."""
    if amount == 0:
        return None
    marks = [
        part
        for part, its_amount in zip(parts, amounts, strict=True)
        if its_amount == amount and _tells_padding(part)
    ]
    masks = [mark for mark in marks if mark.dtype == bool]
    return np.any(masks or [mark != pad_id for mark in marks], axis=0)


def _compared(
    output: np.ndarray, grown: np.ndarray, reals: Mapping[int, np.ndarray | None]
) -> np.ndarray:
    """True at the positions (batch, length) of an output to compare, or for it whole (batch,)."""
    if output.shape == grown.shape:
        return np.ones(output.shape[:1], bool)
    real = reals.get(grown.shape[1] - output.shape[1]) if output.ndim > 1 else None
    expected = None if real is None else (*real.shape, *grown.shape[2:])
    if real is None or output.shape != expected:
        raise ValueError(
            "an output must be as long as an array of inputs that is padded, or of one shape. "
            f"Received: an output of shape {output.shape}, {grown.shape} with more padding"
        )
    return real


def _alone(part: np.ndarray, real: np.ndarray | None, row: int, step: int) -> np.ndarray:
    """One row of a part, up to the last of its `real` positions."""
    part = part[row : row + 1]
    if real is None:
        return part
    positions = np.flatnonzero(real[row, ::step])
    return part[:, ::step][:, : positions[-1] + 1 if len(positions) else 1][:, ::step]


def _as_long(other: np.ndarray, output: np.ndarray, step: int) -> np.ndarray:
    """`other` cut to the length of `output`, or filled up to it with what `output` has there."""
    if other.shape == output.shape:
        return other
    other, output = other[:, ::step], output[:, ::step]
    filled = [other[:, : output.shape[1]], output[:, other.shape[1] :]]
    return np.concatenate(filled, axis=1)[:, ::step]


def _size(numbers: np.ndarray) -> np.ndarray:
    """The root mean square of each feature, or 1 where it is 0."""
    numbers = numbers.astype("float64")
    numbers = np.where(np.isfinite(numbers), numbers, 0.0)
    size = np.sqrt(np.mean(numbers**2, axis=(0, 1)))
    return np.where(size > 0, size, 1.0)


def _changed(
    varied: np.ndarray, position: int, pad_id: int, random: np.random.Generator
) -> np.ndarray:
    """`varied` with another value at `position`, except where it is padding."""
    changed, old = varied.copy(), varied[:, position]
    if varied.dtype == bool:
        changed[:, position] = ~old
    elif not np.issubdtype(varied.dtype, np.integer):
        noise = random.uniform(0, _size(varied), old.shape)
        changed[:, position] = -(old + np.copysign(noise, old.astype("float64")))
    else:
        known = np.unique(varied[varied != pad_id])
        if len(known) < 2:
            raise ValueError(
                "`inputs` must hold at least two different ids to change one for another. "
                f"Received: {known.tolist()}"
            )
        following = dict(zip(known, np.roll(known, 1), strict=True))
        changed[:, position] = [following.get(token, token) for token in old]
    return changed


def _leaks(
    whole: Parts,
    others: Parts,
    compared: Sequence[np.ndarray],
    *,
    cause: str,
    step: int = 1,
    row: int | None = None,
) -> list[Leak]:
    """The largest leak of each output, of all rows or of one."""
    leaks = []
    rows = slice(None) if row is None else slice(row, row + 1)
    for number, (output, other, real) in enumerate(zip(whole, others, compared, strict=True)):
        output, real = output[rows], real[rows]
        other = _as_long(other, output, step)
        leaks.append(_largest(output, other, real, number=number, cause=cause, row=row))
    return leaks


def _largest(
    output: np.ndarray,
    other: np.ndarray,
    compared: np.ndarray,
    *,
    number: int,
    cause: str,
    row: int | None,
) -> Leak:
    """The largest difference of output `number` where `compared` is True."""
    apart = np.abs(output - other)
    apart = np.where(np.isnan(apart), np.inf, apart)  # NaN on one side or on both is a leak
    apart = apart.reshape(*compared.shape, -1).max(axis=-1, initial=0.0)
    apart = np.where(compared, apart, 0.0)
    place = np.unravel_index(apart.argmax(), apart.shape) if apart.size else (0,)
    where = [int(index) for index in place]
    where[0] = where[0] if row is None else row
    return Leak(float(apart.max(initial=0.0)), number, where, cause)


def _judge(leaks: Sequence[Leak], tolerance: float, what: str, num_outputs: int) -> float:
    largest = max(leaks, key=lambda leak: leak.size, default=Leak(0.0, 0, [], ""))
    if largest.size > tolerance:
        name = "the output" if num_outputs == 1 else f"output {largest.output}"
        found = [leak for leak in leaks if leak.size > tolerance]
        raise AssertionError(
            f"{what} leaks: {name} at {largest.where} changes by {largest.size:.3g} "
            f"{largest.cause}; "
            f"{len(found)} of {len(leaks)} comparisons are off by more than {tolerance:g}."
        )
    return largest.size
