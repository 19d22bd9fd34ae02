"""The SavedModel: in a clean process it gives what Python gave, and survives any bytes."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import keras_transformer
from keras_transformer import GreedySearch, Sampling, Transformer
from keras_transformer.serving import Translator, load
from keras_transformer.serving.string_functions import TEXT, StringFunctions
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer, load_tokenizer
from tests.serving.trained import OPTIONS, compiled_translator, translator, words

HEADER = """
    import json, sys
    import tensorflow as tf, tensorflow_text
    model = tf.saved_model.load(sys.argv[1])
"""


def in_clean_process(path, code, *arguments):
    """What `code` prints as JSON, in a process and directory that know nothing of the package."""
    program = textwrap.dedent(HEADER) + textwrap.dedent(code)
    program += "\nassert 'keras_transformer' not in sys.modules\n"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), *arguments],
        capture_output=True,
        encoding="utf-8",
        cwd=path.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


TEXTS = [*words(9, seed=21), "", "zzz unknown"]
SOURCES, TARGETS = ["abc", "g", "feed"], ["CBA", "A", "DEEFDEEF"]
QUESTIONS = r"""
    from tensorflow.python.framework import op_def_registry
    texts, sources, targets, used = map(json.loads, sys.argv[2:])
    hostile = [b"", b"\xff\xfe\x00", b"a" * 1000, "\U0001f600\u202e".encode(), b"</s><s>",
               b"\x00", b"   \n\t", bytes(range(256))]
    met = [int(shapes.numpy().sum()) for shapes in model.shapes_met]
    serve = model.signatures["serving_default"]
    alone = serve(text=tf.constant(["abc"]))["translation"].numpy()[0]
    met_then = sum(int(shapes.numpy().sum()) for shapes in model.shapes_met)
    mixed = serve(text=tf.constant([*hostile, b"abc"]))
    empty = serve(text=tf.constant([], tf.string))
    best = serve(text=tf.constant(texts))
    n_best = model.signatures["n_best"](text=tf.constant(texts))
    pairs = model.signatures["score"](source=tf.constant(sources), target=tf.constant(targets))
    print(json.dumps({
        "best": [t.decode() for t in best["translation"].numpy()],
        "score": best["score"].numpy().tolist(),
        "translations": [[t.decode() for t in row] for row in n_best["translations"].numpy()],
        "scores": n_best["scores"].numpy().tolist(),
        "log_probs": pairs["log_prob"].numpy().tolist(),
        "num_tokens": pairs["num_tokens"].numpy().tolist(),
        "same": bool(mixed["translation"].numpy()[-1] == alone),
        "shape": mixed["translation"].shape.as_list(),
        "truncated": mixed["truncated"].numpy().tolist(),
        "no rows": [empty[name].shape.as_list() for name in ("translation", "score")],
        "of empty": mixed["translation"].numpy()[0].decode(),
        "met": [met, met_then],
        "unknown": [op for op in used if op_def_registry.get(op) is None],
        "signatures": {
            name: {
                key: (tensor.dtype.name, tensor.shape.as_list())
                for key, tensor in function.structured_outputs.items()
            }
            for name, function in model.signatures.items()
        },
    }))
"""


def operations_used(path):
    """The operations of an export, less the functions of its own."""
    graph = SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    nodes = [node for f in graph.library.function for node in f.node_def]
    return {node.op for node in [*graph.node, *nodes]} - {
        f.signature.name for f in graph.library.function
    }


@pytest.fixture(scope="module")
def copied(exported, tmp_path_factory):
    """The export, moved and read-only."""
    path = tmp_path_factory.mktemp("elsewhere") / "1"
    shutil.copytree(exported, path)
    for file in (path, *path.rglob("*")):
        file.chmod(0o500 if file.is_dir() else 0o400)
    yield path
    for folder in (path, *(file for file in path.rglob("*") if file.is_dir())):
        folder.chmod(0o700)


@pytest.fixture(scope="module")
def served(copied):
    """What a clean process answers, and when the files of the export were written."""
    before = times_written(copied)
    used = sorted(operations_used(copied))
    answers = in_clean_process(copied, QUESTIONS, *map(json.dumps, (TEXTS, SOURCES, TARGETS, used)))
    return {**answers, "written": times_written(copied) != before}  # root may write


@pytest.mark.slow
def test_a_clean_process_translates_as_python_did(served):
    hypotheses = translator().n_best(TEXTS)
    assert served["best"] == translator()(TEXTS)
    assert served["translations"] == [[text for text, _ in row] for row in hypotheses]
    expected = [[score for _, score in row] for row in hypotheses]
    np.testing.assert_allclose(served["scores"], expected, atol=1e-5)
    np.testing.assert_allclose(served["score"], np.array(expected)[:, 0], atol=1e-5)


def test_a_clean_process_scores_as_python_did(served):
    expected = translator().score(SOURCES, TARGETS)
    log_probs = [log_prob for log_prob, _ in expected]
    np.testing.assert_allclose(served["log_probs"], log_probs, rtol=1e-5)
    assert served["num_tokens"] == [count for _, count in expected] == [4, 2, 9]


def test_signatures_have_the_promised_names_types_and_shapes(served):
    flag = {"truncated": ["bool", [None]]}
    assert served["signatures"] == {
        "serving_default": {
            "translation": ["string", [None]],
            "score": ["float32", [None]],
            **flag,
        },
        "n_best": {"translations": ["string", [None, 3]], "scores": ["float32", [None, 3]], **flag},
        "score": {"log_prob": ["float32", [None]], "num_tokens": ["int32", [None]], **flag},
        "translate": {
            "translations": ["string", [None, 3]],
            "scores": ["float32", [None, 3]],
            **flag,
        },
        "align": {
            "translation": ["string", [None]],
            **{
                f"{side}_{edge}": ["int32", [None, None]]
                for side in ("source", "target")
                for edge in ("start", "end")
            },
            **flag,
        },
        "encode": {"vector": ["float32", [None, 32]], **flag},
    }


def test_any_batch_size_and_any_bytes_are_answered_without_touching_other_rows(served):
    assert served["same"]
    assert served["shape"] == [9]
    assert served["truncated"] == [False, False, True, *[False] * 6]
    assert served["no rows"] == [[0], [0]]
    assert served["of empty"] == ""


def test_the_graph_has_standard_operations_only(served, exported):
    # tf.saved_model.load knows TensorFlow's own; what else there is must be TF Text's, by name.
    used = operations_used(exported)
    assert not {op for op in used if "PyFunc" in op or op.startswith("Custom")}
    assert served["unknown"] == []


def test_a_server_begins_with_no_shape_met_and_writes_nothing(served):
    assert served["met"] == [[0] * 5, 1]
    assert not served["written"]


@pytest.mark.slow
def test_an_export_that_xla_compiles_translates_the_same(exported, tmp_path):
    compiled_translator().export(tmp_path / "1", verbose=False)
    must_compile = b"_XlaMustCompile\x12\x02(\x01"  # the attribute with the value true
    assert must_compile in (tmp_path / "1" / "saved_model.pb").read_bytes()
    assert must_compile not in (exported / "saved_model.pb").read_bytes()
    serve = load(tmp_path / "1").signatures["serving_default"]
    found = serve(text=tf.constant(TEXTS))["translation"].numpy()
    assert [text.decode() for text in found] == translator()(TEXTS)


@pytest.mark.slow
def test_the_session_loader_restores_the_weights(exported):
    # It stands for loaders that are not Python: it reads variables by name from the files alone.
    code = """
        with tf.compat.v1.Session(graph=tf.Graph()) as session:
            meta = tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1])
            signature = meta.signature_def["serving_default"]
            texts = session.run(
                signature.outputs["translation"].name, {signature.inputs["text"].name: ["abcd"]}
            )
        print(json.dumps([text.decode() for text in texts]))
    """
    assert in_clean_process(exported, code) == translator()(["abcd"])


@pytest.mark.slow
def test_keras_and_the_command_line_run_it(exported, tmp_path):
    layer = keras.layers.TFSMLayer(exported, call_endpoint="serving_default")
    expected = translator()(["abcd", "fg"])
    assert layer(tf.constant(["abcd"]))["translation"].numpy()[0].decode() == expected[0]
    # The program has no option to load TF Text, which must come first.
    code = (
        "import tensorflow_text; from tensorflow.python.tools import saved_model_cli as c; c.main()"
    )
    arguments = ["run", "--dir", exported, "--tag_set", "serve", "--outdir", tmp_path]
    arguments += ["--signature_def", "n_best", "--input_exprs", 'text=["abcd", "fg"]']
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, cwd=tmp_path)
    translations = np.load(tmp_path / "translations.npy", allow_pickle=True)
    assert [text.decode() for text in translations[:, 0]] == expected


def times_written(folder):
    return {file: file.stat().st_mtime_ns for file in (folder, *folder.rglob("*"))}


@pytest.mark.slow
def test_it_needs_no_file_of_the_vocabulary(tmp_path, export_only):
    trained = SentencePieceTokenizer.train(["abcd efg"] * 9, 20, shrink_to_fit=True)
    trained.save(tmp_path / "vocabulary")
    tokenizer = load_tokenizer(tmp_path / "vocabulary")
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    own = Translator(model, tokenizer, max_length=4, max_source_length=16, jit_compile=False)
    export_only("align")
    own.export(tmp_path / "1", verbose=False)
    (tmp_path / "vocabulary").unlink()
    code = """
        answer = model.signatures["align"](text=tf.constant(["abcd"]))
        print(json.dumps(answer["translation"].numpy()[0].decode()))
    """
    assert in_clean_process(tmp_path / "1", code) == own.align(["abcd"])[0][0]


@pytest.mark.slow
def test_greedy_search_exports_one_hypothesis():
    options = {**OPTIONS, "search": GreedySearch(), "max_batch_tokens": 1}
    own = translator()
    greedy = Translator(own.model, own.source_tokenizer, **options, jit_compile=False)
    n_best = greedy.string_functions.n_best.get_concrete_function()
    assert n_best.structured_outputs["scores"].shape.as_list() == [None, 1]


def test_an_existing_directory_is_left_alone(tmp_path):
    (tmp_path / "note").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="`path` must not exist yet. Received: path="):
        translator().export(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["note"]


def test_a_failed_export_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(self, path):
        Path(path, "saved_model.pb").write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(StringFunctions, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        translator().export(tmp_path / "1")
    assert list(tmp_path.iterdir()) == []


def test_loading_what_is_no_export_says_so(tmp_path):
    with pytest.raises(ValueError, match="`path` must hold a SavedModel. Received: path="):
        load(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("jit_compile", "name"), [(True, "serving_default"), (False, "align")])
def test_an_export_of_sampling_draws_anew_unless_it_has_a_seed(
    jit_compile, name, tmp_path, export_only
):
    tokenizer = CharacterTokenizer.train(["abcdefgh"])
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    options = {"max_length": 12, "max_source_length": 16, "jit_compile": jit_compile}
    export_only(name)
    for seed in (None, 3):
        own = Translator(model, tokenizer, search=Sampling(seed=seed), **options)
        own.export(tmp_path / str(seed), verbose=False)
        loaded = load(tmp_path / str(seed))
        first, second = (
            loaded.signatures[name](text=tf.constant(["abc"] * 4))["translation"].numpy()
            for _ in range(2)
        )
        assert (first == second).all() == (seed is not None)
        again = load(tmp_path / str(seed)).signatures[name](text=tf.constant(["abc"] * 4))
        np.testing.assert_array_equal(again["translation"], first)  # the generator's state is saved


@pytest.mark.slow
def test_merging_equal_nodes_changes_no_bit(exported, tmp_path, monkeypatch):
    module = sys.modules["keras_transformer.serving.export"]  # the name is also its function's
    monkeypatch.setattr(module, "reduce_saved_model", lambda path: None)
    translator().export(tmp_path / "1", verbose=False)
    text = tf.constant([*words(9, seed=22), "", "zzz"])
    merged, plain = load(exported).signatures, load(tmp_path / "1").signatures
    assert sorted(merged) == sorted(plain)
    for name in ("n_best", "align", "encode"):
        expected = plain[name](text=text)
        for key, found in merged[name](text=text).items():
            np.testing.assert_array_equal(found, expected[key])


def test_a_graph_that_calls_python_is_not_exported(tmp_path, monkeypatch):
    @tf.function(input_signature=[TEXT], autograph=False)
    def back_to_python(text):
        return {"text": tf.py_function(lambda x: x, [text], tf.string)}

    signatures = property(lambda self: {"serving_default": back_to_python})
    monkeypatch.setattr(StringFunctions, "signatures", signatures)
    with pytest.raises(ValueError, match="a graph with EagerPyFunc"):
        translator().export(tmp_path / "1", verbose=False)
    assert list(tmp_path.iterdir()) == []
    met = translator().id_functions.search_ids.shapes_met
    met.assign(tf.ones_like(met))  # which the export has not met, but Python
    translator().export(tmp_path / "2", allowed_operations=["EagerPyFunc"], verbose=False)
    assert met.numpy().all()


EXPORTED_ANEW = """
import sys
import keras
from keras_transformer import Transformer
from keras_transformer.serving import Translator
from keras_transformer.serving.string_functions import StringFunctions
from keras_transformer.text import load_tokenizer

names = ("serving_default", "score")
StringFunctions.signatures = property(lambda self: {name: getattr(self, name) for name in names})
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
    # A second export of one process differs in the numbers of names alone. They are names of
    # functions, and of the gradient that the logits of a score have.
    graphs = [
        sorted(re.sub(r"[_-]\d+", "", str(node)) for node in nodes_of(files.pop("saved_model.pb")))
        for files in (second, third)
    ]
    assert second == third
    assert graphs[0] == graphs[1]


def nodes_of(graph):
    """Every node of a SavedModel."""
    graph = SavedModel.FromString(graph).meta_graphs[0].graph_def
    return [*graph.node, *(node for f in graph.library.function for node in f.node_def)]


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["swish", "gelu"])
def test_an_activation_with_a_gradient_of_its_own_loads_in_a_clean_process(
    activation, tmp_path, export_only
):
    export_only("serving_default")
    tokenizer = CharacterTokenizer("abcdefg")
    sizes = dict(num_layers=3, d_model=8, num_heads=2, d_ff=16)
    model = Transformer(tokenizer.vocab_size, **sizes, activation=activation)
    made = Translator(model, tokenizer, search=GreedySearch(), max_length=5)
    made.export(tmp_path / "1", verbose=False)
    found = in_clean_process(
        tmp_path / "1",
        """
        answer = model.signatures["serving_default"](text=tf.constant(["abc", "g"]))
        print(json.dumps([text.decode() for text in answer["translation"].numpy()]))
        """,
    )
    assert found == made(["abc", "g"])
