"""What the sentencepiece library does, learning a model, and the types in the file it makes."""

import io
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keras_transformer.text.tokenizer import Tokenizer

TYPES = ("NORMAL", "UNKNOWN", "CONTROL", "USER_DEFINED", "UNUSED", "BYTE")  # numbered from 1
SPACE_MARK = "\u2581"  # as sentencepiece writes a space


def train_model(lines: Iterable[str], settings: Mapping[str, Any]) -> bytes:
    """Returns the serialized model learnt from lines; `settings` are the library's.

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


def without_path(model: bytes) -> bytes:
    """Returns a serialized model without the path of its file of rules."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString(deterministic=True)


def piece_types(model: bytes) -> Iterator[str]:
    """Yields the type of each piece of a serialized model, one of TYPES, without the library."""
    for number, piece in fields(model):
        if number == 1:  # of ModelProto: pieces
            yield TYPES[dict(fields(piece)).get(3, 1) - 1]  # of SentencePiece: type


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


def explain(message: str, vocab_size: int) -> str:
    """Returns sentencepiece's message as a rule and what was received."""
    largest = re.search(r"too high.*<= (\d+)", message)
    if largest:
        return (
            f"`vocab_size` must be at most {largest[1]} for these texts; more text allows more, "
            "and `shrink_to_fit=True` takes the largest possible. "
            f"Received: vocab_size={vocab_size}"
        )
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if smallest:
        return (
            f"`vocab_size` must be at least {smallest[1]} to hold the characters of these texts. "
            f"Received: vocab_size={vocab_size}"
        )
    return f"`texts` must be text that sentencepiece can learn from. Received: {message}"


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
