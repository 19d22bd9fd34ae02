"""The model as ONNX or LiteRT files, with its vocabulary beside them, for other runtimes."""

import json
import os

import tensorflow as tf

from keras_transformer.models.sequence_to_sequence import EXTRA_LENGTH
from keras_transformer.serving.directories import new_directory
from keras_transformer.text import SentencePieceTokenizer

ONNX_OPSET = 17
# What a program that splits texts itself must know of a tokenizer, and what one without it has.
TOKENIZER_OPTIONS = {
    "lossless": False,
    "reverse": False,
    "normalization": "identity",
    "lowercase": False,
}


def export_onnx(translator, path):
    """Writes the model as ONNX: `encoder.onnx`, `decoder.onnx`, vocabulary and settings.

    | file | inputs | outputs |
    |---|---|---|
    | encoder | `source_ids` int32[B, S] | `memory` float32[B, S, d_model] |
    | decoder | `target_ids` int32[B, T], `memory`, `source_ids` | `logits` float32[B, V] |

    Ids end in `eos_id` and are padded; `target_ids` begin with `bos_id`, and the logits are those
    of the token after the last. The search is the caller's: `examples/translate_portable.py` is a
    greedy one of NumPy alone. The decoder reads the whole output so far each time, which the
    SavedModel does not: for short outputs and small machines. `settings.json` has the special ids
    and limits; SentencePiece vocabularies are `source.model` and `target.model`, which
    sentencepiece opens, others `source.json` and `target.json`, a list of pieces.

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

    def convert(function, file):
        try:
            import tf2onnx
        except ImportError as error:
            raise ImportError("`export_onnx` needs tf2onnx: `pip install tf2onnx onnx`") from error
        signature = function.input_signature
        tf2onnx.convert.from_function(
            function, input_signature=signature, opset=ONNX_OPSET, output_path=file
        )

    write_parts(translator, path, "onnx", convert)


def export_litert(translator, path):
    """Writes the model as LiteRT (TensorFlow Lite): as `export_onnx`, with files `.tflite`.

    Inputs are found by name and resized to the shape of the call. Built-in operations alone.

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

    def convert(function, file):
        concrete = function.get_concrete_function()
        with open(file, "wb") as written:
            written.write(tf.lite.TFLiteConverter.from_concrete_functions([concrete]).convert())

    write_parts(translator, path, "tflite", convert)


def write_parts(translator, path, suffix, convert):
    """Writes a directory with both functions, by `convert(function, file)`, and what they need."""
    with new_directory(path) as written:
        for name, function in functions_of(translator.compiled.model).items():
            convert(function, os.path.join(written, f"{name}.{suffix}"))
        graph = translator.graph
        for side in ("source", "target"):
            write_vocabulary(os.path.join(written, side), getattr(graph, f"{side}_tokenizer"))
        with open(os.path.join(written, "settings.json"), "w", encoding="utf-8") as file:
            json.dump(settings_of(translator), file, indent=2)


def functions_of(model):
    """The encoder and the decoder of one more token as functions of TensorFlow."""
    model.build(None)
    source_ids, target_ids = (
        tf.TensorSpec([None, None], tf.int32, name=f"{side}_ids") for side in ("source", "target")
    )
    memory = tf.TensorSpec([None, None, model.d_model], tf.float32, name="memory")

    def encoder(source_ids):
        memory = model.encode(source_ids, training=False)
        return tf.identity(tf.cast(memory, tf.float32), name="memory")

    def decoder(target_ids, memory, source_ids):
        logits = model.decode(target_ids, memory, source_ids, training=False)
        return tf.identity(logits[:, -1], name="logits")

    return {
        "encoder": tf.function(encoder, [source_ids], autograph=False),
        "decoder": tf.function(decoder, [target_ids, memory, source_ids], autograph=False),
    }


def settings_of(translator):
    """What a search needs to know beside the functions."""
    model = translator.compiled.model
    ids = {name: getattr(model, name) for name in ("pad_id", "bos_id", "eos_id")}
    graph = translator.graph
    tokenizers = {
        side: type(getattr(graph, f"{side}_tokenizer")).__name__ for side in ("source", "target")
    }
    return {
        **ids,
        "unk_id": graph.source_tokenizer.unk_id,
        "max_source_length": translator.compiled.length_sizes[-1],
        "max_length": translator.compiled.max_length,
        "extra_length": EXTRA_LENGTH,  # of an output beyond its source, without max_length
        "tokenizers": tokenizers,
        **{
            option: {
                side: getattr(getattr(graph, f"{side}_tokenizer"), option, default)
                for side in ("source", "target")
            }
            for option, default in TOKENIZER_OPTIONS.items()
        },
    }


def write_vocabulary(path, tokenizer):
    """Writes a vocabulary in the form that others read."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        with open(f"{path}.model", "wb") as file:
            file.write(tokenizer.model)
        return
    with open(f"{path}.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer.surfaces(), file, ensure_ascii=False, indent=0)
