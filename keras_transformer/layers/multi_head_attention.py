"""Multi-head attention: a drop-in for Keras's layer that never loses a mask."""

import keras
from keras import ops

from keras_transformer.layers.attention_arguments import per_head
from keras_transformer.layers.attention_projections import AttentionProjections
from keras_transformer.layers.scaled_dot_product import (
    attention_with_weights,
    cached_attention,
    local_attention,
    scaled_dot_product_attention,
)
from keras_transformer.layers.sequences import (
    all_finite,
    any_within,
    cast_alike,
    length_of,
    same_length,
)
from keras_transformer.layers.step_product import step_product
from keras_transformer.layers.waves import position_range
from keras_transformer.masking import (
    boolean_mask,
    causal_mask,
    combine_masks,
    local_mask,
    zero_masked,
)


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(AttentionProjections):
    """Lets each query gather values by the likeness of their keys, in several projections at once.

    `head_i = softmax(Q_i K_i^T / sqrt(key_dim) + bias_i) V_i`,
    `output = concat(head_1, ...) W_O`, with `Q_i = query W_Q_i`, `K_i = key W_K_i`,
    `V_i = value W_V_i`

    Called and constructed like `keras.layers.MultiHeadAttention`, with the same weights in the
    same order; docs/attention.md lists where the two differ.

    Args:
        num_heads: number of heads.
        key_dim: width of a head's queries and keys.
        value_dim: width of a head's values; `key_dim` when None.
        dropout: rate of the dropout on the attention weights.
        use_bias: whether the projections have biases.
        output_shape: width of the output, or a tuple for an output with more axes; the width of
            the query when None. `output_dim` is another name for a width.
        attention_axes: axes attended over; None for all but batch and width.
        sliding_window: Keras's way to say `window + 1`.
        flash_attention: None lets the backend choose its fused kernel, True asks for it.
        kernel_initializer, bias_initializer, kernel_regularizer: of each projection.
        bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint: the same.
        use_gate: multiply the heads by `sigmoid(query W_G)` before the output projection.
        seed: of the dropout.
        output_dim: width of the output.
        num_key_value_heads: number of heads of keys and values, a divisor of `num_heads`: each
            serves `num_heads / num_key_value_heads` heads of queries; `num_heads` when None.
        window: how far a query sees on either side; None for no limit. Self-attention over
            long rows is then computed in blocks, in time and memory linear in their length.
        position: a `RotaryPositionalEncoding`, `RelativePositionBias` or `ALiBi`, or None.

    Shapes:
        query: (batch, query, width). value, key: (batch, key, width); key is value when None.
        query_mask: (batch, query), value_mask and key_mask: (batch, key), attention_mask:
        (batch, query, key) or (batch, heads, query, key). Output: (batch, query, output_shape).
        With more axes between batch and width, `attention_axes` are attended over.

    Returns:
        The output; with `return_attention_scores=True` the pair of the output and the float32
        attention weights (batch, heads, query, key), before dropout.

    Raises:
        ValueError: for a bad argument, a mask of floats, or a mask of the wrong rank.

    Masking: all masks, Keras's implicit ones included, are combined; True may attend. A query
    with nothing to attend to, or masked itself, gives exactly 0. NaN or inf at a masked position
    reaches no output. The output carries the query's mask, and the caller's tensors keep theirs.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.2; Shazeer 2019, "Fast
    Transformer Decoding", and Ainslie et al. 2023, "GQA" (key and value heads); Qiu et al. 2025,
    "Gated Attention for Large Language Models" (gate).

    Example:

    >>> import numpy as np
    >>> query, memory = np.zeros((2, 3, 8)), np.zeros((2, 5, 8))
    >>> attention = MultiHeadAttention(num_heads=2, key_dim=4)
    >>> output, weights = attention(query, memory, return_attention_scores=True)
    >>> tuple(output.shape), tuple(weights.shape)
    ((2, 3, 8), (2, 2, 3, 5))
    """

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
    ):
        """Returns the attention output, and the weights if asked."""
        if return_attention_scores and self.flash_attention:
            raise ValueError(
                "`return_attention_scores` must be False with `flash_attention=True`, which never "
                "has the weights. Received: return_attention_scores=True"
            )
        key = value if key is None else key
        query_mask = combine_masks(query_mask, *self.read_mask(query))
        memory_mask = combine_masks(
            value_mask, key_mask, *self.read_mask(value), *self.read_mask(key)
        )
        query, value, key = cast_alike(self.compute_dtype, query, value, key)
        whole_query, whole_value = query, value
        rows = [query_mask, memory_mask]
        if self.axes is not None:
            if attention_mask is not None:
                attention_mask = boolean_mask("attention_mask", attention_mask)
                attention_mask = self.axes.merge_mask(attention_mask, query, value)
            query, value, key = map(self.axes.merge, (query, value, key))
            rows = [None if mask is None else self.axes.merge(mask) for mask in rows]
        elif attention_mask is not None:
            attention_mask = per_head(attention_mask)
        output, weights = self._attend_rows(
            query, value, key, *rows, attention_mask, return_attention_scores, training,
            use_causal_mask,
        )  # fmt: skip
        if self.axes is not None:
            output = self.axes.split(output, whole_query)
            if weights is not None:
                weights = self.axes.split_weights(weights, whole_query, whole_value)
        output = self.attach_mask(output, mask=query_mask)
        return (output, weights) if return_attention_scores else output

    def _attend_rows(
        self,
        query,
        value,
        key,
        query_mask,
        memory_mask,
        attention_mask,
        return_attention_scores,
        training,
        causal,
    ):
        """`call` on (batch, length, width), with its masks apart."""
        in_blocks = (
            self.window is not None
            and attention_mask is None
            and not return_attention_scores
            and same_length(query, value)
        )
        pairs_masked = attention_mask is not None or causal or self.window is not None
        query = zero_masked(query, query_mask)
        memory = [value] if key is value else [value, key]
        memory = [zero_masked(part, memory_mask) for part in memory]
        finite = None
        if pairs_masked:
            # A key may be masked for some queries only, and 0 times NaN is NaN.
            finite = combine_masks(*map(all_finite, memory))
            memory = [zero_masked(part, finite) for part in memory]
        keys, values = self.project_key_value(*memory)
        if in_blocks:
            output = self.attend_in_blocks(
                query, keys, values, memory_mask, finite, causal, training
            )
            return zero_masked(output, query_mask), None
        key_length = length_of(value)
        if causal:
            causal_pairs = causal_mask(length_of(query), key_length)[:, None]
            attention_mask = combine_masks(attention_mask, causal_pairs)
        if self.window is not None:
            near = local_mask(length_of(query), self.window, key_length)[:, None]
            attention_mask = combine_masks(attention_mask, near)
        mask = combine_masks(
            attention_mask,
            None if memory_mask is None else ops.expand_dims(memory_mask, (1, 2)),
            None if query_mask is None else ops.expand_dims(query_mask, (1, 3)),
        )
        return self.attend(
            query,
            keys,
            values,
            mask,
            finite,
            causal=causal,
            training=training,
            return_attention_scores=return_attention_scores,
        )

    def attend_cached(self, query, keys, values, mask, index=None):
        """Attends from one step of a search to cached keys and values; see `cached_attention`.

        The queries (batch, query, width) are all at position `index`, and each position has as
        many neighbouring slots as there are queries; without an `index` there are no positions.
        Returns the output (batch, query, width) and the weights.
        """
        queries = step_product(self.query_dense, query)
        bias = None
        if self.position is not None:
            here = ops.reshape(index, (1,))
            queries = self.position.rotate(queries, here)
            slots = position_range(keys.shape[2] or ops.shape(keys)[2]) // length_of(query)
            bias = self.position.bias(here, slots, True)
        context, weights = cached_attention(queries, keys, values, mask, bias)
        if self.use_gate:
            context = context * step_product(self.gate_dense, query)
        output = step_product(self.output_dense, context)
        if self.use_bias:
            attends = ops.any(mask, axis=(1, 3))  # -> (batch or 1, query or 1)
            output = zero_masked(output, ops.broadcast_to(attends, ops.shape(output)[:2]))
        return output, weights

    def attend(
        self,
        query,
        keys,
        values,
        mask=None,
        finite=None,
        causal=False,
        training=None,
        return_attention_scores=False,
    ):
        """Attends from `query` (batch, query, width) to projected keys and values.

        `mask` broadcasts to (batch, heads, query, key); `finite` is as in
        `scaled_dot_product_attention`. Queries and keys are at 0, 1, 2, ...; `causal` says that
        `mask` hides what is after a query. Returns the output, and the weights or None.
        """
        queries = self.query_dense(query)
        bias = None
        if self.position is not None:
            positions = position_range(length_of(query))
            queries = self.position.rotate(queries, positions)
            bias = self.position.bias(positions, position_range(length_of(keys)), causal)
        keys, values = self._for_query_heads(keys), self._for_query_heads(values)
        options = (mask, bias, self._weights_dropout(training), finite)
        if return_attention_scores:
            context, weights = attention_with_weights(queries, keys, values, *options)
        else:
            options = (*options, self.flash_attention)
            context = scaled_dot_product_attention(queries, keys, values, *options)
            weights = None
        output = self._project_output(context, query)
        if mask is not None and self.use_bias:
            attends = ops.any(mask, axis=(1, 3))  # -> (batch or 1, query or 1)
            output = zero_masked(output, ops.broadcast_to(attends, ops.shape(output)[:2]))
        return output, weights

    def attend_in_blocks(
        self, query, keys, values, memory_mask=None, finite=None, causal=False, training=None
    ):
        """As `attend`, for self-attention within `window`, with a `memory_mask` (batch, key)."""
        bias, queries = None, self.query_dense(query)
        if self.position is not None:
            queries = self.position.rotate(queries, position_range(length_of(query)))
            bias = lambda *positions: self.position.bias(*positions, causal)  # noqa: E731
        context = local_attention(
            queries,
            self._for_query_heads(keys),
            self._for_query_heads(values),
            self.window,
            causal,
            memory_mask,
            finite,
            bias,
            dropout=self._weights_dropout(training),
            flash_attention=self.flash_attention,
        )
        output = self._project_output(context, query)
        if memory_mask is not None and self.use_bias:
            reach = (self.window, 0 if causal else self.window)
            output = zero_masked(output, any_within(memory_mask, *reach))
        return output

    def _for_query_heads(self, heads):
        """Repeats the heads of keys or values for the heads of queries that share them."""
        repeats = self.num_heads // self.num_key_value_heads
        return heads if repeats == 1 else ops.repeat(heads, repeats, axis=2)

    def _weights_dropout(self, training):
        if not self.dropout or not training:
            return None
        return lambda weights: self.dropout_layer(weights, training=training)

    def _project_output(self, context, query):
        if self.use_gate:
            context = context * self.gate_dense(query)
        return self.output_dense(context)
