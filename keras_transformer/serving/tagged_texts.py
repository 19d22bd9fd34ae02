"""Texts with the tags, such as language codes, that a model reads or writes before them."""

from typing import NamedTuple

import tensorflow as tf

from keras_transformer.text.strings import valid_utf8
from keras_transformer.text.tokenizer import Tokenizer, with_first


class TaggedTexts(NamedTuple):
    """Texts, and the tags that stand before them.

    Attributes:
        texts: string (texts,), without a tag that they begin with.
        tags: int32 (texts,), the id of each tag, -1 for none; None where no text has one.
        begins: int32 (texts,), where `texts` begin in what was given, in bytes.
    """

    texts: tf.Tensor
    tags: tf.Tensor | None
    begins: tf.Tensor

    def gather_tags(self, texts: tf.Tensor) -> tf.Tensor | None:
        """Returns the tags of segments, which belong to `texts` (segments,)."""
        return None if self.tags is None else tf.gather(self.tags, texts)


def tagged(
    texts: tf.Tensor, tokenizer: Tokenizer, default: int | None, asked: tf.Tensor | None
) -> TaggedTexts:
    """Returns the `TaggedTexts` of strings (texts,).

    A tag that a text begins with comes first, where the tokenizer reads one, then that which is
    asked for, then the id `default`.
    """
    begins = tf.zeros(tf.shape(texts), tf.int32)
    if default is None and asked is None and not tokenizer.leading_tags:
        return TaggedTexts(texts, None, begins)
    tags = tf.fill(tf.shape(texts), -1 if default is None else default)
    if asked is not None:
        tags = tf.where(asked == "", tags, tokenizer.tag_ids(asked))
    if tokenizer.leading_tags:
        cut = tokenizer.cut_leading_tags(valid_utf8(texts))
        texts, tags, begins = cut.texts, tf.where(cut.ids >= 0, cut.ids, tags), cut.sizes
    return TaggedTexts(texts, tags, begins)


def with_tags(tokens: tf.RaggedTensor, tags: tf.Tensor | None) -> tf.RaggedTensor:
    """Returns ragged tokens (rows, length) behind the tags (rows,) of those that have one."""
    return tokens if tags is None else with_first(tokens, tags, tags >= 0)
