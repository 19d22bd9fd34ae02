"""The files beside the graph for a server: warm-up requests and batching parameters."""

import re

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import GreedySearch, Transformer
from keras_transformer.serving import Translator
from keras_transformer.serving.server_files import texts_of_lengths, warm_up_requests
from keras_transformer.text import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    WordPieceTokenizer,
)
from tests.serving.trained import translator


@pytest.mark.slow
def test_the_warm_up_requests_are_answered_and_compile_every_signature(exported):
    prediction_log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    signatures, met = translator().string_functions.signatures, set()
    file = exported / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(file)):
        request = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        name = request.model_spec.signature_name
        inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        answer = signatures[name](**inputs)
        assert not any(answer["truncated"].numpy())
        met.add((name, len(answer["truncated"])))
    # Every number of rows; the others once.
    assert met == {("serving_default", rows) for rows in (1, 2, 4)} | {
        (name, 1) for name in ("score", "translate", "align", "encode")
    }


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("tags", [None, [], ["<de>"]])
def test_warm_up_meets_every_shape(tags):
    tokenizer = CharacterTokenizer.train(["abc"])
    if tags is not None:
        trained = SentencePieceTokenizer.train(["one two three four"] * 5, 40, shrink_to_fit=True)
        tokenizer = SentencePieceTokenizer(trained.model, tags=tags)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    sizes = {"max_length": 2, "max_source_length": 32, "max_batch_tokens": 64}
    own = Translator(model, tokenizer, search=GreedySearch(), **sizes, jit_compile=False)
    for name, inputs in warm_up_requests(own):
        if name == "serving_default":
            answer = own.string_functions.serving_default(tf.constant(inputs["text"]))
            assert not answer["truncated"].numpy().any()
    met = own.id_functions.search_ids.shapes_met.numpy()
    assert np.count_nonzero(met) == len(own.shapes) == 5


@pytest.mark.parametrize(
    "make",
    [
        lambda texts: SentencePieceTokenizer.train(texts, 60, shrink_to_fit=True),
        lambda texts: SentencePieceTokenizer.train(texts, 300, lossless=True),
        lambda texts: WordPieceTokenizer.train(texts, 60),
        CharacterTokenizer.train,
        SymbolTokenizer.train,
    ],
)
def test_a_text_of_every_length_is_found_for_every_tokenizer(make):
    tokenizer = make(["a man rides a horse . the dog ran"] * 9)
    sizes = [16, 32, 50]
    texts = texts_of_lengths(tokenizer, sizes)
    lengths = tokenizer.tokenize(texts).row_lengths().numpy() + 1
    for length, least, most in zip(lengths, [0, *sizes], sizes, strict=False):
        assert least < length <= most


def test_the_batching_parameters_are_those_of_the_compiled_shapes(exported):
    text = (exported / "assets.extra" / "batching_parameters.txt").read_text(encoding="utf-8")
    settings = dict(re.findall(r"^(\w+) { value: (\d+) }$", text, re.MULTILINE))
    assert int(settings.pop("max_batch_size")) > max(rows for rows, _ in translator().shapes) == 4
    # No splitting of requests: `align` gives rows of other widths for other batches.
    assert set(settings) == {"batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"}
    assert "(1, 2, 4)" in text
