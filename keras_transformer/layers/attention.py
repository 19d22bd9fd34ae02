"""Scaled dot-product attention as pure functions: whole, in blocks, and for a decoding step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.arguments import (
    AttentionMask,
    BeamPaths,
    BooleanMask,
    PaddingMask,
    Tensor,
)
from keras_transformer.layers.positions import read_length
from keras_transformer.masking import (
    boolean_mask,
    causal_mask,
    combine_masks,
    local_mask,
    mark_visible,
)

# Finite, so that the softmax of a query without any allowed key is not NaN before it becomes 0.
MASKED_SCORE = -1e30
SMALLEST_CAPACITY = 32  # positions that a decoding step reads at least
# Blocks of a local window have at least this length: shorter blocks make too many small products.
SMALLEST_BLOCK = 64


class Masks(NamedTuple):
    """What one call of an attention layer may attend to; None allows everything."""

    query_mask: PaddingMask | None = None  # (batch, query)
    key_mask: PaddingMask | None = None  # (batch, key)
    attention_mask: AttentionMask | None = None  # (batch, heads or 1, query, key)
    causal: bool = False  # whether a query sees no key after it
    window: int | None = None  # how far a query sees on either side

    def depend_on_query(self) -> bool:
        """Whether a key may be allowed for some queries only."""
        return self.attention_mask is not None or self.causal or self.window is not None

    def of_scores(self, query_length: Any, key_length: Any) -> AttentionMask | None:
        """All masks in one that broadcasts to (batch, heads, query, key), or None."""
        causal, near = None, None
        if self.causal:
            causal = causal_mask(query_length, key_length)[:, None]  # -> (1, 1, query, key)
        if self.window is not None:
            near = local_mask(query_length, self.window, key_length)[:, None]
        return combine_masks(
            self.attention_mask,
            causal,
            near,
            None if self.key_mask is None else ops.expand_dims(self.key_mask, (1, 2)),
            None if self.query_mask is None else ops.expand_dims(self.query_mask, (1, 3)),
        )


def per_head(attention_mask: AttentionMask) -> AttentionMask:
    """Gives an attention mask (batch, query, key) an axis for heads, and refuses other ranks."""
    mask = boolean_mask("attention_mask", attention_mask)
    if len(mask.shape) == 4:
        return mask
    if len(mask.shape) == 3:
        return mask[:, None]
    raise ValueError(
        "`attention_mask` must have shape (batch, query, key) or (batch, heads, query, key); "
        "a padding mask (batch, key) becomes one with mask[:, None, :]. "
        f"Received: attention_mask of shape {tuple(mask.shape)}"
    )


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: AttentionMask | None = None,
    *,
    bias: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
    finite: BooleanMask | None = None,
    flash_attention: bool | None = None,
) -> Tensor:
    """softmax(query key^T / sqrt(key_dim) + bias) value for each head, softmax in float32.

    Args:
        query: (batch, query, heads, key_dim). key: (batch, key, heads, key_dim).
        value: (batch, key, heads, value_dim).
        mask: boolean, broadcastable to (batch, heads, query, key), or None.
        bias: float32, broadcastable to (batch, heads, query, key), or None.
        dropout: a function applied to the weights, or None.
        finite: boolean (batch, key), False where key or value held NaN or inf and became 0. A
            query that may attend there gives NaN; other queries do not change. Needs a mask.
        flash_attention: as in `keras.ops.dot_product_attention`.

    Returns:
        The context (batch, query, heads, value_dim), exactly 0 for a query without any allowed
        key. Without bias and dropout, `keras.ops.dot_product_attention` computes it.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
    """
    if bias is not None or dropout is not None or not _fused_reads(key, value):
        context, _ = attention_with_weights(
            query, key, value, mask, bias=bias, dropout=dropout, finite=finite
        )
        return context
    context = ops.dot_product_attention(
        query * (query.shape[-1] ** -0.5),  # before the product, which can overflow in float16
        key,
        value,
        mask=mask,
        scale=1.0,
        flash_attention=flash_attention,
    )
    return _settle(context, mask, finite)


def attention_with_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: AttentionMask | None = None,
    *,
    bias: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
    finite: BooleanMask | None = None,
) -> tuple[Tensor, Tensor]:
    """As `scaled_dot_product_attention`, and the weights before dropout, float32.

    The weights are (batch, heads, query, key), exactly 0 for a query without any allowed key.
    """
    query = query * (query.shape[-1] ** -0.5)
    scores = ops.cast(ops.einsum("bqhd,bkhd->bhqk", query, key), "float32")
    if bias is not None:
        scores = scores + bias
    weights = masked_softmax(scores, mask)
    dropped = weights if dropout is None else dropout(weights)
    context = ops.einsum("bhqk,bkhd->bqhd", ops.cast(dropped, value.dtype), value)
    if mask is not None:
        weights = ops.where(ops.any(mask, axis=-1, keepdims=True), weights, 0.0)
    return _settle(context, mask, finite), weights


def masked_softmax(scores: Tensor, mask: BooleanMask | None) -> Tensor:
    """The softmax of float32 scores (..., key) over the keys that `mask` allows.

    The weight of any other key is 0, but for a query without an allowed key: the caller clears it.
    """
    if mask is not None:
        scores = ops.where(mask, scores, MASKED_SCORE)
    # `ops.softmax` warns about a single key, which a sentence of one token has.
    single = scores.shape[-1] == 1
    return ops.exp(ops.log_softmax(scores)) if single else ops.softmax(scores)


def cached_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: AttentionMask,
    bias: Tensor | None = None,
    *,
    cache_length: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention of one decoding step to cached keys and values, and its weights.

    Args:
        query: (batch, query, heads, key_dim).
        keys: (batch, key and value heads, slots, key_dim). values: the same with value_dim. The
            heads come first, so that the products read contiguous memory.
        mask: boolean, broadcastable to (batch, 1, query, slots).
        bias: float32 (1, heads, 1, slots), or None.
        cache_length: integer tensor, how many positions of the cache hold something, each with as
            many slots as there are queries. The others are not read. None where all do.

    Returns:
        The context (batch, query, heads, value_dim), 0 for a query without any allowed key, and
        the float32 weights (batch, heads, query, slots), or None with `cache_length`.
    """
    if cache_length is not None:
        context = attention_by_capacity(query, keys, values, mask, bias, cache_length=cache_length)
        return context, None
    batch, queries, heads, key_dim = ops.shape(query)
    shared, slots = keys.shape[1], ops.shape(keys)[2]
    groups = heads // shared  # heads of queries that read the same keys become more queries
    # -> (batch, heads, query, key_dim)
    query = ops.transpose(query * (key_dim**-0.5), (0, 2, 1, 3))
    # -> (batch, key and value heads, groups * query, key_dim)
    query = ops.reshape(query, (batch, shared, groups * queries, key_dim))
    scores = ops.cast(ops.einsum("bhqd,bhkd->bhqk", query, keys), "float32")
    scores = ops.reshape(scores, (batch, heads, queries, slots))  # -> (batch, heads, query, slots)
    if bias is not None:
        scores = scores + bias
    weights = ops.exp(ops.log_softmax(ops.where(mask, scores, MASKED_SCORE)))
    weights = ops.where(ops.any(mask, axis=-1, keepdims=True), weights, 0.0)
    # -> (batch, key and value heads, groups * query, slots)
    shaped = ops.reshape(weights, (batch, shared, groups * queries, slots))
    context = ops.einsum("bhqk,bhkd->bhqd", ops.cast(shaped, values.dtype), values)
    # -> (batch, heads, query, value_dim) -> (batch, query, heads, value_dim)
    context = ops.reshape(context, (batch, heads, queries, values.shape[-1]))
    return ops.transpose(context, (0, 2, 1, 3)), weights


def attention_by_capacity(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: AttentionMask,
    bias: Tensor | None,
    *,
    cache_length: Tensor,
) -> Tensor:
    """The context of `cached_attention` alone, from the first 32, 128, 512, ... positions.

    It reads the smallest of these capacities that holds `cache_length` positions. So a step of a
    search that may become long takes no more time than that of a short one.
    """
    beams, slots = query.shape[1], keys.shape[2]
    capacities = [] if slots is None else list_capacities(slots // beams)
    if len(capacities) < 2:
        return cached_attention(query, keys, values, mask, bias)[0]

    def read(capacity: int, *larger: int) -> Tensor:
        if larger:
            return ops.cond(cache_length <= capacity, lambda: read(capacity), lambda: read(*larger))
        first = (..., slice(capacity * beams))  # along the last axis
        part = keys[:, :, : capacity * beams], values[:, :, : capacity * beams], mask[first]
        return cached_attention(query, *part, None if bias is None else bias[first])[0]

    return read(*capacities)


def list_capacities(positions: int) -> list[int]:
    """32, 128, 512, ... below `positions`, and `positions`."""
    capacities = [SMALLEST_CAPACITY]
    while capacities[-1] < positions:
        capacities.append(capacities[-1] * 4)
    return [*capacities[:-1], positions]


def visible_slots(
    index: Tensor, slots: Any, window: int | None = None, paths: BeamPaths | None = None
) -> AttentionMask:
    """Which slots the queries at `index` may read: (batch or 1, 1, beam, slots) boolean."""
    beams = 1 if paths is None else paths.shape[1]
    length = slots // beams
    visible = mark_visible(index - ops.arange(length), window, causal=True)
    if paths is None:
        return visible[None, None, None, :]
    own = paths[:, :, :length, None] == ops.arange(beams, dtype=paths.dtype)
    own = ops.logical_and(own, visible[:, None])
    # -> (batch, 1, beam, slots)
    return ops.reshape(own, (-1, 1, beams, slots))


def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    *,
    causal: bool = False,
    key_mask: PaddingMask | None = None,
    finite: BooleanMask | None = None,
    bias: Callable[[Any, Any], Tensor] | None = None,
    **options: Any,
) -> Tensor:
    """Attention of each position to those within `window`, in time and memory linear in length.

    Queries are cut into blocks. A block of queries meets its own block of keys and those on either
    side; with `causal` on the left only. These blocks hold every key within the window.

    Args:
        query, key, value: as in `scaled_dot_product_attention`, of one length.
        window: how far a position sees on either side.
        causal: whether it sees only to the left.
        key_mask: boolean (batch, length), or None.
        finite: boolean (batch, length), as in `scaled_dot_product_attention`, or None.
        bias: a function of query positions and key positions that gives a bias, or None.
        **options: `dropout` and `flash_attention`, as there.

    Returns:
        The context (batch, length, heads, value_dim).

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 4 (restricted attention).
    """
    batch, length = ops.shape(query)[:2]
    block = max(window, SMALLEST_BLOCK)
    num_blocks = -(-length // block)
    neighbours = 2 if causal else 3

    def query_blocks(tensor: Tensor) -> Tensor:
        padded = _pad(tensor, 0, num_blocks * block - length)
        # -> (batch * num_blocks, block, ...)
        return ops.reshape(padded, (batch * num_blocks, block, *tensor.shape[2:]))

    def key_blocks(tensor: Tensor) -> Tensor:
        right = num_blocks * block - length + (0 if causal else block)
        padded = _pad(tensor, block, right)
        parts = [padded[:, i * block : (i + num_blocks) * block] for i in range(neighbours)]
        shape = (batch, num_blocks, block, *tensor.shape[2:])
        # -> (batch, num_blocks, neighbours * block, ...)
        joined = ops.concatenate([ops.reshape(part, shape) for part in parts], axis=2)
        # -> (batch * num_blocks, neighbours * block, ...)
        return ops.reshape(joined, (batch * num_blocks, neighbours * block, *tensor.shape[2:]))

    query_positions = block + np.arange(block)
    key_positions = np.arange(neighbours * block)
    distance = query_positions[:, None] - key_positions[None, :]
    near = mark_visible(distance, window, causal=causal)
    if key_mask is None:
        key_mask = ops.ones(ops.shape(query)[:2], "bool")
    mask = combine_masks(
        ops.convert_to_tensor(near[None, None]), key_blocks(key_mask)[:, None, None, :]
    )
    context = scaled_dot_product_attention(
        query_blocks(query),
        key_blocks(key),
        key_blocks(value),
        mask,
        bias=None if bias is None else bias(query_positions, key_positions),
        # The mask hides the added padding in every block, so its False poisons nothing.
        finite=None if finite is None else key_blocks(finite),
        **options,
    )
    # -> (batch, num_blocks * block, heads, value_dim)
    context = ops.reshape(context, (batch, num_blocks * block, *context.shape[2:]))
    return context[:, :length]


def any_within(flags: BooleanMask, left: int, right: int) -> BooleanMask:
    """Whether any of `flags` (batch, length) is True up to `left` before and `right` after."""
    counts = ops.cumsum(ops.cast(flags, "int32"), axis=1)
    length = read_length(flags)
    upto = ops.pad(counts, [(0, 0), (left + 1, 0)])[:, :length]
    last = ops.concatenate([counts, ops.repeat(counts[:, -1:], right, axis=1)], axis=1)
    return last[:, right : right + length] > upto


def _fused_reads(key: Tensor, value: Tensor) -> bool:
    """Whether the backend's fused attention takes these keys and values."""
    if keras.backend.backend() != "jax":
        return True
    if key.shape[-1] != value.shape[-1]:
        return False
    # JAX asks for a float16 product that sums in float32, which a CPU does not have.
    is_float16 = keras.backend.standardize_dtype(key.dtype) == "float16"
    return not is_float16 or any("cpu" not in name for name in keras.distribution.list_devices())


def _settle(context: Tensor, mask: AttentionMask | None, finite: BooleanMask | None) -> Tensor:
    """Sets queries with nothing to attend to to 0, and those that met NaN or inf to NaN."""
    if mask is None:
        return context
    if finite is not None:
        # -> (batch, heads or 1, query or 1)
        poisoned = ops.any(
            ops.logical_and(mask, ops.expand_dims(ops.logical_not(finite), (1, 2))), axis=-1
        )
        context = ops.where(_by_query(poisoned), float("nan"), context)
    return ops.where(_by_query(ops.any(mask, axis=-1)), context, 0)


def _by_query(flags: BooleanMask) -> Tensor:
    """Flags (batch, heads, query) as (batch, query, heads, 1)."""
    return ops.expand_dims(ops.transpose(flags, (0, 2, 1)), -1)


def _pad(tensor: Tensor, left: int, right: int) -> Tensor:
    """Pads (batch, length, ...) along length with zeros, or False."""
    widths = [(0, 0), (left, right)] + [(0, 0)] * (len(tensor.shape) - 2)
    return ops.pad(tensor, widths)
