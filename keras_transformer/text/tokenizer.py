"""What the tokenizers have in common: special ids, tags, one file, and calls in the graph."""

import abc
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from keras_transformer import tokenizer_file
from keras_transformer.arguments import Ids, Tensor
from keras_transformer.atomic_files import write_atomically
from keras_transformer.integer_ids import integer_ids
from keras_transformer.text.folding import Folding
from keras_transformer.text.strings import string_constant, string_tensor

LANGUAGE_CODE = re.compile("(?s:>>.*?<<)")  # as OPUS-MT writes it, in the vocabulary or not
TAGS_SHOWN = 5  # in an error


class TokensWithOffsets(NamedTuple):
    """The ids of strings, and the bytes that each was read from.

    Attributes:
        ids: int32 ragged (batch, length), without bos and eos.
        starts: int32 ragged (batch, length), the first byte of each piece in its string.
        ends: int32 ragged (batch, length), the byte behind its last.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class TextsWithOffsets(NamedTuple):
    """The texts of ids, and the bytes that each id wrote.

    Attributes:
        texts: string (batch,).
        starts: int32 (batch, length), the first byte of each piece in its text.
        ends: int32 (batch, length), the byte behind its last.
    """

    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor


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


class Tokenizer(abc.ABC):
    """Text to ids and back, as graph ops that hold no resource between calls.

    A subclass gives the three `*_graph` and payload methods. Everything a call needs is a constant
    of its traced function, built while tracing. So `keras.utils.set_random_seed` and
    `clear_session` have nothing to destroy, and an export nothing to track.

    A tag is a piece, such as a language code, that text never becomes and that is not text.

    Args:
        vocabulary: list of str, the piece of each id.
        folding: the `Folding` of each text before it is split; None leaves it as it is.
        special: names of the four special ids to ids, where they are others than the first four.
        tags: tags to their ids.
        codes: to their ids, the pieces that count as tags where a text begins with one, and are
            text elsewhere.
    """

    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3
    reverse = False  # whether the ids are those of the text from its end to its beginning
    leading_tags = False  # whether a text may begin with a tag

    def __init__(
        self,
        vocabulary: Iterable[str],
        folding: Folding | None = None,
        special: Mapping[str, int] | None = None,
        tags: Mapping[str, int] | None = None,
        codes: Mapping[str, int] | None = None,
    ) -> None:
        self._vocabulary = list(vocabulary)
        for name, index in (special or {}).items():
            setattr(self, name, index)
        self._tags = dict(tags or {})
        self._first = {**self._tags, **(codes or {})}  # what a text may begin with
        self._folding = Folding("identity", lowercase=False) if folding is None else folding
        strings = [tf.TensorSpec([None], tf.string)]
        ids = [tf.RaggedTensorSpec([None, None], tf.int32)]
        # AutoGraph would rewrite the Python of every operation, which takes longer than the trace.
        options = {"autograph": False}
        self._tokenize = tf.function(self._tokenize_strings, strings, **options)
        self._tokenize_with_offsets = tf.function(self._strings_with_offsets, strings, **options)
        self._detokenize = tf.function(self._detokenize_ids, ids, **options)

    @property
    def vocab_size(self) -> int:
        """The number of ids, special ones and tags included."""
        return len(self._vocabulary)

    @property
    def vocabulary(self) -> list[str]:
        """The piece of each id as it is, and the unknown one where an id has none."""
        return list(self._vocabulary)

    @property
    def tags(self) -> list[str]:
        """The pieces, special ones left out, that may be put before a text, such as language codes.

        Text never becomes one, and `detokenize` skips them. An exception is a `>>code<<` that a
        sentencepiece model makes of text, as a symbol that its trainer defined.
        """
        return list(self._first)

    def tag_id(self, tag: str) -> int:
        """Returns the id of one of `tags`."""
        if not isinstance(tag, str) or tag not in self._first:
            some = ", ".join([*self.tags[:TAGS_SHOWN], *["..."][: len(self.tags) - TAGS_SHOWN]])
            raise ValueError(
                f"a tag must be one of the tokenizer's {len(self.tags)} `tags`: {some or 'none'}. "
                f"Received: {tag!r:.80}"
            )
        return self._first[tag]

    def tag_ids(self, tags: tf.Tensor, unknown: int = -1) -> tf.Tensor:
        """Returns the id of each of `tags`, strings (batch,), as int32, or `unknown`."""
        if not self._first:
            return tf.fill(tf.shape(tags), unknown)
        same = tags[:, None] == string_constant(self._first)[None]  # -> (batch, tags)
        ids = tf.gather(tf.constant([*self._first.values()], tf.int32), tf.argmax(same, axis=1))
        return tf.where(tf.reduce_any(same, axis=1), ids, unknown)

    def cut_leading_tags(self, strings: tf.Tensor) -> CutTexts:
        """Returns the `CutTexts` of valid UTF-8 strings (batch,), whatever `leading_tags` says.

        A tag is one of `tags`, the longest that fits. What stands between `>>` and `<<` is one too,
        with `unk_id` where it is not among them.
        """
        longest_first = sorted(self._first, key=len, reverse=True)
        pattern = "|".join([LANGUAGE_CODE.pattern, *map(escape, longest_first)])
        rest = tf.strings.regex_replace(strings, f"^(?:{pattern})", "", replace_global=False)
        sizes = tf.strings.length(strings) - tf.strings.length(rest)
        cut = tf.strings.substr(strings, tf.zeros_like(sizes), sizes)
        ids = self.tag_ids(cut, self.unk_id)
        return CutTexts(tf.where(sizes > 0, ids, -1), sizes, rest)

    def read_tags(
        self, strings: tf.Tensor, default: int | None = None, asked: tf.Tensor | None = None
    ) -> TaggedTexts:
        """Returns the `TaggedTexts` of strings (batch,).

        A tag that a text begins with comes first, with `leading_tags`. Then comes that of `asked`
        (batch,), where it is not "", and then the id `default`.
        """
        strings = valid_utf8(strings)
        begins = tf.zeros(tf.shape(strings), tf.int32)
        if default is None and asked is None and not self.leading_tags:
            return TaggedTexts(strings, None, begins)
        tags = tf.fill(tf.shape(strings), -1 if default is None else default)
        if asked is not None:
            tags = tf.where(asked == "", tags, self.tag_ids(asked))
        if self.leading_tags:
            cut = self.cut_leading_tags(strings)
            strings, tags, begins = cut.texts, tf.where(cut.ids >= 0, cut.ids, tags), cut.sizes
        return TaggedTexts(strings, tags, begins)

    def without_leading_tags(self) -> "Tokenizer":
        """Returns the tokenizer with `leading_tags=False`."""
        return self

    @property
    def normalization(self) -> str:
        """The normal form that a text gets before it is split."""
        return self._folding.normalization

    @property
    def lowercase(self) -> bool:
        """Whether a text is lower-cased before it is split, as `str.lower` does."""
        return self._folding.lowercase

    def tokenize(self, strings: Sequence[str | bytes] | tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of each string, int32 ragged (batch, length), without bos and eos.

        Text never becomes a special id: "</s>" is four characters. Invalid UTF-8 is replaced by
        U+FFFD, and an empty string is an empty row.
        """
        return self._tokenize(string_tensor(strings))

    def tokenize_with_offsets(
        self, strings: Sequence[str | bytes] | tf.Tensor
    ) -> TokensWithOffsets:
        """Returns the ids of `tokenize`, and where in its string each was read.

        Invalid UTF-8 counts as the U+FFFD that it is replaced by. Of a character spelled in several
        pieces one has the bytes.
        """
        return TokensWithOffsets(*self._tokenize_with_offsets(string_tensor(strings)))

    def detokenize(self, ids: Ids) -> tf.Tensor:
        """Returns the string of each row of `ids` (batch, length), ragged or dense.

        A row ends at its first `eos_id`; `pad_id`, `bos_id` and tags are skipped, and an id outside
        [0, vocab_size) reads as `unk_id`. Floats that are whole numbers count as integers.
        """
        return self._detokenize(ragged_ids(ids, self.vocab_size, self.unk_id))

    def detokenize_with_offsets(self, ids: tf.Tensor) -> TextsWithOffsets:
        """Returns the strings of `detokenize`, and where in them each piece stands.

        `ids` are dense (batch, length), with padding at the end. A piece ends where the text of the
        ids up to it ends. Where the tokenizer reverses, it begins as far from the end of the text.
        """
        rows, length = tf.shape(ids)[0], tf.shape(ids)[1]
        up_to_here = tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0)
        # -> (batch, length, length), the ids up to each
        beginnings = tf.where(up_to_here[None], ids[:, None, :], self.pad_id)
        # -> (batch * length, length)
        parts = self.detokenize(tf.reshape(beginnings, [rows * length, length]))
        ends = tf.reshape(tf.strings.length(parts), [rows, length])  # -> (batch, length)
        # A character that is spelled in several pieces reads as something longer until the last.
        later = tf.linalg.band_part(tf.ones([length, length], tf.bool), 0, -1)
        ends = tf.reduce_min(tf.where(later[None], ends[:, None, :], tf.int32.max), axis=2)
        starts = tf.pad(ends, [[0, 0], [1, 0]])[:, :-1]
        if self.reverse:
            whole = ends[:, -1:]
            starts, ends = whole - ends, whole - starts
        return TextsWithOffsets(self.detokenize(ids), starts, ends)

    def pieces(self, ids: Tensor) -> list[str]:
        """Returns the printable piece of each id of one sequence, a list of str."""
        ids = np.asarray(integer_ids("ids", ids), dtype="int64")
        if ids.ndim != 1:
            raise ValueError(
                f"`ids` must have the shape (length,). Received: ids with shape={ids.shape}"
            )
        known = np.where((ids >= 0) & (ids < self.vocab_size), ids, self.unk_id)
        return [printable(self._vocabulary[index]) for index in known]

    def to_bytes(self) -> bytes:
        """Returns the whole tokenizer as bytes; equal tokenizers give equal bytes."""
        return tokenizer_file.pack(type(self).__name__, *self._options_and_payload())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Rebuilds a tokenizer from `to_bytes`."""
        return cls._from_parts(*tokenizer_file.unpack(data))

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the whole tokenizer to one file, atomically."""
        write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Reads a file written by `save`; `ValueError` when it holds something else."""
        return cls._from_parts(*tokenizer_file.read(path))

    @classmethod
    def _from_parts(cls, kind: str, options: dict[str, Any], payload: bytes) -> Self:
        if kind != cls.__name__:
            raise ValueError(
                f"`{cls.__name__}` must be loaded from its own kind of file; `load_tokenizer` "
                f"opens any kind. Received: kind={kind!r}"
            )
        return cls.from_payload(options, payload)

    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]:
        return type(self).from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size})"

    def _tokenize_strings(self, strings: tf.Tensor) -> tf.RaggedTensor:
        strings = valid_utf8(strings)
        if not self.leading_tags:
            return tf.cast(self.tokenize_graph(self._folding(strings)), tf.int32)
        cut = self.cut_leading_tags(strings)  # before folding, which would change a tag
        ids = tf.cast(self.tokenize_graph(self._folding(cut.texts)), tf.int32)
        return with_first(ids, cut.ids, cut.sizes > 0)

    def _strings_with_offsets(self, strings: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        strings = valid_utf8(strings)
        cut = self.cut_leading_tags(strings) if self.leading_tags else None
        strings = cut.texts if cut else strings
        ids, *offsets = self.tokenize_with_offsets_graph(self._folding(strings))
        offsets = self._folding.source_offsets(strings, *offsets)
        ids, starts, ends = (tf.cast(part, tf.int32) for part in (ids, *offsets))
        if cut is None:
            return ids, starts, ends
        behind = cut.sizes[:, None]
        return (
            with_first(ids, cut.ids, cut.sizes > 0),
            with_first(starts + behind, tf.zeros_like(cut.sizes), cut.sizes > 0),
            with_first(ends + behind, cut.sizes, cut.sizes > 0),
        )

    def _detokenize_ids(self, ids: tf.RaggedTensor) -> tf.Tensor:
        dense = ids.to_tensor(default_value=self.pad_id)
        # -> (batch, length), True up to the last id before the first eos
        before_end = tf.cumsum(tf.cast(dense == self.eos_id, tf.int32), axis=1) == 0
        kept = before_end & (dense != self.pad_id) & (dense != self.bos_id)
        if self._tags:
            is_tag = np.zeros(self.vocab_size, bool)
            is_tag[list(self._tags.values())] = True
            kept &= ~tf.gather(tf.constant(is_tag), dense)
        return self.detokenize_graph(tf.ragged.boolean_mask(dense, kept))

    @abc.abstractmethod
    def tokenize_graph(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ragged ids (batch, length) of valid, folded UTF-8 strings (batch,)."""

    @abc.abstractmethod
    def tokenize_with_offsets_graph(self, strings: tf.Tensor) -> TokensWithOffsets:
        """Returns the `TokensWithOffsets`, of any integer dtype, of valid, folded UTF-8 strings."""

    @abc.abstractmethod
    def surfaces(self) -> list[str]:
        """Returns the text of each id, a list of str; a space starts what begins a word.

        What is not text, such as a special id, has "".
        """

    @abc.abstractmethod
    def detokenize_graph(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the strings (batch,) of ragged ids in [0, vocab_size), no special ones or tags.

        `unk_id` may be among them.
        """

    @abc.abstractmethod
    def _options_and_payload(self) -> tuple[dict[str, Any], bytes]:
        """Returns `(options, payload)`: a dict for JSON, and bytes."""

    @classmethod
    @abc.abstractmethod
    def from_payload(cls, options: dict[str, Any], payload: bytes) -> Self:
        """Rebuilds a tokenizer from its options and payload."""


def valid_utf8(strings: tf.Tensor) -> tf.Tensor:
    """Returns the string tensor with each invalid byte sequence replaced by U+FFFD."""
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")


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


def ragged_ids(ids: Ids, vocab_size: int, unk_id: int) -> tf.RaggedTensor:
    """Returns `ids` as a ragged int32 tensor (batch, length), out-of-range ids made `unk_id`."""
    if not tf.is_tensor(ids) and not isinstance(ids, np.ndarray):
        ids = tf.ragged.constant(ids, ragged_rank=1)
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer and not ids.dtype.is_floating:
        raise TypeError(f"`ids` must be integers. Received: ids with dtype={ids.dtype.name}")
    if ids.shape.rank != 2:
        raise ValueError(
            f"`ids` must have the shape (batch, length). Received: ids with shape={ids.shape}"
        )
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.RaggedTensor.from_tensor(ids)
    ids = ids.with_row_splits_dtype(tf.int64)
    values = tf.cast(integer_ids("ids", ids.flat_values, vocab_size), tf.int64)
    known = (values >= 0) & (values < vocab_size)
    values = tf.where(known, values, tf.constant(unk_id, tf.int64))
    return ids.with_flat_values(tf.cast(values, tf.int32))


def printable(piece: str) -> str:
    """Returns `piece` fit for a plot: a space as U+2581, other unprintable characters escaped."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in piece.replace(" ", "\u2581")
    )
