"""Attention over chosen axes of inputs with more than one: merges them into one, and back."""

import math
from typing import Any

from keras import ops

from keras_transformer.arguments import AttentionMask, Shape, Tensor
from keras_transformer.layers.attention import Masks
from keras_transformer.masking import boolean_mask


class AttentionAxes:
    """Turns (batch, *axes, width) into (rows, length, width) and back.

    The attention axes become one length, the other axes join the batch.

    Args:
        attention_axes: the axes attended over, counted with the batch as 0 and, when negative,
            from behind the width; None for all but batch and width.
        rank: of the inputs.
    """

    def __init__(self, attention_axes: Any, rank: int) -> None:
        inner = range(1, rank - 1)
        axes = tuple(inner) if attention_axes is None else tuple(attention_axes)
        self.axes = tuple(axis % rank if axis < 0 else axis for axis in axes)
        if not self.axes or len(set(self.axes)) < len(self.axes) or set(self.axes) - set(inner):
            raise ValueError(
                "`attention_axes` must be different axes between batch and width. "
                f"Received: attention_axes={attention_axes} and inputs of rank {rank}"
            )
        self.free = tuple(axis for axis in inner if axis not in self.axes)

    def merge(self, tensor: Tensor) -> Tensor:
        """Returns (rows, length, ...) of (batch, *axes, ...)."""
        shape = ops.shape(tensor)
        rest = tuple(range(len(self.axes) + len(self.free) + 1, len(shape)))
        # -> (batch, *free, *axes, ...)
        moved = ops.transpose(tensor, (0, *self.free, *self.axes, *rest))
        length = math.prod(shape[axis] for axis in self.axes)
        # -> (batch * free, length, ...)
        return ops.reshape(moved, (-1, length, *(shape[axis] for axis in rest)))

    def split(self, merged: Tensor, like: Tensor) -> Tensor:
        """Returns merged (rows, length, ...) with the axes of `like`."""
        shape = ops.shape(like)
        rest = ops.shape(merged)[2:]
        order = (0, *self.free, *self.axes)
        # -> (batch, *free, *axes, ...)
        moved = ops.reshape(merged, (*(shape[axis] for axis in order), *rest))
        back = [order.index(axis) for axis in range(len(order))]
        rest_axes = range(len(order), len(order) + len(rest))
        # -> the order of `like`
        return ops.transpose(moved, (*back, *rest_axes))

    def merge_shape(self, shape: Shape) -> Shape:
        """`merge` of a shape, with None where a size is not known."""
        sizes = [shape[axis] for axis in self.axes]
        return (None, None if None in sizes else math.prod(sizes), shape[-1])

    def merge_masks(self, masks: Masks, query: Tensor, value: Tensor) -> Masks:
        """Returns the masks of a call on merged queries and values."""
        query_mask, key_mask, attention_mask, *_ = masks
        if attention_mask is not None:
            attention_mask = boolean_mask("attention_mask", attention_mask)
            attention_mask = self.merge_mask(attention_mask, query, value)
        return masks._replace(
            query_mask=None if query_mask is None else self.merge(query_mask),
            key_mask=None if key_mask is None else self.merge(key_mask),
            attention_mask=attention_mask,
        )

    def merge_mask(self, mask: AttentionMask, query: Tensor, key: Tensor) -> AttentionMask:
        """Returns an attention mask (batch, *free, [heads,] *query axes, *key axes) merged."""
        full_rank = 2 + len(self.free) + 2 * len(self.axes)
        if len(mask.shape) == full_rank - 1:
            mask = ops.expand_dims(mask, 1 + len(self.free))
        if len(mask.shape) != full_rank:
            raise ValueError(
                "`attention_mask` must have the axes (batch, *other axes, *query axes, *key "
                "axes), or also heads before the query axes. Its rank must be "
                f"{full_rank - 1} or {full_rank}. Received: attention_mask of shape "
                f"{tuple(mask.shape)}"
            )
        query_sizes, key_sizes = ops.shape(query), ops.shape(key)
        rows = [query_sizes[0], *(query_sizes[axis] for axis in self.free)]
        queries = [query_sizes[axis] for axis in self.axes]
        keys = [key_sizes[axis] for axis in self.axes]
        heads = mask.shape[1 + len(self.free)]
        mask = ops.broadcast_to(mask, (*rows, heads, *queries, *keys))
        # -> (batch * free, heads, query, key)
        return ops.reshape(mask, (-1, heads, math.prod(queries), math.prod(keys)))

    def split_weights(self, weights: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """Returns weights (rows, heads, query, key) as Keras shapes them.

        They are (batch, *free, heads, *query axes, *key axes).
        """
        # -> (batch, *free, heads, *query axes, *key axes)
        return ops.reshape(
            weights, self.weights_shape(weights.shape[1], ops.shape(query), ops.shape(key))
        )

    def weights_shape(self, num_heads: int, query_shape: Shape, key_shape: Shape) -> Shape:
        """The shape of `split_weights`."""
        rows = (query_shape[0], *(query_shape[axis] for axis in self.free))
        queries = (query_shape[axis] for axis in self.axes)
        keys = (key_shape[axis] for axis in self.axes)
        return (*rows, num_heads, *queries, *keys)


def check_lengths(value_shape: Shape, key_shape: Shape) -> None:
    """Raises `ValueError` when value and key differ in more than their widths."""
    if tuple(value_shape[1:-1]) != tuple(key_shape[1:-1]):
        raise ValueError(
            "the axes of `value` and `key` between batch and width must be equal. "
            f"Received: value of shape {tuple(value_shape)}, key of shape {tuple(key_shape)}"
        )
