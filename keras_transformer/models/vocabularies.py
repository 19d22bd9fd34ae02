"""Checks of the vocabularies of a model: their sizes, their special ids, and ids of them."""

from typing import Any

import numpy as np

from keras_transformer import arguments
from keras_transformer.arguments import Ids
from keras_transformer.decoding.call_arguments import is_read
from keras_transformer.integer_ids import integer_ids


def checked_vocabularies(
    vocab_size: int | None, source_vocab_size: int | None, target_vocab_size: int | None
) -> list[Any]:
    """Returns the sizes of one joint vocabulary or two separate ones, or raises `ValueError`.

    Each is an integer, or None for one that is not given.
    """
    joint = vocab_size is not None
    separate = (source_vocab_size is not None, target_vocab_size is not None)
    if (joint and any(separate)) or (not joint and not all(separate)):
        raise ValueError(
            "give either `vocab_size`, or both `source_vocab_size` and `target_vocab_size`. "
            f"Received: vocab_size={vocab_size!r}, source_vocab_size={source_vocab_size!r}, "
            f"target_vocab_size={target_vocab_size!r}"
        )
    sizes = {"vocab_size": vocab_size, "source_vocab_size": source_vocab_size}
    sizes["target_vocab_size"] = target_vocab_size
    return [
        arguments.optional(arguments.positive_integer, name, size) for name, size in sizes.items()
    ]


def check_special_ids(
    pad_id: int, bos_id: int, eos_id: int, vocab_size: int, bos_may_be_pad: bool = False
) -> None:
    """Raises `ValueError` unless the special ids are ids of the vocabulary, and `pad_id` its own.

    `bos_id` may be `eos_id`, as in M2M100. A model that never takes the first token of a target for
    padding admits `pad_id` too, as in Marian.
    """
    others = {eos_id} if bos_may_be_pad else {bos_id, eos_id}
    if pad_id in others or max(pad_id, bos_id, eos_id) >= vocab_size:
        names = "`eos_id`" if bos_may_be_pad else "`bos_id` and `eos_id`"
        raise ValueError(
            "`pad_id`, `bos_id` and `eos_id` must be ids of the vocabulary, and `pad_id` another "
            f"than {names}. Received: pad_id={pad_id}, bos_id={bos_id}, eos_id={eos_id} and "
            f"a vocabulary of {vocab_size}"
        )


def refuse_ids_outside(name: str, ids: Ids, vocab_size: int) -> None:
    """Raises `ValueError` for an id that is not in the vocabulary; does not read tensors.

    For such an id an embedding returns the row of another id, or NaN: that depends on the backend.
    """
    if not is_read(ids):
        return
    ids = np.asarray(ids)
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.size:
        raise ValueError(
            f"`{name}` must be ids of the vocabulary, from 0 to {vocab_size - 1}. "
            f"Received: {name} with {outside[0]}"
        )


def token_ids(
    name: str, ids: Ids, vocab_size: int, axes: tuple[str, ...] = ("batch", "length")
) -> Ids:
    """Returns `ids` as a tensor of these axes, or raises `ValueError` for other ids.

    Tensors are not read. An id outside of the vocabulary in a tensor means what the backend makes
    of it: another id, 0 or NaN.
    """
    tensor = integer_ids(name, ids)
    if len(tensor.shape) != len(axes):
        named = f"({axes[0]},)" if len(axes) == 1 else f"({', '.join(axes)})"
        raise ValueError(
            f"`{name}` must be {named}. Received: {name} of shape {tuple(tensor.shape)}"
        )
    refuse_ids_outside(name, ids, vocab_size)
    return tensor


def pair_of_ids(inputs: Any, vocab_sizes: tuple[int, int]) -> tuple[Ids, Ids]:
    """Returns (source_ids, target_ids), or raises `ValueError` for other inputs."""
    if not isinstance(inputs, (list, tuple)) or len(inputs) != 2:
        raise ValueError(
            "`inputs` must be the pair (source_ids, target_ids). "
            f"Received: inputs={_described(inputs)}"
        )
    sides = zip(("source_ids", "target_ids"), inputs, vocab_sizes, strict=True)
    return tuple(integer_ids(*side) for side in sides)


def _described(inputs: Any) -> str:
    if isinstance(inputs, dict):
        return f"a dict with the keys {list(inputs)}"
    if isinstance(inputs, (list, tuple)):
        return f"a {type(inputs).__name__} of {len(inputs)}"
    shape = getattr(inputs, "shape", None)
    shape = shape if shape is None else tuple(shape)
    return f"one {type(inputs).__name__} of shape {shape}"
