"""SentencePieceTokenizer: subwords learned with sentencepiece, run in the graph with TF Text."""

import functools
import hashlib
import os
import pathlib
import random
import re
from collections.abc import Iterable
from os import PathLike
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_transformer import arguments
from keras_transformer.reservoir import sample_evenly
from keras_transformer.subwords import training_lines
from keras_transformer.symbols import WHITE_SPACE
from keras_transformer.text.bpe_dropout import BpeDropout
from keras_transformer.text.folding import FORMS, Folding
from keras_transformer.text.piece_ids import SPECIAL, Vocabulary, number_pieces, read_vocabulary
from keras_transformer.text.sentencepiece_library import (
    SPACE_MARK,
    rules_for_unseen,
    train_model,
    with_symbols,
)
from keras_transformer.text.strings import each_text, string_constant, text_list, valid_text
from keras_transformer.text.tokenizer import Tokenizer, TokensWithOffsets
from keras_transformer.text.vocabulary import SPECIAL_PIECES, fingerprints, look_up_ids

MODEL_TYPES = ("bpe", "unigram")
LOSSLESS_SETTINGS = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
    "byte_fallback": True,
}
# Rules that sentencepiece brings along, beside those that `FORMS` names.
RULES = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc_cf")
NUM_BYTES = 256
BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
# Lossless text spells a SPACE_MARK of its own as ESCAPE "a", and ESCAPE itself, a private-use
# character, as ESCAPE "b".
ESCAPE = "\ue000"


class SentencePieceTokenizer(Tokenizer):
    """Splits text into the subwords of a sentencepiece model (BPE or unigram).

    As `train` makes it, text comes back as it was, but for white space and unseen characters. Runs
    of ASCII white space come back as one space, those at either end not at all. A character that
    has no piece reads back as U+2047, unless the model spells such characters in bytes. U+2581 is
    a space. A model trained with `lossless=True` gives every valid Unicode string back exactly.

    `from_file` opens a model that others have trained, wherever its special ids are. A special id
    that is not given is that of the model's piece with this name, such as `</s>`. Where there is no
    such piece it is a new id, behind all others. Text becomes neither a special id nor a tag. Give
    `pad_id`, `bos_id` and `eos_id` of the tokenizer to the model, the loss and the metrics.

    With a `vocabulary` the ids are those of its pieces. A piece of the sentencepiece model that it
    lacks becomes `unk_id`. A piece that the sentencepiece model lacks reads back as its text. An id
    without a piece reads as `unk_id`.

    Args:
        model: bytes, a serialized sentencepiece model.
        lossless: whether `model` was trained with `lossless=True`.
        normalization: the Unicode normal form that a text gets before the model's own rule, "nfc"
            or "nfkc", or "identity" for none.
        lowercase: whether a text is lower-cased before that, as `str.lower` does.
        vocabulary: list of pieces by id, where None is an id without a piece, or a dict of pieces
            to ids. Or the path of a JSON file with either, as `vocab.json` of Hugging Face. None
            takes the ids of the model.
        pad_id, unk_id, bos_id, eos_id: the special ids. `bos_id` may be `pad_id` or `eos_id`.
        tags: iterable of the pieces that text never becomes and that `detokenize` skips, such as
            language codes. A new one gets an id behind all others. None takes the control pieces
            of the model, and language codes of `vocabulary` that the model lacks: `>>fra<<`,
            `eng_Latn`, `__en__`.
        leading_tags: whether a tag at the beginning of a text becomes its id. What stands there
            between `>>` and `<<` counts as a tag, with `unk_id` where the vocabulary lacks it.

    Returns:
        A tokenizer with the ids of `vocabulary` or of `model`.

    Raises:
        OSError: when the file of a vocabulary cannot be read.
        ValueError: when `model` is not a sentencepiece model, or no id is for unknown text. When
            special ids that must differ are the same, or an option is bad.

    Reference: Kudo and Richardson 2018; Sennrich et al. 2016 (BPE); Kudo 2018 (unigram).

    Example:

    >>> texts = ["a man rides a horse", "a man feeds a dog"] * 5
    >>> tokenizer = SentencePieceTokenizer.train(texts, vocab_size=40)
    >>> tokenizer.pieces(tokenizer.tokenize(["a man"])[0])
    ['▁a', '▁man']
    >>> tokenizer.detokenize(tokenizer.tokenize(["a man rides"])).numpy().tolist()
    [b'a man rides']
    """

    def __init__(
        self,
        model: bytes,
        *,
        lossless: bool = False,
        normalization: str = "identity",
        lowercase: bool = False,
        vocabulary: Vocabulary | None = None,
        pad_id: int | None = None,
        unk_id: int | None = None,
        bos_id: int | None = None,
        eos_id: int | None = None,
        tags: Iterable[str] | None = None,
        leading_tags: bool = False,
    ) -> None:
        self.lossless = arguments.boolean("lossless", lossless)
        self.leading_tags = arguments.boolean("leading_tags", leading_tags)
        self._model = bytes(model)
        special = {"pad_id": pad_id, "unk_id": unk_id, "bos_id": bos_id, "eos_id": eos_id}
        listed = None if vocabulary is None else read_vocabulary(vocabulary)
        tags = None if tags is None else checked_tags(tags)
        pieces = model_pieces(self._model)
        self._numbered = number_pieces(self._model, pieces, listed, special, tags)
        folding = Folding(normalization, lowercase)
        super().__init__(
            self._numbered.pieces,
            folding,
            self._numbered.special,
            self._numbered.tags,
            self._numbered.codes,
        )
        given = {
            **special,
            "vocabulary": listed,
            "tags": tags,
            "leading_tags": leading_tags or None,
        }
        self._given = {name: value for name, value in given.items() if value is not None}

    @classmethod
    def from_file(cls, path: str | PathLike[str], **options: Any) -> Self:
        """Opens a model that sentencepiece wrote, often named `*.model` or `*.spm`.

        Args:
            path: the file.
            **options: arguments of `SentencePieceTokenizer`.

        Returns:
            A tokenizer whose `model` is that of the file. `load` reads what `save` wrote.

        Raises:
            OSError: when the file cannot be read.
            ValueError: when it is not a sentencepiece model, or an option is bad.

        Example:

        >>> SentencePieceTokenizer.from_file("nowhere.model")
        Traceback (most recent call last):
            ...
        FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.model'
        """
        try:
            return cls(pathlib.Path(path).read_bytes(), **options)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8000,
        *,
        model_type: str = "bpe",
        lossless: bool = False,
        character_coverage: float | None = None,
        split_digits: bool = False,
        lowercase: bool = False,
        shrink_to_fit: bool = False,
        normalization: str | PathLike[str] = "identity",
        byte_fallback: bool | None = None,
        user_defined_symbols: Iterable[str] = (),
        input_sentence_size: int | None = None,
    ) -> Self:
        """Learns a model from `texts`; the same texts in the same order give the same model.

        Args:
            texts: iterable of str. Line breaks end a sentence and are not part of a piece.
            vocab_size: the size of the vocabulary, special ids included.
            model_type: "bpe" or "unigram".
            lossless: keep every character: no normalisation, and unseen ones as UTF-8 bytes. It
                takes 256 ids of the vocabulary.
            character_coverage: the share of the characters of `texts` that get an id of their own.
                None is 1, so that no digit or quotation mark is unknown for being rare. It is
                0.9995 in a lossless vocabulary, and where the distinct ones would take more than
                an eighth of the vocabulary, as in Chinese.
            split_digits: whether each digit is a piece of its own.
            lowercase: whether every text is lower-cased, here and later, as `str.lower` does.
            shrink_to_fit: when the texts are too few for `vocab_size` pieces, use the largest
                number they allow instead of raising; `tokenizer.vocab_size` tells it.
            normalization: what every text gets, here and later: "identity" keeps its characters,
                "nfc" and "nfkc" are Unicode's normal forms. A character that `texts` do not have
                reads as what Unicode says it stands for, if `texts` have that. Or a rule of
                sentencepiece, which the model itself holds: "nmt_nfkc", its default,
                "nmt_nfkc_cf", "nfkc_cf", or the path of a file of rules, "*.tsv". What a rule
                replaces does not come back from `detokenize`. For sources alone it may replace
                more than for targets: `SentencePieceTokenizer(tokenizer.model,
                normalization="nfkc")` has the same ids.
            byte_fallback: whether characters that have no piece are spelled in UTF-8 bytes, which
                takes 256 ids, instead of `unk_id`. True spells every unseen character so, also one
                that stands for others. None spells the rest so where `character_coverage` is
                below 1 and the bytes take at most an eighth of the vocabulary.
            user_defined_symbols: iterable of placeholders and the like. Each is one piece wherever
                a text has it, also within a word: never split, with dropout neither, and given
                back as it is. No other characters make it, but those that the normalization
                replaces by its own. A text is lower-cased first, so with `lowercase` a symbol has
                no capitals. The symbols are in the vocabulary behind the special ids, and in a
                lossless one two more, which keep U+2581 apart from them.
            input_sentence_size: the largest number of lines to learn from. Of more lines it takes
                a sample, the same one each time, and reads `texts` one by one. What it leaves out
                is unseen. None takes all lines.

        Returns:
            A tokenizer whose `model` is the learned one, the bytes of a file of sentencepiece.

        Raises:
            ImportError: when sentencepiece is not installed.
            TypeError: when `texts` is not an iterable of str.
            ValueError: when `vocab_size` is too large or too small for the texts; the message
                gives the limit. When `texts` hold no text, or an option is bad.

        Example:

        >>> texts = ["one two three"] * 5
        >>> SentencePieceTokenizer.train(texts, vocab_size=8000, shrink_to_fit=True).vocab_size
        31
        """
        settings: dict[str, Any] = {
            "vocab_size": arguments.positive_integer("vocab_size", vocab_size),
            "model_type": arguments.one_of("model_type", model_type, MODEL_TYPES),
            "character_coverage": _coverage(character_coverage),
            "split_digits": arguments.boolean("split_digits", split_digits),
            "hard_vocab_limit": not arguments.boolean("shrink_to_fit", shrink_to_fit),
        }
        arguments.boolean("lossless", lossless)
        rule, form = _rule_and_form(normalization)
        folding = Folding(form, lowercase)
        symbols = checked_symbols("user_defined_symbols", user_defined_symbols, folding)
        size = arguments.optional(
            arguments.positive_integer, "input_sentence_size", input_sentence_size
        )
        stream = training_lines(map(valid_text, each_text("texts", texts)))
        lines = folding.fold_texts(list(stream) if size is None else sample_evenly(stream, size))
        settings |= LOSSLESS_SETTINGS if lossless else rule
        if lossless:
            if folding.options() or normalization != "identity" or byte_fallback is False:
                raise ValueError(
                    "`lossless` keeps every character, so `lowercase`, `normalization` and "
                    f"`byte_fallback` must be as they are. Received: lossless=True, lowercase="
                    f"{lowercase}, normalization={normalization!r}, byte_fallback={byte_fallback}"
                )
            lines = [_escape_text(line) for line in lines]
            # An escape and the text behind it must not be read as a symbol.
            symbols += [f"{ESCAPE}a", f"{ESCAPE}b"] if symbols else []
        if not any(line.strip() for line in lines):
            raise ValueError("`texts` must hold some text. Received: only empty texts")
        if "normalization_rules" in settings and normalization in FORMS and not byte_fallback:
            settings["normalization_rules"] += "\n" + rules_for_unseen(set().union(*lines))
        if character_coverage is None:
            few = not lossless and 8 * len(set().union(*lines)) <= vocab_size
            settings["character_coverage"] = 1.0 if few else 0.9995
        if byte_fallback is not None:
            settings["byte_fallback"] = arguments.boolean("byte_fallback", byte_fallback)
        elif settings["character_coverage"] < 1 and vocab_size >= 8 * NUM_BYTES:
            settings["byte_fallback"] = True
        if symbols:
            settings["user_defined_symbols"] = symbols
        model = train_model(lines, settings)
        return cls(model, lossless=lossless, normalization=form, lowercase=lowercase)

    @property
    def model(self) -> bytes:
        """The serialized sentencepiece model, bytes that the sentencepiece library reads."""
        return self._model

    @property
    def has_model_ids(self) -> bool:
        """Whether text becomes, and is read from, the ids that sentencepiece itself gives."""
        numbered = self._numbered
        of_others = numbered.from_model, numbered.to_model, numbered.from_text, numbered.to_text
        return all(part is None for part in of_others)

    def tokenize_graph(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Runs TF Text's op on a model that is a constant of the graph."""
        pieces = self._op(out_type=self._piece_type).tokenize(self._escaped(strings))
        return self._numbers(pieces)

    def tokenize_with_offsets_graph(self, strings: tf.Tensor) -> TokensWithOffsets:
        """Runs TF Text's op; of a lossless model the offsets leave out what escapes add."""
        escaped = self._escaped(strings)
        pieces, starts, ends = self._op(out_type=self._piece_type).tokenize_with_offsets(escaped)
        if self.lossless:
            starts, ends = (without_escapes(escaped, offsets) for offsets in (starts, ends))
        return TokensWithOffsets(self._numbers(pieces), starts, ends)

    def tokenize_with_dropout(
        self, texts: Iterable[str], rate: float, seed: int
    ) -> list[list[int]]:
        """Splits texts into pieces without some of the merges: other ones for each seed.

        BPE merges pieces step by step. Each possible merge is left out of a step with probability
        `rate`, and a word is done when all of a step's are. For training;
        `translation_dataset(subword_dropout=...)` does so pass by pass.

        Args:
            texts: iterable of str.
            rate: in [0, 1); 0.1 is the paper's. 0 gives the ids of `tokenize`.
            seed: integer from 0 up; the same one gives the same pieces, in every process.

        Returns:
            A list of lists of ids.

        Raises:
            ImportError: when sentencepiece is not installed.
            TypeError: when `texts` is not an iterable of str.
            ValueError: for a bad argument, or a model of another type than BPE.

        Reference: Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword
        Regularization".

        Example:

        >>> tokenizer = SentencePieceTokenizer.train(["a man rides"] * 5, vocab_size=20)
        >>> tokenizer.pieces(tokenizer.tokenize_with_dropout(["a man"], 0.9, seed=1)[0])
        ['▁', 'a', '▁', 'm', 'a', 'n']
        """
        rate, seed = arguments.rate("rate", rate), arguments.non_negative_integer("seed", seed)
        texts = [valid_text(text) for text in text_list("texts", texts)]
        draws = random.Random(seed)
        return [self.bpe_dropout.split(ids, rate, draws) for ids in self.tokenize(texts).to_list()]

    @functools.cached_property
    def bpe_dropout(self) -> BpeDropout:
        """The `BpeDropout` of this tokenizer's model."""
        return BpeDropout(self._model, self._numbered.from_model, self.unk_id)

    def surfaces(self) -> list[str]:
        """The pieces with spaces for U+2581; of byte pieces those that are ASCII."""
        return self._numbered.surfaces

    def with_pieces(self, pieces: Iterable[str]) -> "SentencePieceTokenizer":
        """Returns a tokenizer with more pieces, whose ids stand behind all others.

        Each is one piece wherever a text has it, also within a word, as `user_defined_symbols` of
        `train` are. Text without them has the ids that it had. `interop.resize_vocabulary` gives a
        model the new ids.

        Args:
            pieces: iterable of str, such as words of a field, as texts have them.

        Raises:
            ImportError: when sentencepiece is not installed.
            ValueError: when a piece is in the vocabulary, has a space, or is not as texts are read
                here. When the tokenizer is lossless.

        Example:

        >>> texts = ["a man rides a horse", "a man feeds a dog"] * 5
        >>> tokenizer = SentencePieceTokenizer.train(texts, vocab_size=30)
        >>> larger = tokenizer.with_pieces(["horse"])
        >>> larger.pieces(larger.tokenize(["a horse"])[0])
        ['▁a', '▁', 'horse']
        """
        if self.lossless:
            raise ValueError(
                "a lossless tokenizer gets symbols from `train(user_defined_symbols=...)` alone. "
                "Received: lossless=True"
            )
        pieces = checked_symbols("pieces", pieces, self._folding)
        own = set(self.vocabulary)
        if known := [piece for piece in pieces if piece in own]:
            raise ValueError(
                "`pieces` must be new: what the vocabulary has cannot be added. "
                f"Received: {known!a:.200}"
            )
        options, model = self._options_and_payload()
        unknown = self.vocabulary[self.unk_id]
        options["vocabulary"] = [
            None if piece == unknown and index != self.unk_id else piece
            for index, piece in enumerate(self.vocabulary)
        ] + pieces
        # Not `self.tags`, which also lists symbols that text becomes.
        options |= {name: getattr(self, name) for name in SPECIAL} | {"tags": list(self._tags)}
        return self.from_payload(options, with_symbols(model, pieces))

    def without_leading_tags(self) -> "SentencePieceTokenizer":
        """Returns the tokenizer with `leading_tags=False`, the same one at each call."""
        return self._reader if self.leading_tags else self

    @functools.cached_property
    def _reader(self) -> "SentencePieceTokenizer":
        options, payload = self._options_and_payload()
        return self.from_payload({**options, "leading_tags": False}, payload)

    @property
    def _piece_type(self) -> tf.DType:
        return tf.int32 if self._numbered.from_text is None else tf.string

    def _numbers(self, pieces: tf.RaggedTensor) -> tf.RaggedTensor:
        """The ids of ragged pieces of the model, which are its ids or their text."""
        from_model, from_text = self._numbered.from_model, self._numbered.from_text
        if from_text is not None:
            with tf.init_scope():
                prints = fingerprints(string_constant(from_text)).numpy()
            values = pieces.with_flat_values(fingerprints(pieces.flat_values))
            return look_up_ids(
                values, prints, self.unk_id, np.array([*from_text.values()], "int32")
            )
        if from_model is not None:
            return tf.gather(tf.constant(from_model), pieces)
        return pieces

    def _escaped(self, strings: tf.Tensor) -> tf.Tensor:
        if self.lossless:
            strings = tf.strings.regex_replace(strings, ESCAPE, f"{ESCAPE}b")
            strings = tf.strings.regex_replace(strings, SPACE_MARK, f"{ESCAPE}a")
        return strings

    def detokenize_graph(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Runs TF Text's op on a model that is a constant of the graph."""
        numbered = self._numbered
        if numbered.to_text is not None:
            strings = self._detokenize_pieces(ids, numbered.to_text)
        elif numbered.to_model is not None:
            strings = self._op().detokenize(tf.gather(tf.constant(numbered.to_model), ids))
        else:
            strings = self._op().detokenize(ids)
        if self.lossless:
            strings = tf.strings.regex_replace(strings, f"{ESCAPE}a", SPACE_MARK)
            strings = tf.strings.regex_replace(strings, f"{ESCAPE}b", ESCAPE)
        return strings

    def _detokenize_pieces(self, ids: tf.RaggedTensor, pieces: Iterable[str]) -> tf.Tensor:
        """The strings of ragged ids, by the piece of each id: the model gives unknown ones back."""
        # One string of all pieces, because a constant of very many strings takes seconds to make.
        encoded = [piece.encode() for piece in pieces]
        lengths = np.array([len(piece) for piece in encoded], "int32")
        starts = np.cumsum(lengths, dtype="int32") - lengths
        found = ids.flat_values
        texts = tf.strings.substr(
            tf.constant(b"".join(encoded)), tf.gather(starts, found), tf.gather(lengths, found)
        )
        strings = self._op().detokenize(ids.with_flat_values(texts))
        # U+2581 is left of pieces that the model lacks.
        strings = tf.strings.regex_replace(strings, f"^{SPACE_MARK}", "")
        return tf.strings.regex_replace(strings, SPACE_MARK, " ")

    def _op(self, **options: Any) -> Any:
        # The op finds its model by the name of its node. Two models under one name, in functions
        # of one SavedModel, would be taken for each other.
        digest = hashlib.sha256(self._model).hexdigest()[:16]
        return tf_text.SentencepieceTokenizer(
            self._model, name=f"sentencepiece_{digest}", **options
        )

    def _options_and_payload(self) -> tuple[dict[str, Any], bytes]:
        # A file of a tokenizer that `train` made is the file that it was without vocabularies.
        return {"lossless": self.lossless} | self._folding.options() | self._given, self._model

    @classmethod
    def from_payload(cls, options: dict[str, Any], payload: bytes) -> Self:
        """Rebuilds a tokenizer from its serialized model."""
        return cls(payload, **options)


def model_pieces(model: bytes) -> list[str]:
    """Returns the piece of each id of a serialized model, read with TF Text's own ops."""
    with tf.init_scope():
        try:
            tokenizer = tf_text.SentencepieceTokenizer(model)
            pieces = tokenizer.id_to_string(tf.range(tokenizer.vocab_size()))
        except tf.errors.OpError as error:
            raise ValueError(
                "`model` must be a serialized sentencepiece model. "
                f"Received: model={model[:20]!r}... of {len(model)} bytes"
            ) from error
        return [piece.decode() for piece in pieces.numpy()]


def checked_tags(tags: Iterable[str]) -> list[str]:
    """Returns a list of tags, or raises `ValueError`."""
    tags = text_list("tags", tags)
    if len(set(tags)) < len(tags) or not all(tags):
        raise ValueError(
            f"`tags` must be distinct strings, none empty. Received: tags={tags!r:.200}"
        )
    return tags


def checked_symbols(name: str, symbols: Iterable[str], folding: Folding) -> list[str]:
    """Returns a list of symbols for a sentencepiece model, or raises `ValueError`."""
    symbols = text_list(name, symbols)
    bad = [symbol for symbol in symbols if not can_be_piece(symbol)]
    if bad or len(set(symbols)) < len(symbols):
        raise ValueError(
            f"`{name}` must be distinct strings of printable characters, without "
            f"spaces, U+2581, bytes such as <0x41>, and {', '.join(SPECIAL_PIECES)}. "
            f"Received: {name}={bad or symbols!a:.200}"
        )
    if folding.fold_texts(symbols) != symbols:
        raise ValueError(
            f"`{name}` must be as `lowercase` and `normalization` leave them: "
            f"{folding.fold_texts(symbols)!a:.200}. Received: {name}={symbols!a:.200}"
        )
    return symbols


def can_be_piece(text: str) -> bool:
    """Whether a text can be a piece that sentencepiece keeps whole."""
    fits = text.isprintable() and not {" ", SPACE_MARK} & set(text)
    return bool(text) and fits and text not in SPECIAL_PIECES and not BYTE_PIECE.fullmatch(text)


def without_escapes(escaped: tf.Tensor, offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    """Byte offsets (batch, length) in escaped strings, as offsets in the strings before.

    What is escaped has three bytes, and ESCAPE has three and its letter one more.
    """
    points, places = tf.strings.unicode_decode_with_offsets(escaped, "UTF-8")
    after = tf.concat([tf.zeros_like(points[:, :1]), points[:, :-1]], axis=1)
    letters = tf.ragged.boolean_mask(tf.cast(places, tf.int32), after == ord(ESCAPE))
    before = tf.searchsorted(
        letters.to_tensor(tf.int32.max), tf.cast(offsets, tf.int32).to_tensor()
    )
    lengths = offsets.row_lengths()
    before = tf.RaggedTensor.from_tensor(before, lengths=lengths)
    return tf.cast(offsets, tf.int32) - tf.cast(before, tf.int32)


def _rule_and_form(normalization: str | PathLike[str]) -> tuple[dict[str, str], str]:
    """Returns the library's setting of a `normalization`, and its form in the graph."""
    if isinstance(normalization, (str, os.PathLike)):
        if normalization in FORMS:
            spaces = [f"{ord(character):X}\t20" for character in WHITE_SPACE]
            return {"normalization_rules": "\n".join(spaces)}, normalization
        if normalization in RULES:
            return {"normalization_rule_name": normalization}, "identity"
        path = pathlib.Path(normalization)
        if path.suffix == ".tsv" and path.is_file():
            return {"normalization_rules": path.read_text(encoding="utf-8")}, "identity"
    listed = ", ".join(repr(name) for name in (*FORMS, *RULES))
    raise ValueError(
        f"`normalization` must be one of {listed}, or the path of a file of rules whose name ends "
        f"in '.tsv'. Received: normalization={normalization!r}"
    )


def _escape_text(text: str) -> str:
    return text.replace(ESCAPE, f"{ESCAPE}b").replace(SPACE_MARK, f"{ESCAPE}a")


def _coverage(character_coverage: float | None) -> float | None:
    if character_coverage is None:
        return None
    value = arguments.positive_number("character_coverage", character_coverage)
    if value > 1:
        raise ValueError(
            "`character_coverage` must be above 0 and at most 1. "
            f"Received: character_coverage={character_coverage}"
        )
    return value
