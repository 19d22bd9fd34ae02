"""What the sentencepiece library does, learning a model, and the types in the file it makes."""

import io
import pathlib
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from keras_transformer.subwords import explain
from keras_transformer.text.tokenizer import Tokenizer

TYPES = ("NORMAL", "UNKNOWN", "CONTROL", "USER_DEFINED", "UNUSED", "BYTE")
TYPES_BY_NUMBER = dict(enumerate(TYPES, start=1))
SPACE_MARK = "\u2581"  # as sentencepiece writes a space


def train_model(lines: Iterable[str], settings: Mapping[str, Any]) -> bytes:
    """Returns the serialized model learned from lines; `settings` are the library's.

    `normalization_rules` among them are the text of a file of rules. The model does not keep the
    path of that file, so that the same texts give the same model everywhere.
    """
    sentencepiece = import_sentencepiece("Training a SentencePieceTokenizer")
    rules = settings.get("normalization_rules")
    settings = {name: value for name, value in settings.items() if name != "normalization_rules"}
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        if rules is not None:
            path = pathlib.Path(folder, "rules.tsv")
            path.write_text(rules, encoding="utf-8")
            settings["normalization_rule_tsv"] = str(path)
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                pad_id=Tokenizer.pad_id,
                unk_id=Tokenizer.unk_id,
                bos_id=Tokenizer.bos_id,
                eos_id=Tokenizer.eos_id,
                minloglevel=2,
                **settings,
            )
        except RuntimeError as error:
            raise ValueError(explain(str(error), settings["vocab_size"])) from error
    return model.getvalue() if rules is None else without_path(model.getvalue())


def rules_for_unseen(seen: Iterable[str]) -> str:
    """Rules that read characters outside of `seen` as characters of `seen`, one rule a line.

    A character that has no piece would be unknown. Unicode says what many of them stand for: a
    no-break space for a space, "ﬁ" for "fi", and e with a combining accent for "é". Characters
    that nobody sees, such as U+200B, stand for nothing. No rule has only characters of `seen`, so
    the training texts stay as they are.
    """
    seen = {*seen, " "}
    rules: dict[str, str] = {}
    for character in map(chr, range(sys.maxunicode + 1)):
        invisible = unicodedata.category(character) == "Cf"
        if character in seen or not (invisible or unicodedata.decomposition(character)):
            continue
        stands_for = "" if invisible else unicodedata.normalize("NFKC", character)
        if stands_for != character and seen.issuperset(stands_for):
            rules[character] = stands_for
    for character in sorted(seen):
        decomposed = unicodedata.normalize("NFD", character)
        for form in (decomposed, unicodedata.normalize("NFC", decomposed[:-1]) + decomposed[-1]):
            if len(form) > 1 and not seen.issuperset(form):
                rules[form] = character
    return "\n".join(f"{_code_points(one)}\t{_code_points(other)}" for one, other in rules.items())


def _code_points(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)


def without_path(model: bytes) -> bytes:
    """Returns a serialized model without the path of its file of rules."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString(deterministic=True)


def with_symbols(model: bytes, symbols: Iterable[str]) -> bytes:
    """Returns a serialized model with more user-defined symbols, behind all pieces that it has."""
    import_sentencepiece("A model with more pieces")
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    own = {piece.piece: piece for piece in proto.pieces}
    for symbol in symbols:
        piece = own[symbol] if symbol in own else proto.pieces.add(piece=symbol, score=0.0)
        piece.type = proto.SentencePiece.USER_DEFINED
    return proto.SerializeToString(deterministic=True)


class PieceTypes(NamedTuple):
    """What the file of a model says of its pieces.

    Attributes:
        types: list of the type of each, one of TYPES.
        special: `pad_id`, `bos_id` and `eos_id` to the piece that the model names for each.
    """

    types: list[str]
    special: dict[str, str]


def read_types(model: bytes) -> PieceTypes:
    """Returns the `PieceTypes` of a serialized model, read without the library.

    Raises:
        ValueError: when a field has a form or a value that no model of sentencepiece has. The
            library reads over some of them, such as the groups of old messages.
    """
    types = []
    special = {"pad_id": "<pad>", "bos_id": "<s>", "eos_id": "</s>"}
    numbers = {48: "pad_id", 46: "bos_id", 47: "eos_id"}  # of TrainerSpec
    try:
        for number, message in fields(model):
            if number == 1:  # of ModelProto: pieces
                types.append(TYPES_BY_NUMBER[read_type(message)])
            elif number == 2:  # trainer_spec
                found = {numbers[n]: value for n, value in fields(message) if n in numbers}
                special |= {name: value.decode() for name, value in found.items()}
    except (AttributeError, IndexError, KeyError, TypeError, UnicodeDecodeError):
        raise ValueError(
            "`model` must be a serialized sentencepiece model. "
            f"Received: model={model[:20]!r}... of {len(model)} bytes"
        ) from None
    return PieceTypes(types, special)


def read_type(piece: bytes) -> int:
    """Returns the number of the type of a piece, a message of its text, score and type."""
    # Most are a text, with its length in one byte, and the five bytes of a score: they are NORMAL.
    if len(piece) > 1 and piece[1] < 0x80 and len(piece) == piece[1] + 7 and piece[-5] == 0x15:
        return 1
    return dict(fields(piece)).get(3, 1)


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each field of a protocol buffer message."""
    value: Any  # an int, or bytes
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(message, at)
        else:
            size, at = varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = message[at : at + size], at + size
        yield number, value


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns the number that starts at a byte, seven bits a byte, and where it ends."""
    value = shift = 0
    while True:
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def import_sentencepiece(purpose: str) -> Any:
    """Returns the library, or says what it is needed for."""
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs sentencepiece. Install it with "
            '`pip install "keras-transformer-components[tensorflow]"`'
        ) from error
    return sentencepiece
