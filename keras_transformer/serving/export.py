"""Writes a translator as a SavedModel of standard TensorFlow and TF Text operations."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations that a SavedModel needs)

from keras_transformer.atomic_files import new_directory
from keras_transformer.card_file import EXTRA
from keras_transformer.serving.description import describe_export, how_to_call
from keras_transformer.serving.model_card import checked_card, write_card
from keras_transformer.serving.operations import check_operations, list_operations
from keras_transformer.serving.saved_model import (
    read_saved_model,
    reduce_saved_model,
    saved_model_path,
    tensorflow_path,
)
from keras_transformer.serving.server_files import write_server_files

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

LoadedModel: TypeAlias = Any
"""What `tf.saved_model.load` returns; TensorFlow ships no types."""


def export(
    translator: "Translator",
    path: str | os.PathLike[str],
    card: dict[str, Any] | None = None,
    allowed_operations: Iterable[str] = (),
    verbose: bool = True,
) -> None:
    """Writes a SavedModel that TensorFlow Serving serves: strings in, strings out.

    | signature | inputs | outputs |
    |---|---|---|
    | `serving_default` | `text` string[B] | `translation` string[B], `score` float32[B] |
    | `n_best` | `text` string[B] | `translations` string[B, n], `scores` float32[B, n] |
    | `translate` | `text`, `prefix` string[B], `length_penalty` float32[B], `max_length`, \
`num_hypotheses`, `split_sentences` int32[B] | `translations` string[B, beam], \
`scores` float32[B, beam] |
    | `score` | `source`, `target` string[B] | `log_prob` float32[B], `num_tokens` int32[B] |
    | `align` | `text` string[B] | `translation` string[B]; `target_start`, `target_end`, \
`source_start`, `source_end` int32[B, pieces] |
    | `encode` | `text` string[B] | `vector` float32[B, d_model] |

    Any batch size works, 0 included. Each signature also returns `truncated` bool[B]. It is true
    where a text is longer than the model reads. Such a text has the empty translation, the score
    -1e9 and the vector 0. An empty text has the empty translation with the score 0, for every
    hypothesis.

    `score` and `scores` are the search's own, divided by its length penalty. The score of a text
    that was divided is the sum over its parts. `log_prob` is a plain sum.

    In `translate` each text has options of its own:

    | option | value | default of the export |
    |---|---|---|
    | `length_penalty` | from 0 to 10 | -1 |
    | `max_length` | the largest number of output tokens | 0 |
    | `num_hypotheses` | up to the beam size; beyond it stand "" and -1e9 | 0 |
    | `prefix` | what the translation must begin with | "" |
    | `split_sentences` | 1 translates each sentence on its own, 0 the text at once | -1 |
    | `source_tag` | the tag, such as a language code, that is read before the text | "" |
    | `target_tag` | the tag that the output begins with | "" |

    Only a vocabulary with tags makes `source_tag` and `target_tag` inputs, string[B], both of
    them. An unknown tag refuses its text, as if it were too long.

    In `align` each piece of the translation has the bytes where it stands and the bytes of the
    source that it was read from. Beyond the last piece stands -1.

    `assets.extra` holds `batching_parameters.txt`, `model_card.json` and
    `tf_serving_warmup_requests`, with which TensorFlow Serving compiles before it takes requests.
    The warm-up requests need tensorflow-serving-api. The directory appears whole or not at all.

    TensorFlow Serving on a CPU runs the export when started with
    `--xla_cpu_compilation_enabled=true`. It runs an export with `jit_compile=False` as it is.

    Args:
        translator: a `Translator`.
        path: the directory to make. TensorFlow Serving takes a number in the model's directory.
        card: dictionary of what the model card should say of languages, data and scores.
        allowed_operations: names of operations that the export may have beside those of
            `keras_transformer.serving.operations`.
        verbose: whether to print what was written and how to call it.

    Raises:
        ValueError: when `path` exists, the graph has an operation that is not allowed, or `card`
            is not a dictionary that JSON can hold.

    Example:

    >>> import os, tempfile
    >>> from keras_transformer import Transformer
    >>> from keras_transformer.serving import Translator, load
    >>> from keras_transformer.text import CharacterTokenizer
    >>> tokenizer = CharacterTokenizer.train(["abc"])
    >>> model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> path = os.path.join(tempfile.mkdtemp(), "1")
    >>> export(Translator(model, tokenizer, max_length=4), path, verbose=False)
    >>> sorted(load(path).signatures)
    ['align', 'encode', 'n_best', 'score', 'serving_default', 'translate']
    """
    card = checked_card(card)
    translator = translator.for_export()
    with new_directory(path) as written:
        translator.string_functions.save(written)
        reduce_saved_model(written)
        operations = list_operations(read_saved_model(written))
        check_operations(operations, allowed_operations)
        extra = os.path.join(written, EXTRA)
        os.makedirs(extra)
        write_server_files(extra, translator)
        write_card(extra, translator, card, operations)
        files = sorted(os.listdir(extra))
    if verbose:
        found = describe_export(path)
        print(f"assets.extra: {', '.join(files)}")
        print(how_to_call(path, found["signatures"]))


def arguments_of_translate(
    inputs: Iterable[str],
    count: int,
    *,
    source_tag: str | None = None,
    target_tag: str | None = None,
    split_sentences: bool | None = None,
    num_hypotheses: int = 0,
) -> dict[str, tf.Tensor]:
    """Returns the arguments of the signature `translate` beside `text`, alike for all texts.

    Args:
        inputs: the names of the signature's inputs. Few vocabularies have tags.
        count: how many texts there are.
        source_tag, target_tag, split_sentences, num_hypotheses: the options; None, or 0 of
            hypotheses, for the export's own.
    """
    tags = {"source_tag": source_tag or "", "target_tag": target_tag or ""}
    values: dict[str, Any] = {
        "prefix": "",
        "length_penalty": -1.0,
        "max_length": 0,
        "num_hypotheses": num_hypotheses,
        "split_sentences": -1 if split_sentences is None else int(split_sentences),
        **{name: tags[name] for name in tags if name in inputs},
    }
    return {name: tf.fill([count], value) for name, value in values.items()}


def load(path: str | os.PathLike[str]) -> LoadedModel:
    """Loads an exported translator; call its `signatures`.

    `tf.saved_model.load` after `import tensorflow_text` does the same without this package.

    Args:
        path: the directory that `export` wrote.

    Returns:
        The loaded object. Keep it, because its functions use its variables.

    Raises:
        ValueError: when there is no SavedModel in `path`.

    Example:

    >>> load("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: `path` must hold a SavedModel. Received: path='nowhere'
    """
    return tf.saved_model.load(tensorflow_path(saved_model_path(path)))
