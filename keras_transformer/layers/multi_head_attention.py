"""Multi-head attention: the scaled dot product as a function, and the layer that projects."""

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.layers.implicit_masks import AttachMask, ReadMask
from keras_transformer.masking import boolean_mask, causal_mask, combine_masks, zero_masked

# Finite, so that a row without any allowed key has a softmax without NaN before it is zeroed.
MASKED_SCORE = -1e30


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None, finite=None):
    """softmax(query key^T / sqrt(key_dim)) value for each head, softmax in float32.

    Args:
        query: (batch, query, heads, key_dim). key: (batch, key, heads, key_dim).
        value: (batch, key, heads, value_dim).
        mask: boolean, broadcastable to (batch, heads, query, key), or None.
        dropout: a function applied to the weights, or None.
        finite: (batch, key) boolean, False where key or value held NaN or inf and was zeroed:
            a query that may attend there gets NaN, others are untouched. Needs a mask.

    Returns:
        The context (batch, query, heads, value_dim), exactly 0 for a query without any allowed
        key, and the weights before dropout, float32 (batch, heads, query, key).
    """
    query = query * (query.shape[-1] ** -0.5)
    scores = ops.cast(ops.einsum("bqhd,bkhd->bhqk", query, key), "float32")
    if mask is not None:
        kept, fill = mask, MASKED_SCORE
        if finite is not None:
            kept = ops.logical_and(mask, finite[:, None, None, :])
            fill = ops.where(ops.logical_xor(mask, kept), float("nan"), MASKED_SCORE)
        scores = ops.where(kept, scores, fill)
    # `ops.softmax` warns about a single key, which a sentence of one token has by right.
    single = scores.shape[-1] == 1
    weights = ops.exp(ops.log_softmax(scores)) if single else ops.softmax(scores)
    dropped = weights if dropout is None else dropout(weights)
    context = ops.einsum("bhqk,bkhd->bqhd", ops.cast(dropped, value.dtype), value)
    if mask is not None:
        attends = ops.any(mask, axis=-1, keepdims=True)  # -> (batch, heads or 1, query or 1, 1)
        weights = ops.where(attends, weights, 0.0)
        context = ops.where(ops.transpose(attends, (0, 2, 1, 3)), context, 0)
    return context, weights


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Lets each query gather values by the likeness of their keys, in several projections at once.

    `head_i = softmax(Q_i K_i^T / sqrt(key_dim)) V_i`, `output = concat(head_1, ...) W_O`, with
    `Q_i = query W_Q_i`, `K_i = key W_K_i`, `V_i = value W_V_i`

    Called like `keras.layers.MultiHeadAttention`, in its order query, value, key.

    Args:
        num_heads: number of heads.
        key_dim: width of a head's queries and keys.
        value_dim: width of a head's values; `key_dim` when None.
        output_dim: width of the output; that of the query when None.
        dropout: rate of the dropout on the attention weights.
        use_bias: whether the four projections have biases.

    Shapes:
        query: (batch, query, width). value, key: (batch, key, width); key is value when None.
        query_mask: (batch, query), value_mask and key_mask: (batch, key), attention_mask:
        (batch, query, key) or (batch, heads, query, key). Output: (batch, query, output_dim).

    Returns:
        The output; with `return_attention_scores=True` the pair of the output and the float32
        attention weights (batch, heads, query, key), before dropout.

    Raises:
        ValueError: for a bad argument, a mask that is not boolean, or one of the wrong rank.

    Masking: all masks, Keras's implicit ones included, are combined; True may attend. A query
    with nothing to attend to, or masked itself, gives exactly 0. NaN or inf at a masked position
    reaches no output. The output carries the query's mask, and the caller's tensors keep theirs.

    Reference: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.

    Example:

    >>> import numpy as np
    >>> query, memory = np.zeros((2, 3, 8)), np.zeros((2, 5, 8))
    >>> attention = MultiHeadAttention(num_heads=2, key_dim=4)
    >>> output, weights = attention(query, memory, return_attention_scores=True)
    >>> tuple(output.shape), tuple(weights.shape)
    ((2, 3, 8), (2, 2, 3, 5))
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        output_dim=None,
        dropout=0.0,
        use_bias=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = arguments.positive_integer("num_heads", num_heads)
        self.key_dim = arguments.positive_integer("key_dim", key_dim)
        self.value_dim = arguments.positive_integer(
            "value_dim", key_dim if value_dim is None else value_dim
        )
        if output_dim is not None:
            arguments.positive_integer("output_dim", output_dim)
        self.output_dim = output_dim
        self.dropout = arguments.rate("dropout", dropout)
        self.use_bias = arguments.boolean("use_bias", use_bias)
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        """Builds the four projections and the dropout."""
        key_shape = value_shape if key_shape is None else key_shape
        output_dim = query_shape[-1] if self.output_dim is None else self.output_dim
        self.query_dense = self._heads_dense("query", self.key_dim)
        self.key_dense = self._heads_dense("key", self.key_dim)
        self.value_dense = self._heads_dense("value", self.value_dim)
        self.output_dense = keras.layers.EinsumDense(
            "bqhd,hdo->bqo",
            output_shape=(None, output_dim),
            bias_axes="o" if self.use_bias else None,
            dtype=self.dtype_policy,
            name="attention_output",
        )
        self.dropout_layer = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)
        self.read_mask = ReadMask(dtype=self.dtype_policy, name="read_mask")
        self.attach_mask = AttachMask(dtype=self.dtype_policy, name="attach_mask")
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        self.output_dense.build((*query_shape[:-1], self.num_heads, self.value_dim))
        self.dropout_layer.build((query_shape[0], self.num_heads, query_shape[1], value_shape[1]))
        self.built = True

    def _heads_dense(self, name, width):
        return keras.layers.EinsumDense(
            "bld,dhe->blhe",
            output_shape=(None, self.num_heads, width),
            bias_axes="he" if self.use_bias else None,
            dtype=self.dtype_policy,
            name=name,
        )

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
        key = value if key is None else key
        if attention_mask is not None:
            attention_mask = per_head(attention_mask)
        if use_causal_mask:
            causal = causal_mask(ops.shape(query)[1], ops.shape(value)[1])[:, None]
            attention_mask = combine_masks(attention_mask, causal)
        query_mask = combine_masks(query_mask, *self.read_mask(query))
        memory_mask = combine_masks(
            value_mask, key_mask, *self.read_mask(value), *self.read_mask(key)
        )
        query = zero_masked(query, query_mask)
        value, key = zero_masked(value, memory_mask), zero_masked(key, memory_mask)
        finite = None
        if attention_mask is not None:
            # A key may be masked for some queries only, and 0 times NaN is NaN.
            finite = ops.logical_and(all_finite(value), all_finite(key))
            value, key = zero_masked(value, finite), zero_masked(key, finite)
        mask = combine_masks(
            attention_mask,
            None if memory_mask is None else memory_mask[:, None, None, :],
            None if query_mask is None else query_mask[:, None, :, None],
        )
        keys, values = self.project_key_value(value, key)
        output, weights = self.attend(query, keys, values, mask, finite, training=training)
        output = self.attach_mask(output, mask=query_mask)
        return (output, weights) if return_attention_scores else output

    def project_key_value(self, value, key=None):
        """Returns keys (batch, key, heads, key_dim) and values (batch, key, heads, value_dim)."""
        return self.key_dense(value if key is None else key), self.value_dense(value)

    def attend(self, query, keys, values, mask=None, finite=None, training=None):
        """Attends from `query` (batch, query, width) to projected keys and values.

        `mask` broadcasts to (batch, heads, query, key); `finite` is as in
        `scaled_dot_product_attention`. Returns output and weights.
        """
        dropout = None
        if self.dropout:
            dropout = lambda weights: self.dropout_layer(weights, training=training)  # noqa: E731
        context, weights = scaled_dot_product_attention(
            self.query_dense(query), keys, values, mask, dropout, finite
        )
        output = self.output_dense(context)
        if mask is not None and self.use_bias:
            attends = ops.any(mask, axis=(1, 3))  # -> (batch or 1, query or 1)
            output = ops.where(attends[:, :, None], output, 0)
        return output, weights

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        """Returns the query's shape, `output_dim` wide."""
        return (*query_shape[:-1], self.output_dim or query_shape[-1])

    def compute_output_spec(
        self, query, value, key=None, return_attention_scores=False, **other_arguments
    ):
        """Returns symbolic outputs; attention weights are (batch, heads, query, key), float32."""
        output = keras.KerasTensor(self.compute_output_shape(query.shape), self.compute_dtype)
        if not return_attention_scores:
            return output
        shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return output, keras.KerasTensor(shape, "float32")

    def compute_mask(self, query, previous_mask):
        """Returns the query's mask."""
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask

    def get_config(self):
        """Returns the constructor's arguments."""
        own = {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "output_dim": self.output_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
        }
        return {**super().get_config(), **own}


def all_finite(values):
    """True at positions (batch, length) where `values` (batch, length, width) are all finite."""
    return ops.all(ops.isfinite(values), axis=-1)


def per_head(attention_mask):
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
