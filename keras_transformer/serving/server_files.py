"""The files beside the graph: requests to warm up with, batching parameters, the model card."""

import hashlib
import importlib.metadata
import json
import os

import numpy as np
import tensorflow as tf

from keras_transformer.serving.batching import powers_of_two
from keras_transformer.serving.conventions import text_conventions
from keras_transformer.serving.description import CARD, EXTRA
from keras_transformer.serving.directories import tensorflow_path

# What the model card says of itself.
OWN_FIELDS = {"model", "search", "vocabulary", "limits", "jit_compile", "operations", "versions"}
OWN_FIELDS |= {"texts", "split_sentences", "separator"}
PIECES_TRIED = 50  # in search of one that can be repeated
WARM_UP = "tf_serving_warmup_requests"
BATCHING = """\
# The graph divides any batch into the sizes that it is compiled for ({sizes}) itself,
# so no allowed_batch_sizes are needed. Do not let the server split requests: it joins what comes
# back by rows, and the pieces of align are as many as the longest of each batch has.
# A request of more texts than max_batch_size is refused.
# num_batch_threads is best the number of cores.
max_batch_size {{ value: 1024 }}
batch_timeout_micros {{ value: 1000 }}
max_enqueued_batches {{ value: 100 }}
num_batch_threads {{ value: 2 }}
"""


def write_server_files(path, translator, card, operations):
    """Writes `assets.extra` of the SavedModel in `path`; returns the names of its files.

    The warm-up requests need tensorflow-serving-api, and are left out without it.
    """
    folder = os.path.join(path, EXTRA)
    os.makedirs(folder)
    sizes = [str(rows) for rows in sorted({rows for rows, _ in translator.shapes})]
    batching = BATCHING.format(sizes=", ".join(sizes))
    card = json.dumps(model_card(translator, card, operations), indent=2, ensure_ascii=False)
    for name, text in (("batching_parameters.txt", batching), (CARD, f"{card}\n")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    write_warm_up(os.path.join(folder, WARM_UP), warm_up_requests(translator))
    return sorted(os.listdir(folder))


def model_card(translator, card, operations):
    """What the export is, as JSON: what the user says of it, then what it says itself."""
    graph, compiled = translator.graph, translator.compiled
    tokenizers = {"source": graph.source_tokenizer, "target": graph.target_tokenizer}
    search = compiled.search
    model = {
        name: value
        for name, value in compiled.model.get_config().items()
        if name not in ("name", "trainable", "trainable_inside")
    }
    return {
        **card,
        "model": {
            "class": type(compiled.model).__name__,
            "parameters": int(compiled.model.count_params()),
            "settings": model,
        },
        "search": {"class": type(search).__name__, "settings": search.get_config()},
        "vocabulary": {
            side: {
                "class": type(tokenizer).__name__,
                "size": tokenizer.vocab_size,
                "sha256": hashlib.sha256(tokenizer.to_bytes()).hexdigest(),
            }
            for side, tokenizer in tokenizers.items()
        },
        "limits": {
            "max_length": compiled.max_length,
            "max_source_length": compiled.length_sizes[-1],
            "max_segments": graph.max_segments,
            "shapes": translator.shapes,
        },
        "texts": text_conventions(translator),
        "split_sentences": graph.split_sentences,
        "separator": graph.separator,
        "jit_compile": compiled.jit_compile,
        "operations": sorted(operations),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("keras", "tensorflow", "tensorflow-text")
        },
    }


def warm_up_requests(translator):
    """Requests after which every signature has been compiled: (signature, inputs) pairs.

    The translation of texts of each length, as many as each compiled shape takes; the other
    signatures of one short text.
    """
    compiled = translator.compiled
    texts = texts_of_lengths(translator.graph.source_tokenizer, compiled.length_sizes)
    for text, rows in zip(texts, compiled.row_limits, strict=True):
        if text is not None:
            for count in powers_of_two(1, rows):
                yield "serving_default", {"text": np.array([text] * count, object)}
    text = np.array([texts[0] or "a"], object)
    options = {
        "length_penalty": np.array([-1.0], "float32"),
        "max_length": np.array([0], "int32"),
        "num_hypotheses": np.array([0], "int32"),
        "prefix": np.array([""], object),
        "split_sentences": np.array([-1], "int32"),
    }
    yield "score", {"source": text, "target": text}
    yield "translate", {"text": text, **options}
    yield "align", {"text": text}
    yield "encode", {"text": text}


def texts_of_lengths(tokenizer, sizes):
    """For each size a text of so many tokens, with `eos_id`, or fewer but more than the last size.

    None where repeating a piece of the vocabulary gives no such text.
    """
    found = []
    for least, most in zip([0, *sizes], sizes, strict=False):
        text = None
        for piece in tokenizer.surfaces()[4 : 4 + PIECES_TRIED]:
            word = piece.strip()
            joiner = " " if piece[:1] == " " else ""
            if not word:
                continue
            repeated = [joiner.join([word] * count) for count in range(1, most)]
            lengths = tokenizer.tokenize(repeated).row_lengths().numpy() + 1
            fitting = np.flatnonzero((lengths > least) & (lengths <= most))
            if len(fitting):
                text = repeated[fitting[-1]]
                break
        found.append(text)
    return found


def write_warm_up(path, requests):
    """Writes requests as TensorFlow Serving replays them when it loads a model."""
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError:
        return
    with tf.io.TFRecordWriter(tensorflow_path(path)) as writer:
        for name, inputs in requests:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = name
            for key, value in inputs.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.CopyFrom(request)
            writer.write(log.SerializeToString(deterministic=True))
