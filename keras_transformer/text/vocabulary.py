"""Vocabularies that list their items: how they are learned, and how items become ids and text."""

import collections
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from keras_transformer import arguments
from keras_transformer.symbols import order_by_count
from keras_transformer.text.folding import Folding
from keras_transformer.text.strings import REPLACEMENT, text_list, valid_text

SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
NUM_FINGERPRINTS = 2**63 - 1


def most_frequent(
    texts: Iterable[str],
    split: Callable[[str], Iterable[str]],
    vocab_size: int | None,
    kind: str,
    folding: Folding,
) -> list[str]:
    """Returns the items that `split` finds in folded `texts`, most frequent first.

    Equally frequent ones are in the order of their code points. There are no more than fit in
    `vocab_size` with the special pieces; None keeps all. `kind` names an item in errors.
    """
    smallest = len(SPECIAL_PIECES) + 1
    if vocab_size is not None:
        vocab_size = arguments.positive_integer("vocab_size", vocab_size)
        if vocab_size < smallest:
            raise ValueError(
                f"`vocab_size` must be at least {smallest}. Received: vocab_size={vocab_size}"
            )
        vocab_size -= len(SPECIAL_PIECES)
    counts: collections.Counter[str] = collections.Counter()
    texts = [valid_text(text) for text in text_list("texts", texts)]
    for text in folding.fold_texts(texts):
        counts.update(split(text))
    if not counts:
        raise ValueError(f"`texts` must hold at least one {kind}. Received: only empty texts")
    return order_by_count(counts)[:vocab_size]


def look_up_ids(
    keys: tf.RaggedTensor,
    vocabulary_keys: np.ndarray,
    unk_id: int,
    ids: np.ndarray | None = None,
) -> tf.RaggedTensor:
    """Returns the ids of ragged `keys` by binary search: no table to be tracked.

    `vocabulary_keys` is the array of the items' own distinct keys. `ids` are theirs, int32; None
    counts from the first id behind the special ones.
    """
    order = np.argsort(vocabulary_keys)
    sorted_keys = tf.constant(vocabulary_keys[order])
    ids = np.arange(len(order), dtype="int32") + len(SPECIAL_PIECES) if ids is None else ids
    sorted_ids = tf.constant(ids[order].astype("int32"))
    places = tf.minimum(tf.searchsorted(sorted_keys, keys.flat_values), len(order) - 1)
    known = tf.gather(sorted_keys, places) == keys.flat_values
    return keys.with_flat_values(tf.where(known, tf.gather(sorted_ids, places), unk_id))


def fingerprints(strings: tf.Tensor) -> tf.Tensor:
    """A number below 2**63 for each string; two strings share one with probability 1e-19."""
    return tf.strings.to_hash_bucket_fast(strings, NUM_FINGERPRINTS)


def joined(ids: tf.RaggedTensor, items: Iterable[str], separator: str = "") -> tf.Tensor:
    """Returns the strings of ragged `ids`: their items, joined by `separator`."""
    surfaces = ["", REPLACEMENT, "", "", *items]
    table = tf.constant(np.array([text.encode() for text in surfaces], dtype=object))
    found = ids.with_flat_values(tf.gather(table, ids.flat_values))
    return tf.strings.reduce_join(found, axis=1, separator=separator)
