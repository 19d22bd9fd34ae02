"""A search with a model: the Transformer's step function, and the lengths that it may reach."""

import keras
from keras import ops

from keras_transformer import arguments
from keras_transformer.decoding import BeamSearch
from keras_transformer.decoding.call_arguments import per_sentence
from keras_transformer.layers.step_product import apart
from keras_transformer.masking import padding_mask
from keras_transformer.models.token_ids import token_ids, vocabulary_sizes

# Vaswani et al. 2017, section 6.1: outputs may be this much longer than their source.
EXTRA_LENGTH = 50


class DecodingStep:
    """The step function of a search over one batch: `step(tokens, index, caches, paths)`.

    It takes the tokens (rows,) at position `index` and gives float32 logits (rows, vocab) of the
    next ones, the caches with this position in them, and how the last layer's heads attend to
    the source on average, (rows, source).
    """

    follows_paths = True

    def __init__(self, model, source_ids, memory, max_length):
        self.model = model
        self.sizes = (ops.shape(source_ids)[0], max_length)
        self.mask = padding_mask(source_ids, model.pad_id)
        self.projected_memory = model.decoder.project_memory(memory, self.mask)
        positions = model.target_positions
        self.encoding = None if positions is None else positions.encoding(max_length)

    def first_state(self, beam_size):
        """Empty caches for the hypotheses of all sentences."""
        return self.model.decoder.start_cache(*self.sizes, beam_size)

    def __call__(self, tokens, index, caches, paths=None):
        """Decodes one position."""
        model = self.model
        hidden = model.target_embedding(tokens[:, None])  # -> (rows, 1, d_model)
        if self.encoding is not None:
            row = ops.take(self.encoding, index, axis=0)[None, None, :]
            hidden = model.target_positions.apply_encoding(hidden, row)
        hidden, caches, weights = model.decoder.step(
            hidden, index, caches, self.projected_memory, self.mask, paths
        )
        logits = apart(model.target_embedding.logits(hidden)[:, 0])
        rows, source = ops.shape(tokens)[0], ops.shape(self.mask)[1]
        attention = ops.reshape(ops.mean(weights, axis=1), (rows, source))
        # Nobody differentiates a search: an eager backend need not keep every step for it.
        return keras.tree.map_structure(ops.stop_gradient, (logits, caches, attention))


def search_targets(model, source_ids, search, max_length, length_limits, **given):
    """Runs a search over the outputs of `model`; see `Transformer.generate`."""
    search = BeamSearch() if search is None else search
    if not callable(search) or isinstance(search, type):
        raise ValueError(
            "`search` must be a search of `keras_transformer.decoding`, such as `BeamSearch()`. "
            f"Received: search={search!r}"
        )
    source_ids = token_ids("source_ids", source_ids, vocabulary_sizes(model)[0])
    batch_size, source_length = ops.shape(source_ids)
    is_token = padding_mask(source_ids, model.pad_id)
    source_lengths = ops.sum(ops.cast(is_token, "int32"), axis=1)
    if max_length is None:
        max_length = source_length + EXTRA_LENGTH
        positions = getattr(model, "target_positions", None)
        if getattr(positions, "max_length", None) is not None:
            # A length that is known has to stay a number: JAX takes no other for a shape.
            least_of = min if isinstance(max_length, int) else ops.minimum
            max_length = least_of(max_length, positions.max_length)
        most = source_lengths + EXTRA_LENGTH
        if length_limits is not None:
            own = per_sentence("length_limits", length_limits, batch_size, "int32", 1)
            most = ops.minimum(most, own)
        length_limits = most
    else:
        max_length = arguments.positive_integer("max_length", max_length)
    memory = model.encode(source_ids, training=False)
    step = model.step_class(model, source_ids, memory, max_length)
    return search(
        step,
        step.first_state(getattr(search, "slots_per_sentence", 1)),
        batch_size=batch_size,
        max_length=max_length,
        bos_id=model.bos_id,
        eos_id=model.eos_id,
        pad_id=model.pad_id,
        length_limits=length_limits,
        source_lengths=source_lengths,
        source_mask=is_token,
        **given,
    )
