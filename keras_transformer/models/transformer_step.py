"""One decoding step of the Transformer, for a search over one batch."""

from typing import TYPE_CHECKING

import keras
from keras import ops

from keras_transformer.arguments import BeamPaths, Ids, Length, Tensor
from keras_transformer.decoding.step_function import State, StepOutput
from keras_transformer.layers.candidate_logits import CandidateLogits
from keras_transformer.layers.dense import optimization_barrier
from keras_transformer.masking import padding_mask

if TYPE_CHECKING:
    from keras_transformer.models.transformer import Transformer


class TransformerStep:
    """The step function `step(tokens, index, caches, paths)`; rows are the hypotheses.

    It takes the tokens (rows,) at position `index`. It returns float32 logits (rows, vocab) of the
    next tokens, and the caches with this position in them. It also returns the mean attention of
    the last layer's heads to the source, (rows, source).
    """

    follows_paths = True

    def __init__(
        self,
        model: "Transformer",
        source_ids: Ids,
        memory: Tensor,
        max_length: Length,
        candidate_logits: CandidateLogits | None = None,
    ) -> None:
        self.model = model
        self.logits = candidate_logits or model.target_embedding.logits
        self.sizes = (ops.shape(source_ids)[0], max_length)
        self.memory_padding_mask = padding_mask(source_ids, model.pad_id)
        self.projected_memory = model.decoder.project_memory(memory, self.memory_padding_mask)
        positions = model.target_positions
        self.encoding = None if positions is None else positions.encoding(max_length)

    def first_state(self, beam_size: int) -> State:
        """Empty caches for the hypotheses of all sentences."""
        return self.model.decoder.start_cache(*self.sizes, beam_size)

    def __call__(
        self, tokens: Tensor, index: Tensor, caches: State, paths: BeamPaths | None = None
    ) -> StepOutput:
        """Decodes one position."""
        model = self.model
        hidden = model.target_embedding(tokens[:, None])  # -> (rows, 1, d_model)
        if model.target_positions is not None:
            row = ops.take(self.encoding, index, axis=0)[None, None, :]
            hidden = model.target_positions.apply_encoding(hidden, row)
        if model.target_norm is not None:
            hidden = model.target_norm(hidden)
        step = model.decoder.step(
            hidden,
            index,
            caches,
            self.projected_memory,
            memory_padding_mask=self.memory_padding_mask,
            paths=paths,
        )
        logits = optimization_barrier(self.logits(step.outputs)[:, 0])
        rows, source = ops.shape(tokens)[0], ops.shape(self.memory_padding_mask)[1]
        # -> (rows, source)
        attention = ops.reshape(ops.mean(step.attention_weights, axis=1), (rows, source))
        # A search has no gradient: an eager backend need not keep its steps.
        output = StepOutput(logits, step.caches, attention)
        return keras.tree.map_structure(ops.stop_gradient, output)
