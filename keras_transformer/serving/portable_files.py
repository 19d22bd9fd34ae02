"""The files beside a portable model: its vocabularies, its settings, and a program that uses them.

The program, `portable_translator.py`, is copied as it is: it needs neither Keras nor TensorFlow.
"""

import json
import os
import shutil
import warnings
from typing import TYPE_CHECKING, Any

from keras_transformer.models.sequence_to_sequence import EXTRA_LENGTH
from keras_transformer.serving.stored_copy import float32_model
from keras_transformer.text import SentencePieceTokenizer
from keras_transformer.text.sentencepiece_tokenizer import model_pieces
from keras_transformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

SETTINGS = "settings.json"
PROGRAM = "portable_translator.py"


def for_portable(translator: "Translator", quantization: str | None = None) -> "Translator":
    """Returns the translator, or one like it whose model is as portable files hold it.

    Such a model computes in float32, changes of LoRA are merged, and matrices are in rows. Warns
    where the translator's `quantize` is left out and no `quantization` of the files replaces it.
    """
    if translator.quantize and not quantization:
        warnings.warn(
            "the files hold the model in float32: they leave out the translator's "
            f"quantize={translator.quantize!r}",
            stacklevel=3,
        )
    model, functions = float32_model(translator.model), translator.id_functions
    if model is translator.model and functions.model is model:
        return translator
    changes = {"model": model, "layout": "rows", "quantize": None}
    return type(translator)(**{**translator.settings, **changes})


def write_portable_files(directory: str, translator: "Translator") -> None:
    """Writes the vocabularies, `settings.json` and the program to a directory."""
    write_vocabulary(os.path.join(directory, "source"), translator.source_tokenizer)
    write_vocabulary(os.path.join(directory, "target"), translator.target_tokenizer)
    with open(os.path.join(directory, SETTINGS), "w", encoding="utf-8") as file:
        json.dump(collect_settings(translator), file, indent=2)
    own = os.path.join(os.path.dirname(__file__), PROGRAM)
    shutil.copyfile(own, os.path.join(directory, PROGRAM))


def collect_settings(translator: "Translator") -> dict[str, Any]:
    """Returns what a program that splits texts, and perhaps searches, needs beside the model."""
    model = translator.model
    source, target = translator.source_tokenizer, translator.target_tokenizer
    sides = {"source": source, "target": target}
    tags = {"source": translator.source_tag, "target": translator.target_tag}
    return {
        "pad_id": model.pad_id,
        "bos_id": model.bos_id,
        "eos_id": model.eos_id,
        "unk_id": {side: tokenizer.unk_id for side, tokenizer in sides.items()},
        "vocab_size": {side: tokenizer.vocab_size for side, tokenizer in sides.items()},
        "max_source_length": translator.max_source_length,
        "max_length": translator.max_length,
        "extra_length": EXTRA_LENGTH,  # of an output beyond its source, without max_length
        "longest": model.longest_target,  # the last position of an output, None for no limit
        "tokenizers": {side: type(tokenizer).__name__ for side, tokenizer in sides.items()},
        "lossless": {side: is_lossless(tokenizer) for side, tokenizer in sides.items()},
        "own_ids": {side: has_own_ids(tokenizer) for side, tokenizer in sides.items()},
        "reverse": {side: tokenizer.reverse for side, tokenizer in sides.items()},
        "normalization": {side: tokenizer.normalization for side, tokenizer in sides.items()},
        "lowercase": {side: tokenizer.lowercase for side, tokenizer in sides.items()},
        "tag_ids": {
            side: None if tag is None else sides[side].tag_id(tag) for side, tag in tags.items()
        },
        "leading_tags": source.leading_tags,
        "split_sentences": translator.split_sentences,
        "source_eos": translator.source_eos,
    }


def is_lossless(tokenizer: Tokenizer) -> bool:
    """Returns whether a tokenizer keeps every byte of a text."""
    return isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.lossless


def has_own_ids(tokenizer: Tokenizer) -> bool:
    """Returns whether the ids differ from those of the sentencepiece model in the file."""
    return isinstance(tokenizer, SentencePieceTokenizer) and (
        model_pieces(tokenizer.model) != tokenizer.vocabulary
    )


def write_vocabulary(path: str, tokenizer: Tokenizer) -> None:
    """Writes a vocabulary in the form that other programs read."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        with open(f"{path}.model", "wb") as file:
            file.write(tokenizer.model)
        return
    with open(f"{path}.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer.surfaces(), file, ensure_ascii=False, indent=0)
