"""Writes a translator as one ONNX file with its search, and what a program needs beside it."""

import json
import os
from typing import TYPE_CHECKING, Any, Literal

import tensorflow as tf

from keras_transformer import arguments
from keras_transformer.atomic_files import new_directory
from keras_transformer.card_file import CARD, ONNX
from keras_transformer.decoding import Sampling
from keras_transformer.serving.model_card import checked_card, model_card
from keras_transformer.serving.onnx_integers import quantize_model
from keras_transformer.serving.onnx_loop import convert_function
from keras_transformer.serving.onnx_strings import check_translator, with_strings
from keras_transformer.serving.portable_files import for_portable, write_portable_files

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

STRINGS = "translator_strings.onnx"
SIZES = {
    "source_ids": ("batch", "source"),
    "ids": ("batch", "hypotheses", "length"),
    "scores": ("batch", "hypotheses"),
    "lengths": ("batch", "hypotheses"),
}
OUTPUTS = ("ids", "scores", "lengths")


def export_onnx(
    translator: "Translator",
    path: str | os.PathLike[str],
    quantization: Literal["int8"] | None = None,
    card: dict[str, Any] | None = None,
    strings: bool = False,
) -> None:
    """Writes `translator.onnx`, which searches, and the files that turn texts into ids and back.

    | | name | |
    |---|---|---|
    | input | `source_ids` | int32[B, S] |
    | output | `ids` | int32[B, n, L] |
    | output | `scores` | float32[B, n] |
    | output | `lengths` | int32[B, n] |

    Sources end in `eos_id` and are padded. The batch has at least one row. The search is that of
    the translator, with its cache, and its `n` hypotheses, the best first. Standard ONNX
    operations alone, so any runtime with the operator set 20 runs it, also in a browser. A model
    of half precision becomes one of float32.

    `portable_translator.py` beside it translates texts with onnxruntime and NumPy alone.
    `settings.json` has the special ids and limits, and `model_card.json` what the model is.
    SentencePiece vocabularies are `source.model` and `target.model`, which sentencepiece opens.
    Other vocabularies are `source.json` and `target.json`, a list of pieces.

    With `strings` there is a second file, `translator_strings.onnx`. It has the SentencePiece
    vocabularies inside, and needs the operations of onnxruntime-extensions:

    | | name | |
    |---|---|---|
    | input | `text` | string[B] |
    | output | `translations` | string[B, n] |
    | output | `scores` | float32[B, n] |
    | output | `truncated` | bool[B], whether a text is too long; its translations are "" |

    It cuts a text at a zero byte. The batch has at least one text.

    Args:
        translator: a `Translator`, whose search is greedy or a beam. The file leaves out its
            `layout`, and its `quantize`, with a warning.
        path: the directory to make.
        quantization: "int8" makes the weights of matrix products 8-bit integers, by onnxruntime's
            dynamic quantization. None keeps them as they are.
        card: dictionary of what the model card should say of languages, data and scores.
        strings: whether to write `translator_strings.onnx` too. Its tokens are those of the
            translator, so other vocabularies than plain SentencePiece models are refused.

    Raises:
        ImportError: without onnx, or with `quantization` without onnxruntime.
        ValueError: when `path` exists, the search is `Sampling`, or the card has a field of the
            export's own. Also for an operation or a dtype that cannot be converted. With `strings`
            also for tags, for `split_sentences`, and for other vocabularies. Those are all but
            SentencePiece, and lossless or lower-casing ones. Normal forms and ids that differ
            from the model's are refused too.

    Example:

    >>> export_onnx(None, ".")
    Traceback (most recent call last):
        ...
    ValueError: `path` must not exist yet. Received: path='...'
    """
    quantization = arguments.one_of("quantization", quantization, (None, "int8"))
    arguments.boolean("strings", strings)
    card = checked_card(card)
    with new_directory(path) as written:
        check_search(translator)
        if strings:
            check_translator(translator)
        translator = for_portable(translator, quantization)
        model = to_onnx(translator, copy_weights=quantization is not None)
        if quantization:
            model = quantize_model(model)
        with open(os.path.join(written, ONNX), "wb") as file:
            file.write(model.SerializeToString())
        if strings:
            with open(os.path.join(written, STRINGS), "wb") as file:
                file.write(with_strings(model, translator).SerializeToString())
        write_portable_files(written, translator)
        with open(os.path.join(written, CARD), "w", encoding="utf-8") as file:
            own = model_card(translator, card, sorted(list_onnx_operations(model.graph)))
            own["quantization"] = quantization  # of the file, not of the translator
            file.write(json.dumps(own, indent=2, ensure_ascii=False) + "\n")


def check_search(translator: "Translator") -> None:
    """Raises `ValueError` for a search that ONNX cannot run."""
    if isinstance(translator.search, Sampling):
        raise ValueError(
            "`search` must be greedy or a beam. The random operations of ONNX draw other numbers "
            "than Keras, and their seed cannot change from call to call. "
            f"Received: search={type(translator.search).__name__}"
        )
    if translator.shortlist is not None:
        raise ValueError(
            "`shortlist` must be None for ONNX: onnxruntime computes all logits. "
            "Received: a translator with a Shortlist"
        )


def to_onnx(translator: "Translator", copy_weights: bool = False) -> Any:
    """The search of a translator as an ONNX model."""
    try:
        import onnx  # noqa: F401  (the modules that build the graph import parts of it)
    except ImportError as error:
        raise ImportError("`export_onnx` needs onnx: `pip install onnx`") from error
    model, first_id = translator.model, translator.id_functions.first_id

    def search(source_ids: tf.Tensor) -> tuple[tf.Tensor, ...]:
        options = {}
        if first_id is not None:
            options["prefix_ids"] = tf.fill([tf.shape(source_ids)[0], 1], first_id)
        found = model.generate(source_ids, translator.search, translator.max_length, **options)
        return tuple(getattr(found, name) for name in OUTPUTS)

    ids = tf.TensorSpec([None, None], tf.int32, name="source_ids")
    function = tf.function(search, input_signature=[ids], autograph=False)
    return convert_function(function.get_concrete_function(), OUTPUTS, SIZES, copy_weights)


def list_onnx_operations(graph: Any) -> set[str]:
    """The operations of an ONNX graph and of the graphs inside it."""
    found = {node.op_type for node in graph.node}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= list_onnx_operations(attribute.g)
    return found
