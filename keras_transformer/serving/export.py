"""Writes a translator as a SavedModel of standard TensorFlow and TF Text operations."""

import os
import shutil
import tempfile

import keras
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations that a SavedModel needs)

from keras_transformer.serving.translation_graph import SIGNATURES


def export(translator, path):
    """Writes a SavedModel with the signatures `serving_default`, `n_best` and `score`.

    | signature | inputs | outputs |
    |---|---|---|
    | `serving_default` | `text` string[B] | `translation` string[B], `score` float32[B] |
    | `n_best` | `text` string[B] | `translations` string[B, n], `scores` float32[B, n] |
    | `score` | `source`, `target` string[B] | `log_prob` float32[B], `num_tokens` int32[B] |

    Each also returns `truncated` bool[B], true where a text was longer than the model reads. Any
    batch size works, 0 included. `score` of the first two is the search's own, divided by its
    length penalty, and `log_prob` a plain sum. An empty text has the empty translation, for every
    hypothesis, with the score 0. The directory appears whole or not at all.

    TensorFlow Serving on a CPU runs the export when started with
    `--xla_cpu_compilation_enabled=true`, or as it is when the translator was made with
    `jit_compile=False`.

    Args:
        translator: a `Translator`.
        path: the directory to make, for TensorFlow Serving a number in the model's directory.

    Returns:
        None.

    Raises:
        ValueError: when `path` exists.

    Example:

    >>> import os, tempfile
    >>> from keras_transformer import Transformer
    >>> from keras_transformer.serving import Translator, load
    >>> from keras_transformer.text import CharacterTokenizer
    >>> tokenizer = CharacterTokenizer.train(["abc"])
    >>> model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> path = os.path.join(tempfile.mkdtemp(), "1")
    >>> export(Translator(model, tokenizer, max_length=4), path)
    >>> sorted(load(path).signatures)
    ['align', 'encode', 'n_best', 'score', 'serving_default', 'translate']
    """
    path = os.path.abspath(os.fspath(path))
    if os.path.exists(path):
        raise ValueError(f"`path` must not exist yet. Received: path={path!r}")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # In the same file system, so that the last step is one atomic rename.
    scratch = tempfile.mkdtemp(prefix=".export-", dir=os.path.dirname(path))
    try:
        graph = translator.graph
        archive = keras.export.ExportArchive()
        archive.track(graph)
        for name in SIGNATURES:
            archive.add_endpoint(name, getattr(graph, name))
        archive.write_out(os.path.join(scratch, "model"), verbose=False)
        os.replace(os.path.join(scratch, "model"), path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def load(path):
    """Loads an exported translator; call its `serving_default`, `n_best` or `score`.

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
    path = os.fspath(path)
    if not tf.saved_model.contains_saved_model(path):
        raise ValueError(f"`path` must hold a SavedModel. Received: path={path!r}")
    return tf.saved_model.load(path)
