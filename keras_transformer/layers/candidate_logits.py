"""Logits of some tokens alone, the candidates; a sample stands for all others."""

import numpy as np
from keras import ops

from keras_transformer.arguments import Ids, Logits, Tensor
from keras_transformer.decoding.search import IMPOSSIBLE
from keras_transformer.layers.dense import columns_product, optimization_barrier
from keras_transformer.layers.token_embedding import TokenEmbedding

NUM_SAMPLE = 128  # the tokens that stand for all which are not candidates


class CandidateLogits:
    """Called with hidden vectors, gives nearly the logits of a `TokenEmbedding`, sooner.

    Those of the candidates and of a sample of the others are computed. The others are -1e9, and
    their whole mass, as the sample has it, is that of padding. A softmax gives the candidates
    nearly the model's own probabilities, and no search writes padding.

    What many steps read is copied once, when the object is made: the rows of the output matrix.

    Args:
        embedding: a built `TokenEmbedding`.
        candidate_ids: different integers (candidates,).
        pad_id: the id of padding.
    """

    def __init__(self, embedding: TokenEmbedding, candidate_ids: Ids, pad_id: int) -> None:
        self.embedding = embedding
        size = embedding.vocab_size
        number = ops.shape(candidate_ids)[0]
        candidate_ids = ops.cast(candidate_ids, "int32")
        places = ops.full((size,), number, "int32")
        new = ops.arange(number, dtype="int32")
        places = ops.scatter_update(places, candidate_ids[:, None], new)
        is_pad = ops.arange(size) == pad_id
        places = ops.where(is_pad, number, places)  # one of the others, also where it is given
        sample = np.linspace(0, size - 1, min(NUM_SAMPLE, size))
        sample = ops.convert_to_tensor(sample.round().astype("int32"))
        # boolean (sample,), True at tokens of the sample that are not candidates
        self.is_rest = ops.take(places, sample) == number
        num_rest, num_sampled = (
            ops.sum(ops.cast(rest, "float32")) for rest in (places == number, self.is_rest)
        )
        # float32 (), log of how many tokens each of these stands for
        self.log_share = ops.log(num_rest / ops.maximum(num_sampled, 1.0))
        ids = ops.concatenate([candidate_ids, sample])
        # (candidates + sample,)
        self.bias = None if embedding.bias is None else ops.take(embedding.bias, ids)
        # (candidates + sample, d_model)
        self.matrix = optimization_barrier(embedding.output_vectors(ids))
        # int32 (vocab,), the place of each token's logit in what a call joins
        self.places = ops.where(is_pad, number + 1, places)

    def __call__(self, hidden: Tensor) -> Logits:
        """Returns float32 logits (batch, length, vocab) of `hidden` (batch, length, d_model)."""
        embedding = self.embedding
        # -> (batch * length, d_model)
        rows = ops.reshape(ops.cast(hidden, self.matrix.dtype), (-1, embedding.d_model))
        if embedding.in_columns:
            logits = columns_product(self.matrix, rows)
        else:
            logits = optimization_barrier(ops.matmul(rows, ops.transpose(self.matrix)))
        if self.bias is not None:
            logits = logits + self.bias
        size = self.is_rest.shape[0]
        sample = ops.where(self.is_rest, logits[:, -size:], IMPOSSIBLE)
        mass = ops.logsumexp(sample, axis=1, keepdims=True) + self.log_share  # (rows, 1)
        none = ops.full_like(mass, IMPOSSIBLE)
        # -> (batch * length, candidates + 2)
        logits = ops.concatenate([logits[:, :-size], none, mass], axis=1)
        logits = ops.take(logits, self.places, axis=1)  # -> (batch * length, vocab)
        # -> (batch, length, vocab)
        return ops.reshape(logits, (*ops.shape(hidden)[:-1], embedding.vocab_size))
