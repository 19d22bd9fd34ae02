"""One decoding step of the recurrent model, for a search over one batch."""

from typing import TYPE_CHECKING

import keras
from keras import ops

from keras_transformer.arguments import Ids, Length, Tensor
from keras_transformer.decoding.step_function import State, StepOutput
from keras_transformer.layers.candidate_logits import CandidateLogits
from keras_transformer.masking import padding_mask

if TYPE_CHECKING:
    from keras_transformer.models.recurrent import RecurrentSeq2Seq


class RecurrentStep:
    """The step function `step(tokens, index, states)`; rows are the hypotheses.

    It takes the tokens (rows,) and the decoder's states, each (rows, d_model). It returns float32
    logits (rows, vocab) of the next tokens, the new states, and the attention of the step to the
    source, (rows, source). The rows of a sentence are adjacent and read one memory.
    """

    def __init__(
        self,
        model: "RecurrentSeq2Seq",
        source_ids: Ids,
        memory: Tensor,
        max_length: Length,
        candidate_logits: CandidateLogits | None = None,
    ) -> None:
        self.model = model
        self.logits = candidate_logits or model.target_embedding.logits
        self.memory = memory
        self.memory_padding_mask = padding_mask(source_ids, model.pad_id)

    def first_state(self, beam_size: int) -> State:
        """The decoder's states before the first token; the search repeats them for its beams."""
        return self.model.first_states(self.memory, self.memory_padding_mask)

    def __call__(self, tokens: Tensor, index: Tensor, states: State) -> StepOutput:
        """Decodes one position."""
        model = self.model
        # A slice, which does not carry the mask of the embedding: a cell needs none.
        hidden, after = model.target_embedding(tokens[:, None])[:, 0], []
        if hidden.shape[0] == 0:  # refused by a cell on TensorFlow, by a reshape on JAX
            nowhere = ops.zeros(ops.shape(self.memory_padding_mask), "float32")
            return StepOutput(model.target_embedding.logits(hidden), states, nowhere)
        for layer, before in zip(model.decoder_layers, states, strict=True):
            hidden, new = layer.cell(hidden, before, training=False)
            after.append(list(new))
        batch, source = ops.shape(self.memory_padding_mask)
        queries = ops.reshape(hidden, (batch, -1, model.d_model))  # -> (batch, beam, d_model)
        hidden, weights = model.attend(queries, self.memory, self.memory_padding_mask)
        rows = ops.shape(tokens)[0]
        logits = self.logits(hidden)
        # -> (rows, vocab)
        logits = ops.reshape(logits, (rows, logits.shape[-1]))
        # A search has no gradient: an eager backend need not keep its steps.
        attention = ops.reshape(weights, (rows, source))  # -> (rows, source)
        output = StepOutput(logits, after, attention)
        return keras.tree.map_structure(ops.stop_gradient, output)
