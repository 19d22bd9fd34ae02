"""Boolean attention masks, True where a query may attend: made, combined, read and attached."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import (
    AttentionMask,
    BooleanMask,
    Ids,
    Length,
    PaddingMask,
    PreviousMask,
    Shape,
    Tensor,
)
from keras_transformer.integer_ids import dtype_name, integer_ids

__all__ = [
    "causal_mask",
    "combine_masks",
    "local_mask",
    "padding_mask",
    "prefix_mask",
    "segment_mask",
    "segment_positions",
]


def padding_mask(ids: Ids, pad_id: int = 0) -> PaddingMask:
    """Marks the real tokens of a batch of ids.

    `mask[b, k] = (ids[b, k] != pad_id)`

    Args:
        ids: integer tensor (batch, length). Floats that are whole numbers count as integers, here
            and wherever this package takes ids.
        pad_id: the id that fills rows up to the common length.

    Returns:
        Boolean tensor (batch, length), True at real tokens.

    Raises:
        ValueError: when `ids` are neither integers nor whole floats.

    Example:

    >>> import numpy as np
    >>> np.asarray(padding_mask(np.array([[7, 5, 0]]))).tolist()
    [[True, True, False]]
    """
    ids = integer_ids("ids", ids)
    return ops.not_equal(ids, pad_id)


def causal_mask(length: Length, key_length: Length | None = None) -> AttentionMask:
    """Lets each position attend to itself and to what is before it.

    `mask[0, q, k] = (k <= q)`

    Args:
        length: number of queries, an integer or an integer tensor.
        key_length: number of keys; `length` when None. Query 0 and key 0 are the same position.

    Returns:
        Boolean tensor (1, length, key_length).

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3.

    Example:

    >>> import numpy as np
    >>> np.asarray(causal_mask(3)).astype(int)[0].tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return mark_visible(_distances(length, key_length), None, causal=True)


def local_mask(length: Length, window: int, key_length: Length | None = None) -> AttentionMask:
    """Lets each position attend to the `window` positions on either side of it, and to itself.

    `mask[0, q, k] = (|q - k| <= window)`

    Args:
        length: number of queries, an integer or an integer tensor.
        window: an integer of at least 0.
        key_length: number of keys; `length` when None. Query 0 and key 0 are the same position.

    Returns:
        Boolean tensor (1, length, key_length).

    Raises:
        ValueError: when `window` is not an integer of at least 0.

    Reference: Vaswani et al. 2017, section 4 (restricted self-attention).

    Example:

    >>> import numpy as np
    >>> np.asarray(local_mask(4, window=1)).astype(int)[0].tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    window = arguments.non_negative_integer("window", window)
    return mark_visible(_distances(length, key_length), window, causal=False)


def _distances(length: Length, key_length: Length | None) -> Tensor:
    """How many positions before each query each key is, (1, query, key)."""
    queries = ops.arange(length)
    keys = queries if key_length is None else ops.arange(key_length)
    return ops.expand_dims(queries[:, None] - keys[None, :], 0)


def mark_visible(distance: Any, window: int | None, *, causal: bool) -> BooleanMask:
    """Whether a query sees the key that is `distance` positions before it.

    `distance` is a NumPy array or a tensor, negative where the key comes after the query. Only a
    causal query may have no window.
    """
    visible = distance >= (0 if causal or window is None else -window)
    return visible if window is None else visible & (distance <= window)


def prefix_mask(prefix_lengths: Tensor, length: Length) -> AttentionMask:
    """Lets positions see their whole prefix, and after it only what is before them.

    `mask[b, q, k] = (k <= q) or (k < prefix_lengths[b])`

    For models that read an input and write its continuation in one row.

    Args:
        prefix_lengths: integer tensor (batch,), the length of the prefix of each row.
        length: number of positions, an integer or an integer tensor.

    Returns:
        Boolean tensor (batch, length, length).

    Raises:
        ValueError: when the lengths are neither integers nor whole floats.

    Reference: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
    Text-to-Text Transformer", section 3.2.1 (causal with prefix).

    Example:

    >>> import numpy as np
    >>> np.asarray(prefix_mask(np.array([2]), 3)).astype(int)[0].tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    prefix_lengths = integer_ids("prefix_lengths", prefix_lengths)
    in_prefix = ops.arange(length, dtype=dtype_name(prefix_lengths)) < prefix_lengths[:, None]
    return ops.logical_or(causal_mask(length), in_prefix[:, None, :])


def segment_mask(query_segments: Ids, key_segments: Ids | None = None) -> AttentionMask:
    """Keeps the sentences of a packed row blind to each other.

    `mask[b, q, k] = (query_segments[b, q] == key_segments[b, k])`

    Args:
        query_segments: integer tensor (batch, query), the number of the sentence of each position.
        key_segments: integer tensor (batch, key); `query_segments` when not given.

    Returns:
        Boolean tensor (batch, query, key).

    Raises:
        ValueError: when the segments are not integers.

    Example:

    >>> import numpy as np
    >>> np.asarray(segment_mask(np.array([[1, 1, 2]]))).astype(int)[0].tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    query_segments = integer_ids("query_segments", query_segments)
    if key_segments is None:
        key_segments = query_segments
    key_segments = integer_ids("key_segments", key_segments)
    return ops.equal(query_segments[:, :, None], key_segments[:, None, :])


def segment_positions(segments: Ids) -> Tensor:
    """Counts positions anew in each sentence of a packed row.

    `positions[b, i] = i - (index of the first position of the run that i is in)`

    The result is the `positions` of `PositionalEncoding` and `LearnedPositionalEncoding`.

    Args:
        segments: integer tensor (batch, length), the number of the sentence of each position;
            a sentence is a run of equal numbers.

    Returns:
        int32 tensor (batch, length).

    Raises:
        ValueError: when the segments are not integers.

    Example:

    >>> import numpy as np
    >>> np.asarray(segment_positions(np.array([[1, 1, 1, 2, 2]])))[0].tolist()
    [0, 1, 2, 0, 1]
    """
    segments = integer_ids("segments", segments)
    begins = ops.not_equal(segments[:, 1:], segments[:, :-1])
    begins = ops.pad(begins, [(0, 0), (1, 0)])
    index = ops.cumsum(ops.ones_like(segments, dtype="int32"), axis=1) - 1
    first_of_run = ops.where(begins, index, 0)
    first = ops.associative_scan(ops.maximum, first_of_run, axis=1)
    return ops.cast(index - first, "int32")  # on PyTorch the scan gives floats


def has_begun(mask: PaddingMask) -> BooleanMask:
    """True from the first True of each row of `mask` (batch, length) on."""
    return ops.cumsum(ops.cast(mask, "int32"), axis=1) > 0


def count_positions(mask: PaddingMask) -> Tensor:
    """Counts 0, 1, 2, ... from the first True of each row of `mask`; 0 before it.

    Args:
        mask: boolean (batch, length).

    Returns:
        int32 (batch, length).
    """
    return ops.maximum(ops.cumsum(ops.cast(has_begun(mask), "int32"), axis=1) - 1, 0)


def combine_masks(*masks: BooleanMask | None) -> BooleanMask | None:
    """Allows what every mask allows.

    `combined = masks[0] and masks[1] and ...`

    Axes of size 1 broadcast. Integers count as booleans: 0 is False. Masks of different ranks are
    refused. Aligned from the right, a (batch, key) mask beside a (batch, query, key) mask would
    have its batch read as query.

    Args:
        *masks: boolean or integer tensors of one rank, or None, which is skipped.

    Returns:
        Boolean tensor, or None when every mask is None.

    Raises:
        ValueError: when a mask holds floats or the ranks differ.

    Example:

    >>> import numpy as np
    >>> padding = padding_mask(np.array([[7, 5, 0]]))
    >>> combined = combine_masks(causal_mask(3), padding[:, None, :], None)
    >>> np.asarray(combined).astype(int)[0].tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    """
    combined: BooleanMask | None = None
    seen: list[BooleanMask] = []
    for mask in masks:
        if mask is None or any(mask is other for other in seen):
            continue
        seen.append(mask)
        mask = boolean_mask("mask", mask)
        if combined is None:
            combined = mask
        elif len(mask.shape) != len(combined.shape):
            raise ValueError(
                "masks must have the same rank; give a (batch, key) mask a query axis with "
                f"mask[:, None, :]. Received: shapes {tuple(combined.shape)} and "
                f"{tuple(mask.shape)}"
            )
        else:
            combined = ops.logical_and(combined, mask)
    return combined


def boolean_mask(name: str, mask: BooleanMask) -> BooleanMask:
    """Returns `mask` as a boolean tensor, or raises `ValueError` when it holds floats.

    Integers count as booleans, as in Keras. Floats may be an additive mask, which means the
    opposite.
    """
    mask = ops.convert_to_tensor(mask)
    dtype = dtype_name(mask)
    if "int" in dtype:
        return ops.not_equal(mask, 0)
    if dtype != "bool":
        raise ValueError(
            f"`{name}` must be boolean or integers, True where a query may attend. An additive "
            f"mask of 0 and large negative numbers becomes one with `mask == 0`, a 0/1 mask with "
            f"`mask != 0`. Received: {name} of dtype {dtype}"
        )
    return mask


def zero_masked(values: Tensor, mask: PaddingMask | None) -> Tensor:
    """Replaces what is masked by 0, NaN too: values (batch, length, ...), mask (batch, length).

    A select, not a product: 0 times NaN is NaN, forward and in gradients.
    """
    if mask is None:
        return values
    mask = boolean_mask("mask", mask)
    if len(mask.shape) != 2:
        raise ValueError(
            "a padding mask must have shape (batch, length); a mask for pairs of positions is an "
            f"`attention_mask`. Received: a mask of shape {tuple(mask.shape)}"
        )
    lengths = mask.shape[1], values.shape[1]
    if all(isinstance(length, int) for length in lengths) and lengths[0] not in (1, lengths[1]):
        raise ValueError(
            "a padding mask must have the length of what it masks, (batch, length). Received: a "
            f"mask of length {lengths[0]} for a length of {lengths[1]}"
        )
    for _ in range(len(values.shape) - len(mask.shape)):
        mask = ops.expand_dims(mask, -1)
    return ops.where(mask, values, ops.zeros((), dtype_name(values)))


def one_mask(
    values: Tensor | None, *masks: PaddingMask | None
) -> tuple[Tensor | None, PaddingMask | None]:
    """Returns `values` with 0 where any of the masks is False, and the masks combined.

    `values` are (batch, length, ...), and their implicit mask is one of `masks`. The tensor that is
    returned has no implicit mask: layers read the returned one. None stays None.
    """
    mask = combine_masks(*masks)
    return (None if values is None else zero_masked(values, mask)), mask


class BlockMasks(NamedTuple):
    """The masks of one call of a layer or a stack; None allows everything.

    The padding masks have Keras's implicit ones in them. An encoder has no memory.
    """

    padding_mask: PaddingMask | None  # (batch, length)
    attention_mask: AttentionMask | None  # (batch, query, key)
    memory_padding_mask: PaddingMask | None = None  # (batch, source)
    memory_attention_mask: AttentionMask | None = None  # (batch, target, source)


class AttachMask(keras.layers.Layer):
    """Returns its input with `mask` as its implicit Keras mask.

    Keras gives the output of a layer the mask that the layer is called with. So a call of this
    identity with an explicit mask is the public way to attach a mask.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True  # there is nothing to build

    def call(self, inputs: Tensor, mask: BooleanMask | None = None) -> Tensor:
        """Returns `inputs`."""
        return inputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the input's shape."""
        return input_shape


class ReadMask(keras.layers.Layer):
    """Returns the implicit Keras mask of its input: a tuple of one mask, or an empty one.

    Keras fills in the `mask` argument of a layer, unless the call has an explicit mask.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True  # there is nothing to build

    def call(self, inputs: Tensor, mask: BooleanMask | None = None) -> tuple[BooleanMask, ...]:
        """Returns the mask that Keras filled in, if any."""
        return () if mask is None else (mask,)

    def compute_mask(self, inputs: Tensor, previous_mask: PreviousMask | None = None) -> None:
        """Returns None: a mask has no mask."""
        return None
