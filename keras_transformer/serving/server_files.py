"""The files beside the graph that a server reads: warm-up requests and batching parameters."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.serving.id_functions import powers_of_two
from keras_transformer.serving.saved_model import tensorflow_path
from keras_transformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

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


def write_server_files(folder: str | os.PathLike[str], translator: "Translator") -> None:
    """Writes warm-up requests and batching parameters to `folder`.

    The warm-up requests need tensorflow-serving-api, and are left out without it.
    """
    sizes = [str(rows) for rows in sorted({rows for rows, _ in translator.shapes})]
    path = os.path.join(folder, "batching_parameters.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(BATCHING.format(sizes=", ".join(sizes)))
    write_warm_up(os.path.join(folder, WARM_UP), warm_up_requests(translator))


def warm_up_requests(translator: "Translator") -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Gives (signature, inputs) of requests after which every signature has been compiled.

    They translate texts of each length, as many at once as each compiled shape takes. The other
    signatures get one short text.
    """
    shapes = translator.id_functions.shapes
    # A longer text than the splitter's longest would be divided, and meet other shapes.
    num_special = translator.max_source_length - translator.string_functions.splitter.longest
    texts = texts_of_lengths(translator.source_tokenizer, shapes.lengths, num_special)
    for text, rows in zip(texts, shapes.row_limits, strict=True):
        if text is not None:
            for count in powers_of_two(1, rows):
                yield "serving_default", {"text": np.array([text] * count, object)}
    short = np.array([texts[0] or "a"], object)
    options = {
        "length_penalty": np.array([-1.0], "float32"),
        "max_length": np.array([0], "int32"),
        "num_hypotheses": np.array([0], "int32"),
        "prefix": np.array([""], object),
        "split_sentences": np.array([-1], "int32"),
    }
    if translator.string_functions.has_tags:
        options |= {"source_tag": np.array([""], object), "target_tag": np.array([""], object)}
    yield "score", {"source": short, "target": short}
    yield "translate", {"text": short, **options}
    yield "align", {"text": short}
    yield "encode", {"text": short}


def texts_of_lengths(
    tokenizer: Tokenizer, sizes: Sequence[int], num_special: int = 1
) -> list[str | None]:
    """Returns for each size a text of as many tokens, or of more than the last size.

    `num_special` of the tokens are kept free for what is added to a text: `eos_id`, and a tag.

    A text is a piece of the vocabulary, repeated; None where no piece gives such a text.
    """
    found: list[str | None] = []
    pieces = [piece for piece in tokenizer.surfaces() if piece.strip()]
    for least, most in zip([0, *sizes], sizes, strict=False):
        text = None
        for piece in pieces[:PIECES_TRIED]:
            word = piece.strip()
            joiner = " " if piece[:1] == " " else ""
            repeated = [joiner.join([word] * count) for count in range(1, most)]
            lengths = tokenizer.tokenize(repeated).row_lengths().numpy() + num_special
            fitting = np.flatnonzero((lengths > least) & (lengths <= most))
            if len(fitting):
                text = repeated[fitting[-1]]
                break
        found.append(text)
    return found


def write_warm_up(
    path: str | os.PathLike[str], requests: Iterable[tuple[str, dict[str, np.ndarray]]]
) -> None:
    """Writes requests in the form that TensorFlow Serving replays when it loads a model."""
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
