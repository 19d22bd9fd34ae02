"""Writes a translator as a SavedModel of standard TensorFlow and TF Text operations."""

import json
import os

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations that a SavedModel needs)

from keras_transformer.serving.description import describe_export, how_to_call, read_saved_model
from keras_transformer.serving.directories import (
    new_directory,
    saved_model_path,
    tensorflow_path,
)
from keras_transformer.serving.equal_nodes import merge_equal_nodes
from keras_transformer.serving.operations import check_operations, operations_of
from keras_transformer.serving.server_files import OWN_FIELDS, write_server_files
from keras_transformer.serving.translation_graph import SIGNATURES


def export(translator, path, card=None, allowed_operations=(), verbose=True):
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

    Each also returns `truncated` bool[B], true where a text was longer than the model reads; it
    then has the empty translation, the score -1e9 and the vector 0. Any batch size works, 0
    included. `score` and `scores` are the search's own, divided by its length penalty, of a text
    that was divided their sum; `log_prob` is a plain sum. An empty text has the empty
    translation, for every hypothesis, with the score 0.

    In `translate` each text has options of its own: `length_penalty` from 0 to 10, or -1 for the
    export's; `max_length`, or 0 for the export's; `num_hypotheses` up to the beam size, or 0 for
    the export's, beyond which stand "" and -1e9; `prefix`, what the translation must begin with;
    `split_sentences`, 1 to translate each sentence on its own, 0 the text at once, or -1 for the
    export's.
    In `align` each piece of the translation has its bytes and those of the source that it was
    read from, -1 beyond the last piece.

    `assets.extra` holds `tf_serving_warmup_requests`, with which TensorFlow Serving compiles
    before it takes requests (written where tensorflow-serving-api is installed),
    `batching_parameters.txt` and `model_card.json`. The directory appears whole or not at all.

    TensorFlow Serving on a CPU runs the export when started with
    `--xla_cpu_compilation_enabled=true`, or as it is when the translator was made with
    `jit_compile=False`.

    Args:
        translator: a `Translator`.
        path: the directory to make, for TensorFlow Serving a number in the model's directory.
        card: dictionary of what the model card should say of languages, data and scores.
        allowed_operations: names of operations that the export may have beside those of
            `keras_transformer.serving.operations`.
        verbose: whether to print what was written and how to call it.

    Returns:
        None.

    Raises:
        ValueError: when `path` exists, the graph has an operation that is not allowed, or `card`
            is no dictionary that JSON can hold.

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
    with new_directory(path) as written:
        write_saved_model(translator, written)
        operations = operations_of(read_saved_model(written))
        check_operations(operations, allowed_operations)
        files = write_server_files(written, translator, card, operations)
    if verbose:
        found = describe_export(path)
        print(f"assets.extra: {', '.join(files)}")
        print(how_to_call(path, found["signatures"]))


def write_saved_model(translator, path):
    """Writes graph and variables."""
    root = tf.Module()
    root.shapes_met = list(translator.compiled.shapes_met.values())
    met = [shapes.numpy() for shapes in root.shapes_met]
    # The functions as they are traced: those that the saver found in a module it would trace again.
    signatures = {
        name: getattr(translator.graph, name).get_concrete_function() for name in SIGNATURES
    }
    # The variables themselves: a loader that is not Python finds none behind Keras's layers. Those
    # that are read, so not the states of dropout's seeds, which differ from process to process; in
    # the model's order, because a graph has them in none.
    read = {id(v): v for function in signatures.values() for v in function.graph.variables}
    weights = [variable.value for variable in translator.compiled.model.variables]
    root.variables_read = [read.pop(id(weight)) for weight in weights if id(weight) in read]
    root.variables_read += sorted(read.values(), key=lambda variable: variable.name)
    try:
        for shapes in root.shapes_met:  # the server has met none yet
            shapes.assign(tf.zeros_like(shapes))
        tf.saved_model.save(root, tensorflow_path(path), signatures)
    finally:
        for shapes, before in zip(root.shapes_met, met, strict=True):
            shapes.assign(before)
    saved = read_saved_model(path)
    merge_equal_nodes(saved.meta_graphs[0].graph_def)
    with open(os.path.join(path, "saved_model.pb"), "wb") as file:
        file.write(saved.SerializeToString(deterministic=True))
    os.remove(os.path.join(path, "fingerprint.pb"))  # of the graph as it was; nothing needs it


def checked_card(card):
    """`card` as a dictionary, or a `ValueError` when JSON cannot hold it."""
    card = {} if card is None else card
    try:
        if not isinstance(card, dict):
            raise TypeError("no dictionary")
        read = json.loads(json.dumps(card, allow_nan=False, default=numbers_of_numpy))
        own = sorted(OWN_FIELDS.intersection(card))
        if own:
            raise ValueError(f"{', '.join(own)} the export says itself")
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`card` must be a dictionary of what JSON can hold. "
            f"Received: card={card!r:.200} ({error})"
        ) from error
    return read


def numbers_of_numpy(value):
    """NumPy's numbers and arrays as JSON has them; `TypeError` for anything else."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"not for JSON: {type(value).__name__}")


def load(path):
    """Loads an exported translator; call its `signatures`.

    `tf.saved_model.load` after `import tensorflow_text` is the same; this is for those who have
    the package.

    Args:
        path: the directory that `export` wrote.

    Returns:
        The loaded object. Keep it: its functions use its variables.

    Raises:
        ValueError: when there is no SavedModel in `path`.

    Example:

    >>> load("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: `path` must hold a SavedModel. Received: path='nowhere'
    """
    return tf.saved_model.load(tensorflow_path(saved_model_path(path)))
