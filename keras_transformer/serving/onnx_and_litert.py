"""The model as ONNX or LiteRT files, with its vocabulary beside them, for other runtimes."""

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from keras_transformer.atomic_files import new_directory
from keras_transformer.models.sequence_to_sequence import EXTRA_LENGTH
from keras_transformer.text import SentencePieceTokenizer
from keras_transformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

ONNX_OPSET = 17


def export_onnx(translator: "Translator", path: str | os.PathLike) -> None:
    """Writes the model as ONNX: `encoder.onnx`, `decoder.onnx`, vocabulary and settings.

    | file | inputs | outputs |
    |---|---|---|
    | encoder | `source_ids` int32[B, S] | `memory` float32[B, S, d_model] |
    | decoder | `target_ids` int32[B, T], `memory`, `source_ids` | `logits` float32[B, V] |

    Ids end in `eos_id` and are padded. `target_ids` begin with `bos_id`. The logits are those of
    the token after the last. The caller supplies the search: `examples/translate_portable.py` is a
    greedy one in NumPy alone. The decoder reads the whole output so far for each token, which the
    SavedModel does not: use it for short outputs and small machines.

    `settings.json` has the special ids and limits. SentencePiece vocabularies are `source.model`
    and `target.model`, which sentencepiece opens. Other vocabularies are `source.json` and
    `target.json`, a list of pieces.

    Args:
        translator: a `Translator`; its search is left out.
        path: the directory to make.

    Returns:
        None.

    Raises:
        ImportError: without tf2onnx.
        ValueError: when `path` exists.

    Example:

    >>> export_onnx(None, ".")
    Traceback (most recent call last):
        ...
    ValueError: `path` must not exist yet. Received: path='...'
    """

    def convert(function: Any, file: str) -> None:
        try:
            import tf2onnx
        except ImportError as error:
            raise ImportError("`export_onnx` needs tf2onnx: `pip install tf2onnx onnx`") from error
        signature = function.input_signature
        tf2onnx.convert.from_function(
            function, input_signature=signature, opset=ONNX_OPSET, output_path=file
        )

    write_parts(translator, path, "onnx", convert)


def export_litert(translator: "Translator", path: str | os.PathLike) -> None:
    """Writes the model as LiteRT (TensorFlow Lite): as `export_onnx`, with files `.tflite`.

    A program finds inputs by name and resizes them to the shape of the call. The files have
    built-in operations alone.

    Args:
        translator: a `Translator`; its search is left out.
        path: the directory to make.

    Returns:
        None.

    Raises:
        ValueError: when `path` exists.

    Example:

    >>> import os, tempfile
    >>> from keras_transformer import Transformer
    >>> from keras_transformer.serving import Translator, export_litert
    >>> from keras_transformer.text import CharacterTokenizer
    >>> tokenizer = CharacterTokenizer.train(["abc"])
    >>> model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> path = os.path.join(tempfile.mkdtemp(), "portable")
    >>> export_litert(Translator(model, tokenizer, max_length=4), path)
    >>> sorted(os.listdir(path))
    ['decoder.tflite', 'encoder.tflite', 'settings.json', 'source.json', 'target.json']
    """

    def convert(function: Any, file: str) -> None:
        concrete = function.get_concrete_function()
        with open(file, "wb") as written:
            written.write(tf.lite.TFLiteConverter.from_concrete_functions([concrete]).convert())

    write_parts(translator, path, "tflite", convert)


def write_parts(
    translator: "Translator",
    path: str | os.PathLike,
    suffix: str,
    convert: Callable[[Any, str], None],
) -> None:
    """Writes a directory with both functions, by `convert(function, file)`, and what they need."""
    with new_directory(path) as written:
        for name, function in functions_of(translator.id_functions.model).items():
            convert(function, os.path.join(written, f"{name}.{suffix}"))
        write_vocabulary(os.path.join(written, "source"), translator.source_tokenizer)
        write_vocabulary(os.path.join(written, "target"), translator.target_tokenizer)
        with open(os.path.join(written, "settings.json"), "w", encoding="utf-8") as file:
            json.dump(settings_of(translator), file, indent=2)


def functions_of(model: keras.Model) -> dict[str, Any]:
    """Returns the encoder, and the decoder of one more token, as TensorFlow functions."""
    source_ids, target_ids = (
        tf.TensorSpec([None, None], tf.int32, name=f"{side}_ids") for side in ("source", "target")
    )
    memory = tf.TensorSpec([None, None, model.d_model], tf.float32, name="memory")

    def encoder(source_ids: tf.Tensor) -> tf.Tensor:
        memory = model.encode(source_ids, training=False)
        return tf.identity(tf.cast(memory, tf.float32), name="memory")

    def decoder(target_ids: tf.Tensor, memory: tf.Tensor, source_ids: tf.Tensor) -> tf.Tensor:
        logits = model.decode(target_ids, memory, source_ids, training=False)
        return tf.identity(logits[:, -1], name="logits")

    return {
        "encoder": tf.function(encoder, [source_ids], autograph=False),
        "decoder": tf.function(decoder, [target_ids, memory, source_ids], autograph=False),
    }


def settings_of(translator: "Translator") -> dict[str, Any]:
    """Returns what a program that searches and splits texts needs beside the functions."""
    model = translator.model
    source, target = translator.source_tokenizer, translator.target_tokenizer
    return {
        "pad_id": model.pad_id,
        "bos_id": model.bos_id,
        "eos_id": model.eos_id,
        "unk_id": source.unk_id,
        "max_source_length": translator.max_source_length,
        "max_length": translator.max_length,
        "extra_length": EXTRA_LENGTH,  # of an output beyond its source, without max_length
        "tokenizers": {"source": type(source).__name__, "target": type(target).__name__},
        "lossless": {"source": is_lossless(source), "target": is_lossless(target)},
        "reverse": {"source": source.reverse, "target": target.reverse},
        "normalization": {"source": source.normalization, "target": target.normalization},
        "lowercase": {"source": source.lowercase, "target": target.lowercase},
        "split_sentences": translator.split_sentences,
        "source_eos": translator.source_eos,
    }


def is_lossless(tokenizer: Tokenizer) -> bool:
    """Returns whether a tokenizer keeps every byte of a text."""
    return isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.lossless


def write_vocabulary(path: str, tokenizer: Tokenizer) -> None:
    """Writes a vocabulary in the form that other programs read."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        with open(f"{path}.model", "wb") as file:
            file.write(tokenizer.model)
        return
    with open(f"{path}.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer.surfaces(), file, ensure_ascii=False, indent=0)
