"""Attention of a recurrent decoder's states to all states of the encoder, by any similarity."""

from typing import Any

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.arguments import PaddingMask, PreviousMask, Shape, Tensor
from keras_transformer.layers.attention import masked_softmax
from keras_transformer.masking import boolean_mask

SIMILARITIES = ("dot", "scaled_dot", "cosine", "general", "additive")
LEAST_SQUARE = 1e-8  # vectors shorter than 1e-4 have shorter unit vectors


def unit_vectors(vectors: Tensor) -> Tensor:
    """The vectors (..., width) divided by their lengths; one of zeros stays so.

    In float32, for the squares that float16 cannot hold. The maximum gives a vector of zeros a
    finite gradient.
    """
    exact = ops.cast(vectors, "float32")
    squares = ops.sum(ops.square(exact), axis=-1, keepdims=True)
    return ops.cast(exact * ops.rsqrt(ops.maximum(squares, LEAST_SQUARE)), vectors.dtype)


@keras.saving.register_keras_serializable(package="keras_transformer")
class SimilarityAttention(keras.layers.Layer):
    """Weights the states of a memory by their similarity to a query, and sums them.

    `context = sum_j softmax_j(similarity(q, m_j)) m_j`, where the similarity is

    | name | formula |
    |---|---|
    | `"dot"` | `q . m` |
    | `"scaled_dot"` | `q . m / sqrt(d)` |
    | `"cosine"` | `s (q . m) / (norm(q) norm(m))`, s learned, from sqrt(d) on |
    | `"general"` | `q W m` |
    | `"additive"` | `v . tanh(W q + U m)` |

    The first three need queries as wide as the memory. A cosine alone is at most 1, too little for
    a softmax to choose by, hence the s.

    Args:
        similarity: one of these names.

    Shapes:
        query (batch, query, d_query), memory (batch, source, d_memory), memory_mask boolean
        (batch, source).

    Returns:
        The context (batch, query, d_memory); with `return_attention_scores=True` the pair of it and
        the float32 weights (batch, query, source).

    Raises:
        ValueError: for another name, unequal widths, or a mask of floats.

    Masking: a masked position has the weight 0; without any other the context is 0.

    Reference: Bahdanau et al. 2015 (additive); Luong et al. 2015 (dot, general); Graves et al.
    2014 (cosine, with a strength); Vaswani et al. 2017, section 3.2.1 (scaled).

    Example:

    >>> import numpy as np
    >>> query, memory = np.ones((1, 2, 4)), np.ones((1, 3, 4))
    >>> attention = SimilarityAttention("dot")
    >>> context, weights = attention(query, memory, return_attention_scores=True)
    >>> tuple(context.shape), tuple(weights.shape)
    ((1, 2, 4), (1, 2, 3))
    >>> [round(float(weight), 2) for weight in weights[0, 0]]
    [0.33, 0.33, 0.33]
    """

    def __init__(self, similarity: str = "additive", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.similarity = arguments.one_of("similarity", similarity, SIMILARITIES)
        self.supports_masking = True

    def build(self, query_shape: Shape, memory_shape: Shape) -> None:
        """Makes the weights of the similarity."""
        query_width, width = query_shape[-1], memory_shape[-1]
        if self.similarity in ("dot", "scaled_dot", "cosine") and query_width != width:
            raise ValueError(
                f'a similarity "{self.similarity}" needs queries as wide as the memory. '
                f"Received: widths {query_width} and {width}"
            )
        if self.similarity == "cosine":
            strength = keras.initializers.Constant(width**0.5)
            self.strength = self.add_weight(shape=(), initializer=strength, name="strength")
        if self.similarity == "general":
            self.query_kernel = self.add_weight(shape=(query_width, width), name="query_kernel")
        if self.similarity == "additive":
            self.query_kernel = self.add_weight(shape=(query_width, width), name="query_kernel")
            self.memory_kernel = self.add_weight(shape=(width, width), name="memory_kernel")
            self.vector = self.add_weight(shape=(width, 1), name="vector")
        self.built = True

    def call(
        self,
        query: Tensor,
        memory: Tensor,
        memory_mask: PaddingMask | None = None,
        *,
        return_attention_scores: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Returns the context, or the pair of it and the weights."""
        mask = None
        if memory_mask is not None:
            memory_mask = boolean_mask("memory_mask", memory_mask)
            mask = ops.expand_dims(memory_mask, 1)
            # Before the scores, so that no gradient meets what is masked either.
            memory = ops.where(ops.expand_dims(memory_mask, -1), memory, 0)
        weights = masked_softmax(ops.cast(self._scores(query, memory), "float32"), mask)
        if mask is not None:
            weights = ops.where(mask, weights, 0.0)
        context = ops.einsum("bqk,bkd->bqd", ops.cast(weights, memory.dtype), memory)
        return (context, weights) if return_attention_scores else context

    def _scores(self, query: Tensor, memory: Tensor) -> Tensor:
        """Similarities (batch, query, source)."""
        if self.similarity == "additive":
            query = ops.expand_dims(ops.matmul(query, self.query_kernel), 2)
            memory = ops.expand_dims(ops.matmul(memory, self.memory_kernel), 1)
            return ops.squeeze(ops.matmul(ops.tanh(query + memory), self.vector), -1)
        if self.similarity == "general":
            query = ops.matmul(query, self.query_kernel)
        if self.similarity == "cosine":
            query, memory = unit_vectors(query) * self.strength, unit_vectors(memory)
        if self.similarity == "scaled_dot":
            query = query * memory.shape[-1] ** -0.5
        return ops.einsum("bqd,bkd->bqk", query, memory)

    def compute_mask(
        self, query: Tensor, memory: Tensor, previous_mask: PreviousMask | None = None
    ) -> None:
        """The outputs carry no mask."""
        return None

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "similarity": self.similarity}
