"""What stands beside the graph for a server, and what an export says of itself."""

import json
import os
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from trained import translator

import keras_transformer
from keras_transformer import Transformer
from keras_transformer.serving import Translator, describe_export, load
from keras_transformer.serving.conventions import text_conventions
from keras_transformer.serving.description import how_to_call
from keras_transformer.serving.operations import (
    TENSORFLOW,
    TENSORFLOW_TEXT,
    check_operations,
    oldest_tensorflow_text,
)
from keras_transformer.serving.server_files import texts_of_lengths, warm_up_requests
from keras_transformer.serving.translation_graph import SIGNATURES
from keras_transformer.text import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    WordPieceTokenizer,
)

CARD = {"languages": "letters to capitals", "data": "made up", "scores": {"exact match": 0.98}}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "letters" / "3"
    translator().export(path, card=CARD, verbose=False)
    return path


def test_the_warm_up_requests_are_answered_and_compile_every_signature(exported):
    prediction_log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    loaded, met = load(exported), set()
    file = exported / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(file)):
        request = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        name = request.model_spec.signature_name
        inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        answer = loaded.signatures[name](**inputs)
        assert not any(answer["truncated"].numpy())
        met.add((name, len(answer["truncated"])))
    # Every number of rows; the others once.
    assert met == {("serving_default", rows) for rows in (1, 2, 4)} | {
        (name, 1) for name in SIGNATURES[2:]
    }


def test_warm_up_meets_every_shape():
    tokenizer = CharacterTokenizer.train(["abc"])
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    own = Translator(model, tokenizer, max_length=2, max_source_length=64, max_batch_tokens=128)
    for name, inputs in warm_up_requests(own):
        if name == "serving_default":
            own.graph.serving_default(tf.constant(inputs["text"]))
    assert own.num_compilations == len(own.shapes) == 6


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
    assert int(settings.pop("max_batch_size")) > max(rows for rows, _ in translator().shapes) == 2
    # No splitting of requests: `align` gives rows of other widths for other batches.
    assert set(settings) == {"batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"}
    assert "(1, 2)" in text


def test_the_card_says_what_was_given_and_what_the_export_is(exported):
    card = json.loads((exported / "assets.extra" / "model_card.json").read_text(encoding="utf-8"))
    assert {name: card[name] for name in CARD} == CARD
    assert card["model"]["parameters"] == translator().compiled.model.count_params()
    assert card["model"]["settings"]["d_model"] == 32
    assert card["search"]["settings"]["beam_size"] == 3
    assert card["vocabulary"]["source"] == card["vocabulary"]["target"]
    assert card["vocabulary"]["source"]["size"] == 18
    assert "TopKV2" in card["operations"]
    assert card["limits"]["max_source_length"] == 32
    assert card["split_sentences"] is False
    assert card["texts"] == text_conventions(translator())
    assert card["separator"] == " "


@pytest.mark.parametrize(
    "card", [["list"], {"data": {1, 2}}, "text", {"scores": float("nan")}, {"search": "mine"}]
)
def test_a_card_that_json_cannot_hold_is_refused_before_anything_is_written(card, tmp_path):
    with pytest.raises(ValueError, match="`card` must be a dictionary of what JSON can hold"):
        translator().export(tmp_path / "1", card=card)
    assert list(tmp_path.iterdir()) == []


def test_the_description_names_signatures_operations_and_what_runs_them(exported, capsys):
    described = describe_export(exported)
    assert set(described["signatures"]) == set(SIGNATURES)
    assert described["signatures"]["translate"]["inputs"] == {
        "length_penalty": "float32[batch]",
        "max_length": "int32[batch]",
        "num_hypotheses": "int32[batch]",
        "prefix": "string[batch]",
        "split_sentences": "int32[batch]",
        "text": "string[batch]",
    }
    assert described["signatures"]["n_best"]["outputs"]["scores"] == "float32[batch, 3]"
    assert described["texts"] == text_conventions(translator())
    assert described["tensorflow_text"] is None  # characters need TensorFlow alone
    assert "Substr" in described["operations"]
    files = [file for file in exported.rglob("*") if file.is_file()]
    assert described["bytes"] == sum(file.stat().st_size for file in files)
    printed = capsys.readouterr().out
    for text in (
        "serving_default",
        "input: Text as it is",
        "int32[batch, any]",
        "runs with that or a later one.",
        "MiB",
    ):
        assert text in printed


def test_an_export_tells_how_to_call_it(tmp_path, capsys):
    translator().export(tmp_path / "letters" / "1")
    printed = capsys.readouterr().out
    body, url = re.search(r"curl -d '(.*)' (\S+)", printed).groups()
    assert url == "http://localhost:8501/v1/models/letters:predict"
    texts = json.loads(body)["inputs"]["text"]
    assert len(translator()(texts)) == 2
    snippet = printed[printed.index("  import grpc") :]
    compile("\n".join(line[2:] for line in snippet.splitlines()), "snippet", "exec")
    assert "It serves numbered directories" not in printed
    unnumbered = how_to_call(tmp_path / "letters", ["score"])
    assert (
        f"It serves numbered directories: export to {tmp_path / 'letters'}/1.\n  curl" in unnumbered
    )


def test_the_oldest_tensorflow_text_is_that_of_the_youngest_operation():
    assert oldest_tensorflow_text(["Add", "MatMul"]) is None
    assert oldest_tensorflow_text(["SentencepieceOp", "Add"]) == "2.0"
    assert oldest_tensorflow_text(TENSORFLOW_TEXT) == "2.9"


def test_operations_beyond_the_list_are_refused_unless_allowed():
    check_operations(TENSORFLOW | set(TENSORFLOW_TEXT), ())
    with pytest.raises(ValueError, match="Received: a graph with EagerPyFunc, MyOp"):
        check_operations({"MyOp", "EagerPyFunc", "Add2"} - {"Add2"}, ())
    check_operations({"MyOp"}, ("MyOp",))


class WithPython(Transformer):
    """A model that calls back into Python, which no server has."""

    def encode(self, source_ids, training=None):
        memory = super().encode(source_ids, training)
        shape = memory.shape
        memory = tf.py_function(lambda x: x, [memory], tf.float32)
        return tf.ensure_shape(memory, shape)


def test_a_model_that_needs_python_is_not_exported(tmp_path):
    tokenizer = CharacterTokenizer.train(["abc"])
    model = WithPython(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    own = Translator(model, tokenizer, max_length=3, jit_compile=False)
    with pytest.raises(ValueError, match="a graph with EagerPyFunc"):
        own.export(tmp_path / "1", verbose=False)
    assert list(tmp_path.iterdir()) == []
    own.export(tmp_path / "2", allowed_operations=["EagerPyFunc", "EnsureShape"], verbose=False)


EXPORTED_ANEW = """
import sys
import keras
from keras_transformer import Transformer
from keras_transformer.serving import Translator
from keras_transformer.text import load_tokenizer

tokenizer = load_tokenizer(sys.argv[1])
model = keras.saving.load_model(sys.argv[2])
for path in sys.argv[3:]:
    Translator(model, tokenizer, max_length=12, max_source_length=32).export(path, verbose=False)
"""


@pytest.mark.slow
def test_two_exports_of_a_model_are_the_same_bytes(tmp_path):
    tokenizer = SentencePieceTokenizer.train(["a man rides a horse"] * 9, 40, shrink_to_fit=True)
    tokenizer.save(tmp_path / "tokenizer")
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    model.build()
    model.save(tmp_path / "model.keras")
    for paths in (["1"], ["2", "3"]):
        subprocess.run(
            [sys.executable, "-c", EXPORTED_ANEW, "tokenizer", "model.keras", *paths],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.path.dirname(keras_transformer.__path__[0])},
            check=True,
        )
    first, second, third = (
        {
            str(file.relative_to(tmp_path / name)): file.read_bytes()
            for file in (tmp_path / name).rglob("*")
            if file.is_file()
        }
        for name in "123"
    )
    assert [name for name in first if first[name] != second.get(name)] == []
    assert sorted(first) == sorted(second)
    # A second export of one process differs in the numbers of names alone: of functions, and of the
    # gradient that the logits of a score have.
    graphs = [
        sorted(re.sub(r"[_-]\d+", "", str(node)) for node in nodes_of(files.pop("saved_model.pb")))
        for files in (second, third)
    ]
    assert second == third
    assert graphs[0] == graphs[1]


def test_what_was_compiled_here_is_not_compiled_on_the_server(tmp_path):
    translator()(["abc"])
    count = translator().num_compilations
    translator().export(tmp_path / "1", verbose=False)
    loaded = load(tmp_path / "1")
    assert [int(shapes.numpy().sum()) for shapes in loaded.shapes_met] == [0, 0, 0, 0, 0]
    loaded.signatures["serving_default"](text=tf.constant(["abc"]))
    assert sum(int(shapes.numpy().sum()) for shapes in loaded.shapes_met) == 1
    assert translator().num_compilations == count > 0


def nodes_of(graph):
    """Every node of a SavedModel."""
    graph = SavedModel.FromString(graph).meta_graphs[0].graph_def
    return [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
