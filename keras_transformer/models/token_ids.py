"""Checks of the ids that a model is given."""

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


def pair_of_ids(model, inputs):
    """Returns (source_ids, target_ids), or raises `ValueError` when `inputs` are no such pair."""
    if not isinstance(inputs, (list, tuple)) or len(inputs) != 2:
        raise ValueError(
            "`inputs` must be the pair (source_ids, target_ids). "
            f"Received: inputs={_described(inputs)}"
        )
    sides = zip(("source_ids", "target_ids"), inputs, vocabulary_sizes(model), strict=True)
    return tuple(integer_ids(*side) for side in sides)


def _described(inputs):
    if isinstance(inputs, dict):
        return f"a dict with the keys {list(inputs)}"
    if isinstance(inputs, (list, tuple)):
        return f"a {type(inputs).__name__} of {len(inputs)}"
    return f"one {type(inputs).__name__} of shape {getattr(inputs, 'shape', None)}"
