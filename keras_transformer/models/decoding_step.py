"""One step of a search: the decoder at one position, from caches of the positions before."""

import keras
from keras import ops

from keras_transformer.masking import padding_mask


def decoding_step(model, source_ids, memory, max_length):
    """Returns the function `step(tokens, index, caches)` of a search over this batch.

    It takes the tokens (rows,) at position `index` and gives float32 logits (rows, vocab) of the
    next ones, and the caches with this position in them.
    """
    mask = padding_mask(source_ids, model.pad_id)
    projected_memory = model.decoder.project_memory(memory, mask)
    positions = model.target_positions
    encoding = None if positions is None else positions.encoding(max_length)

    def step(tokens, index, caches):
        hidden = model.target_embedding(tokens[:, None])  # -> (rows, 1, d_model)
        if encoding is not None:
            row = ops.take(encoding, index, axis=0)[None, None, :]
            hidden = positions.apply_encoding(hidden, row)
        hidden, caches = model.decoder.step(hidden, index, caches, projected_memory, mask)
        logits = model.target_embedding.logits(hidden)[:, 0]
        # Nobody differentiates a search: an eager backend need not keep every step for it.
        return keras.tree.map_structure(ops.stop_gradient, (logits, caches))

    return step
