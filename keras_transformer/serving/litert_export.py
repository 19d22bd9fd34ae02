"""The model as LiteRT files, an encoder and a decoder, with its vocabulary beside them."""

import os
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from keras_transformer.atomic_files import new_directory
from keras_transformer.models.recurrent import RecurrentSeq2Seq
from keras_transformer.serving.portable_files import for_portable, write_portable_files

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator


def export_litert(translator: "Translator", path: str | os.PathLike[str]) -> None:
    """Writes the model as LiteRT (TensorFlow Lite), without its search, and its vocabulary.

    | file | inputs | outputs |
    |---|---|---|
    | `encoder.tflite` | `source_ids` int32[B, S] | `memory` float32[B, S, d_model] |
    | `decoder.tflite` | `target_ids` int32[B, T], `memory`, `source_ids` | `logits` float32[B, V] |

    Ids end in `eos_id` and are padded. `target_ids` begin with `bos_id`. The logits are those of
    the token after the last. The decoder reads the whole output so far for each token: use it for
    short outputs and small machines. A program finds inputs by name and resizes them to the shape
    of the call. The files have built-in operations alone. A model of half precision becomes one of
    float32.

    `portable_translator.py`, with a greedy search in NumPy, translates texts with the files.
    `settings.json` has the special ids and limits. SentencePiece vocabularies are `source.model`
    and `target.model`, which sentencepiece opens. Other vocabularies are `source.json` and
    `target.json`, a list of pieces.

    Args:
        translator: a `Translator`. The files leave out its search, its `layout`, and its
            `quantize`, with a warning.
        path: the directory to make.

    Raises:
        ValueError: when `path` exists, or for a recurrent model.

    Example:

    >>> import os, tempfile
    >>> from keras_transformer import Transformer
    >>> from keras_transformer.serving import Translator, export_litert
    >>> from keras_transformer.text import CharacterTokenizer
    >>> tokenizer = CharacterTokenizer.train(["abc"])
    >>> model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> path = os.path.join(tempfile.mkdtemp(), "portable")
    >>> export_litert(Translator(model, tokenizer, max_length=4), path)
    >>> sorted(name for name in os.listdir(path) if name.endswith("tflite"))
    ['decoder.tflite', 'encoder.tflite']
    """
    with new_directory(path) as written:
        check_model(translator.model)
        translator = for_portable(translator)
        for name, function in make_functions(translator.model).items():
            concrete = function.get_concrete_function()
            with open(os.path.join(written, f"{name}.tflite"), "wb") as file:
                file.write(tf.lite.TFLiteConverter.from_concrete_functions([concrete]).convert())
        write_portable_files(written, translator)


def check_model(model: keras.Model) -> None:
    """Raises `ValueError` for a model that LiteRT cannot run."""
    if isinstance(model, RecurrentSeq2Seq):
        raise ValueError(
            "`translator` must not have a recurrent model for LiteRT, which needs the size of a "
            "batch before its loops; export to ONNX instead. "
            f"Received: a translator of a {type(model).__name__}"
        )


def make_functions(model: keras.Model) -> dict[str, Any]:
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
