"""Tags, such as language codes, that stand before a text: cut off, looked up, and put back."""

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


class TaggedTexts(NamedTuple):
    """Texts, and the tags that stand before them.

    Attributes:
        texts: string (texts,), valid UTF-8, without a tag that they begin with.
        tags: int32 (texts,), the id of each tag, -1 for none; None where no text has one.
        begins: int32 (texts,), where `texts` begin in what was given, in bytes.
    """

    texts: tf.Tensor
    tags: tf.Tensor | None
    begins: tf.Tensor

    def gather_tags(self, texts: tf.Tensor) -> tf.Tensor | None:
        """Returns the tags of segments, which belong to `texts` (segments,)."""
        return None if self.tags is None else tf.gather(self.tags, texts)


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


def with_tags(tokens: tf.RaggedTensor, tags: tf.Tensor | None) -> tf.RaggedTensor:
    """Returns ragged tokens (rows, length) behind the tags (rows,) of those that have one."""
    return tokens if tags is None else with_first(tokens, tags, tags >= 0)


def with_first(rows: tf.RaggedTensor, first: tf.Tensor, has_first: tf.Tensor) -> tf.RaggedTensor:
    """Returns int32 rows (batch, length) that begin with `first` (batch,), where they have it."""
    before = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(first, has_first), tf.cast(has_first, tf.int64)
    )
    return tf.concat([before, rows.with_row_splits_dtype(tf.int64)], axis=1)


def escape(text: str) -> str:
    """Returns a pattern of RE2 that matches `text` alone."""
    return re.sub(r"([!-/:-@\[-^`{-~])", r"\\\1", text)
