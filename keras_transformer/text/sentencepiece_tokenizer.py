"""SentencePieceTokenizer: subwords learnt with sentencepiece, run in the graph with TF Text."""

import functools
import hashlib
import itertools
import os
import pathlib
import random
import re
from collections.abc import Iterable
from os import PathLike
from typing import Any, Self

import tensorflow as tf
import tensorflow_text as tf_text

from keras_transformer import arguments
from keras_transformer.text.bpe_dropout import BpeDropout
from keras_transformer.text.folding import FORMS, Folding
from keras_transformer.text.sentencepiece_library import (
    SPACE_MARK,
    piece_types,
    rules_for_unseen,
    train_model,
)
from keras_transformer.text.strings import text_list, valid_text
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.text.vocabulary import SPECIAL_PIECES

MODEL_TYPES = ("bpe", "unigram")
LOSSLESS_SETTINGS = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
    "byte_fallback": True,
}
# Rules that sentencepiece brings along, beside those that `FORMS` names.
RULES = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc_cf")
WHITE_SPACE = "\t\n\v\f\r"  # of ASCII, beside the space
NUM_BYTES = 256
SPECIAL_TYPES = ("CONTROL", "UNKNOWN", "CONTROL", "CONTROL")
# sentencepiece leaves out training lines of more than 4192 bytes; a character has at most 4.
MAX_LINE_CHARACTERS = 1024
# Lossless text spells a SPACE_MARK of its own as ESCAPE "a", and ESCAPE itself, a private-use
# character, as ESCAPE "b".
ESCAPE = "\ue000"


class SentencePieceTokenizer(Tokenizer):
    """Splits text into the subwords of a sentencepiece model (BPE or unigram).

    As `train` makes it, text comes back as it was, but for white space and unseen characters. Runs
    of ASCII white space come back as one space, those at either end not at all. A character that
    has no piece reads back as U+2047, unless the model spells such characters in bytes. U+2581 is
    a space. A model trained with `lossless=True` gives every valid Unicode string back exactly.

    Args:
        model: bytes, a serialized sentencepiece model with the pieces <pad>, <unk>, <s>, </s> at
            the ids 0, 1, 2, 3, as `train` makes it.
        lossless: whether `model` was trained with `lossless=True`.
        normalization: the Unicode normal form that a text gets before the model's own rule, "nfc"
            or "nfkc", or "identity" for none.
        lowercase: whether a text is lower-cased before that, as `str.lower` does.

    Returns:
        A tokenizer with the ids of `model`.

    Raises:
        ValueError: when `model` is no sentencepiece model, or has other special ids or text that
            becomes them, or an option is bad.

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
        lossless: bool = False,
        normalization: str = "identity",
        lowercase: bool = False,
    ) -> None:
        self.lossless = arguments.boolean("lossless", lossless)
        self._model = bytes(model)
        super().__init__(model_pieces(self._model), Folding(normalization, lowercase))
        if tuple(self._vocabulary[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES:
            raise ValueError(
                f"`model` must have {', '.join(SPECIAL_PIECES)} as its first pieces. "
                f"Received: a model that starts with {self._vocabulary[:4]}"
            )
        types = tuple(itertools.islice(piece_types(self._model), len(SPECIAL_PIECES)))
        if types != SPECIAL_TYPES:
            raise ValueError(
                "`model` must have <pad>, <s> and </s> as control pieces and <unk> as the unknown "
                "one, so that no text becomes them. Train it with pad_id=0, unk_id=1, bos_id=2, "
                "eos_id=3 and without them in `user_defined_symbols`. "
                f"Received: pieces of the types {', '.join(types)}"
            )

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8000,
        model_type: str = "bpe",
        lossless: bool = False,
        character_coverage: float | None = None,
        split_digits: bool = False,
        lowercase: bool = False,
        shrink_to_fit: bool = False,
        normalization: str | PathLike[str] = "identity",
        byte_fallback: bool | None = None,
    ) -> Self:
        """Learns a model from `texts`; the same texts in the same order give the same model.

        Args:
            texts: iterable of str. Line breaks end a sentence and are no part of a piece.
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

        Returns:
            A `SentencePieceTokenizer`.

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
        lines = folding.fold_texts(training_lines(text_list("texts", texts)))
        settings |= LOSSLESS_SETTINGS if lossless else rule
        if lossless:
            if folding.options() or normalization != "identity" or byte_fallback is False:
                raise ValueError(
                    "`lossless` keeps every character, so `lowercase`, `normalization` and "
                    f"`byte_fallback` must be as they are. Received: lossless=True, lowercase="
                    f"{lowercase}, normalization={normalization!r}, byte_fallback={byte_fallback}"
                )
            lines = [_escape_text(line) for line in lines]
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
        return cls(train_model(lines, settings), lossless, form, lowercase)

    @property
    def model(self) -> bytes:
        """The serialized sentencepiece model, bytes that the sentencepiece library reads."""
        return self._model

    def tokenize_graph(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Runs TF Text's op on a model that is a constant of the graph."""
        return self._op(out_type=tf.int32).tokenize(self._escaped(strings))

    def tokenize_with_offsets_graph(
        self, strings: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Runs TF Text's op; of a lossless model the offsets leave out what escapes add."""
        escaped = self._escaped(strings)
        ids, starts, ends = self._op(out_type=tf.int32).tokenize_with_offsets(escaped)
        if self.lossless:
            starts, ends = (without_escapes(escaped, offsets) for offsets in (starts, ends))
        return ids, starts, ends

    def tokenize_with_dropout(
        self, texts: Iterable[str], rate: float, seed: int
    ) -> list[list[int]]:
        """Splits texts into pieces of which some are not merged: other ones for each seed.

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
        return BpeDropout(self._model)

    def surfaces(self) -> list[str]:
        """The pieces with spaces for U+2581; of byte pieces those that are ASCII."""
        texts = [piece.replace(SPACE_MARK, " ") for piece in self._vocabulary]
        texts[: len(SPECIAL_PIECES)] = [""] * len(SPECIAL_PIECES)
        bytes_found = [re.fullmatch(r"<0x([0-9A-F]{2})>", text) for text in texts]
        for index, found in enumerate(bytes_found):
            if found:
                texts[index] = bytes([int(found[1], 16)]).decode("ascii", "ignore")
        return texts

    def _escaped(self, strings: tf.Tensor) -> tf.Tensor:
        if self.lossless:
            strings = tf.strings.regex_replace(strings, ESCAPE, f"{ESCAPE}b")
            strings = tf.strings.regex_replace(strings, SPACE_MARK, f"{ESCAPE}a")
        return strings

    def detokenize_graph(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Runs TF Text's op on a model that is a constant of the graph."""
        strings = self._op().detokenize(ids)
        if self.lossless:
            strings = tf.strings.regex_replace(strings, f"{ESCAPE}a", SPACE_MARK)
            strings = tf.strings.regex_replace(strings, f"{ESCAPE}b", ESCAPE)
        return strings

    def _op(self, **options: Any) -> Any:
        # The op finds its model by the name of its node. Two models under one name, in functions
        # of one SavedModel, would be taken for each other.
        digest = hashlib.sha256(self._model).hexdigest()[:16]
        return tf_text.SentencepieceTokenizer(
            self._model, name=f"sentencepiece_{digest}", **options
        )

    def _options_and_payload(self) -> tuple[dict[str, Any], bytes]:
        return {"lossless": self.lossless} | self._folding.options(), self._model

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


def training_lines(texts: Iterable[str]) -> list[str]:
    """Returns the lines of `texts`, none longer than sentencepiece reads."""
    return [
        line[start : start + MAX_LINE_CHARACTERS]
        for text in texts
        for line in re.split(r"[\r\n]+", valid_text(text))
        for start in range(0, len(line), MAX_LINE_CHARACTERS)
    ]


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
