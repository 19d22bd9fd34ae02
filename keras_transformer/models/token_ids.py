"""Checks of the ids that a model is given outside of training."""

from keras_transformer.decoding.call_arguments import refuse_ids_outside
from keras_transformer.masking import integer_ids


def vocabulary_sizes(model):
    """The sizes of the source's and the target's vocabulary."""
    if model.vocab_size:
        return model.vocab_size, model.vocab_size
    return model.source_vocab_size, model.target_vocab_size


def token_ids(name, ids, vocab_size):
    """Returns `ids` as a tensor (batch, length), or raises `ValueError` when they are no such ids.

    Tensors are not read, and an id that the vocabulary does not have is then taken as the
    backend has it: as another id, as 0 or as NaN.
    """
    tensor = integer_ids(name, ids)
    if len(tensor.shape) != 2:
        raise ValueError(
            f"`{name}` must be (batch, length). Received: {name} of shape {tuple(tensor.shape)}"
        )
    refuse_ids_outside(name, ids, vocab_size)
    return tensor
