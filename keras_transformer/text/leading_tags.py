"""The tag that a text begins with, as `>>fra<<`, cut off in the graph."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.text.strings import string_constant

CODE = "(?s:>>.*?<<)"  # as OPUS-MT writes a language code, in the vocabulary or not


class CutTexts(NamedTuple):
    """Texts without the tag that they begin with.

    Attributes:
        ids: int32 (batch,), the id of the tag, -1 where there is none.
        sizes: int32 (batch,), the bytes of the tag.
        texts: string (batch,), what follows it.
    """

    ids: tf.Tensor
    sizes: tf.Tensor
    texts: tf.Tensor


def cut_leading_tags(strings: tf.Tensor, tags: Mapping[str, int], unk_id: int) -> CutTexts:
    """Returns the `CutTexts` of valid UTF-8 strings (batch,).

    A tag is one of `tags`, the longest that fits. What stands between `>>` and `<<` is one too,
    with `unk_id` where it is not among them.
    """
    longest_first = sorted(tags, key=len, reverse=True)
    pattern = "|".join([CODE, *map(escape, longest_first)])
    rest = tf.strings.regex_replace(strings, f"^(?:{pattern})", "", replace_global=False)
    sizes = tf.strings.length(strings) - tf.strings.length(rest)
    ids = tag_ids(tf.strings.substr(strings, tf.zeros_like(sizes), sizes), tags, unk_id)
    return CutTexts(tf.where(sizes > 0, ids, -1), sizes, rest)


def tag_ids(strings: tf.Tensor, tags: Mapping[str, int], unknown: int) -> tf.Tensor:
    """Returns the id of each string (batch,) among `tags`, or `unknown`; int32 (batch,)."""
    if not tags:
        return tf.fill(tf.shape(strings), unknown)
    known = string_constant(tags)
    same = strings[:, None] == known[None]  # -> (batch, tags)
    ids = tf.gather(tf.constant([*tags.values()], tf.int32), tf.argmax(same, axis=1))
    return tf.where(tf.reduce_any(same, axis=1), ids, unknown)


def escape(text: str) -> str:
    """Returns a pattern of RE2 that matches `text` alone."""
    return re.sub(r"([!-/:-@\[-^`{-~])", r"\\\1", text)
