"""Checks of the arguments of `Transformer`."""

from keras_transformer import arguments


def checked_vocabularies(vocab_size, source_vocab_size, target_vocab_size):
    """Returns the sizes of one joint vocabulary or two separate ones, or raises `ValueError`."""
    joint = vocab_size is not None
    separate = (source_vocab_size is not None, target_vocab_size is not None)
    if (joint and any(separate)) or (not joint and not all(separate)):
        raise ValueError(
            "give either `vocab_size`, or both `source_vocab_size` and `target_vocab_size`. "
            f"Received: vocab_size={vocab_size!r}, source_vocab_size={source_vocab_size!r}, "
            f"target_vocab_size={target_vocab_size!r}"
        )
    sizes = {"vocab_size": vocab_size, "source_vocab_size": source_vocab_size}
    sizes["target_vocab_size"] = target_vocab_size
    return [
        arguments.optional(arguments.positive_integer, name, size) for name, size in sizes.items()
    ]


def check_special_ids(model):
    """Raises `ValueError` unless the special ids are three different ids of the vocabulary."""
    special_ids = (model.pad_id, model.bos_id, model.eos_id)
    vocab_size = model.vocab_size or min(model.source_vocab_size, model.target_vocab_size)
    if len(set(special_ids)) < 3 or max(special_ids) >= vocab_size:
        raise ValueError(
            "`pad_id`, `bos_id` and `eos_id` must be different ids of the vocabulary. "
            f"Received: pad_id={model.pad_id}, bos_id={model.bos_id}, eos_id={model.eos_id} and "
            f"a vocabulary of {vocab_size}"
        )
