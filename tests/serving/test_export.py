"""The SavedModel: in a clean process it gives what Python gave, and survives any bytes."""

import json
import os
import re
import subprocess
import sys
import textwrap
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import keras_transformer
from keras_transformer import GreedySearch, Sampling, Transformer
from keras_transformer.serving import Translator, export, load
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer, load_tokenizer
from tests.serving.trained import answer, translator, translator_of_two_vocabularies, words

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


def test_a_clean_process_translates_as_python_did(exported):
    texts = [*words(9, seed=21), "", "zzz unknown"]
    code = """
        texts = json.loads(sys.argv[2])
        best = model.signatures["serving_default"](text=tf.constant(texts))
        n_best = model.signatures["n_best"](text=tf.constant(texts))
        print(json.dumps([
            [t.decode() for t in best["translation"].numpy()], best["score"].numpy().tolist(),
            [[t.decode() for t in row] for row in n_best["translations"].numpy()],
            n_best["scores"].numpy().tolist(),
        ]))
    """
    best, score, translations, scores = in_clean_process(exported, code, json.dumps(texts))
    hypotheses = translator().n_best(texts)
    assert best == translator()(texts)
    assert translations == [[text for text, _ in row] for row in hypotheses]
    expected = [[score for _, score in row] for row in hypotheses]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_allclose(score, np.array(expected)[:, 0], atol=1e-5)


def test_each_side_is_read_and_written_with_its_own_vocabulary(tmp_path):
    two, texts = translator_of_two_vocabularies(), words(40, seed=22)
    # The letters of one side are unknown to the other: a mix-up could get none right.
    right = [ours == answer(text) for ours, text in zip(two(texts), texts, strict=True)]
    assert np.mean(right) > 0.9
    two.export(tmp_path / "1")
    code = """
        texts = json.loads(sys.argv[2])
        best = model.signatures["serving_default"](text=tf.constant(texts))
        target = best["translation"]
        answer = model.signatures["score"](source=tf.constant(texts), target=target)
        texts = [text.decode() for text in target.numpy()]
        print(json.dumps([texts, answer["log_prob"].numpy().tolist()]))
    """
    translations, log_probs = in_clean_process(tmp_path / "1", code, json.dumps(texts))
    assert translations == two(texts)
    assert np.mean(log_probs) > -1.0  # what it wrote is what it finds likely


def test_an_export_without_xla_translates_the_same(tmp_path):
    trained, texts = translator(), words(9, seed=23)
    plain = Translator(
        trained.model,
        trained.source_tokenizer,
        search=trained.search,
        max_length=12,
        max_source_length=32,
        max_batch_tokens=64,
        jit_compile=False,
    )
    plain.export(tmp_path / "1")
    translator().export(tmp_path / "2")
    must_compile = b"_XlaMustCompile\x12\x02(\x01"  # the attribute with the value true
    assert must_compile not in (tmp_path / "1" / "saved_model.pb").read_bytes()
    assert must_compile in (tmp_path / "2" / "saved_model.pb").read_bytes()
    code = """
        best = model.signatures["serving_default"](text=tf.constant(json.loads(sys.argv[2])))
        print(json.dumps([t.decode() for t in best["translation"].numpy()]))
    """
    assert in_clean_process(tmp_path / "1", code, json.dumps(texts)) == translator()(texts)


def test_a_clean_process_scores_as_python_did(exported):
    sources, targets = ["abc", "g", "feed"], ["CBA", "A", "DEEFDEEF"]
    code = """
        answer = model.signatures["score"](
            source=tf.constant(json.loads(sys.argv[2])), target=tf.constant(json.loads(sys.argv[3]))
        )
        outputs = [answer["log_prob"], answer["num_tokens"]]
        print(json.dumps([output.numpy().tolist() for output in outputs]))
    """
    log_probs, num_tokens = in_clean_process(
        exported, code, json.dumps(sources), json.dumps(targets)
    )
    expected = translator().score(sources, targets)
    np.testing.assert_allclose(log_probs, [log_prob for log_prob, _ in expected], rtol=1e-5)
    assert num_tokens == [count for _, count in expected] == [4, 2, 9]


def test_signatures_have_the_promised_names_types_and_shapes(exported):
    signatures = load(exported).signatures
    described = {
        name: {
            key: (tensor.dtype.name, tensor.shape.as_list())
            for key, tensor in signatures[name].structured_outputs.items()
        }
        for name in signatures
    }
    flag = {"truncated": ("bool", [None])}
    assert described == {
        "serving_default": {
            "translation": ("string", [None]),
            "score": ("float32", [None]),
            **flag,
        },
        "n_best": {"translations": ("string", [None, 3]), "scores": ("float32", [None, 3]), **flag},
        "score": {"log_prob": ("float32", [None]), "num_tokens": ("int32", [None]), **flag},
        "translate": {
            "translations": ("string", [None, 3]),
            "scores": ("float32", [None, 3]),
            **flag,
        },
        "align": {
            "translation": ("string", [None]),
            **{
                f"{side}_{edge}": ("int32", [None, None])
                for side in ("source", "target")
                for edge in ("start", "end")
            },
            **flag,
        },
        "encode": {"vector": ("float32", [None, 32]), **flag},
    }


def test_any_batch_size_and_any_bytes_are_answered_without_touching_other_rows(exported):
    code = r"""
        hostile = [b"", b"\xff\xfe\x00", b"a" * 1000, "\U0001f600\u202e".encode(), b"</s><s>",
                   b"\x00", b"   \n\t", bytes(range(256))]
        serve = model.signatures["serving_default"]
        alone = serve(text=tf.constant(["abc"]))["translation"].numpy()[0]
        mixed = serve(text=tf.constant([*hostile, b"abc"]))
        empty = serve(text=tf.constant([], tf.string))
        print(json.dumps([
            mixed["translation"].numpy()[-1] == alone, mixed["translation"].shape.as_list(),
            mixed["truncated"].numpy().tolist(), empty["translation"].shape.as_list(),
            empty["score"].shape.as_list(), [t.decode() for t in mixed["translation"].numpy()][:1],
        ]))
    """
    same, shape, truncated, no_rows, no_scores, of_empty = in_clean_process(exported, code)
    assert same
    assert shape == [9]
    assert truncated == [False, False, True, False, False, False, False, False, False]
    assert no_rows == no_scores == [0]
    assert of_empty == [""]


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


def test_it_needs_nothing_but_its_directory(tmp_path):
    # Moved, read-only, seen from elsewhere, without the package and the file of the vocabulary.
    trained = SentencePieceTokenizer.train(["abcd efg"] * 9, 20, shrink_to_fit=True)
    trained.save(tmp_path / "vocabulary")
    tokenizer = load_tokenizer(tmp_path / "vocabulary")
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    own = Translator(model, tokenizer, max_length=4, max_source_length=16)
    moved = tmp_path / "elsewhere" / "1"
    own.export(tmp_path / "1", verbose=False)
    (tmp_path / "vocabulary").unlink()
    moved.parent.mkdir()
    (tmp_path / "1").rename(moved)
    for file in (moved, *moved.rglob("*")):
        file.chmod(0o500 if file.is_dir() else 0o400)
    code = """
        answer = model.signatures["align"](text=tf.constant(["abcd"]))
        print(json.dumps(answer["translation"].numpy()[0].decode()))
    """
    before = times_written(moved)
    translation = in_clean_process(moved, code)
    for folder in (moved, *(path for path in moved.rglob("*") if path.is_dir())):
        folder.chmod(0o700)
    assert translation == own(["abcd"])[0]
    assert times_written(moved) == before  # root may write what is read-only


def test_the_graph_has_standard_operations_only(exported):
    # tf.saved_model.load knows TensorFlow's own; what else there is must be TF Text's, by name.
    graph = SavedModel.FromString((exported / "saved_model.pb").read_bytes()).meta_graphs[0]
    functions = [node for f in graph.graph_def.library.function for node in f.node_def]
    used = {node.op for node in [*graph.graph_def.node, *functions]}
    own = {f.signature.name for f in graph.graph_def.library.function}
    assert not {op for op in used if "PyFunc" in op or op.startswith("Custom")}
    code = """
        from tensorflow.python.framework import op_def_registry
        used = json.loads(sys.argv[2])
        print(json.dumps([op for op in used if op_def_registry.get(op) is None]))
    """
    assert in_clean_process(exported, code, json.dumps(sorted(used - own))) == []


@pytest.mark.slow
def test_a_megabyte_of_one_letter_is_answered_and_said_to_be_cut(tmp_path):
    keras.utils.set_random_seed(3)
    tokenizer = SentencePieceTokenizer.train(["a man rides a horse"] * 9, 40)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    Translator(model, tokenizer, max_length=5, max_source_length=64).export(tmp_path / "1")
    code = """
        texts = [b"a" * 2**20, b"a horse"]
        answer = model.signatures["serving_default"](text=tf.constant(texts))
        print(json.dumps(answer["truncated"].numpy().tolist()))
    """
    assert in_clean_process(tmp_path / "1", code) == [True, False]


def test_greedy_search_exports_one_hypothesis(tmp_path):
    trained = translator()
    greedy = Translator(
        trained.model,
        trained.source_tokenizer,
        search=GreedySearch(),
        max_length=5,
        max_batch_tokens=1,
    )
    export(greedy, tmp_path / "greedy")
    shape = load(tmp_path / "greedy").signatures["n_best"].structured_outputs["scores"].shape
    assert shape.as_list() == [None, 1]


def test_an_existing_directory_is_left_alone(tmp_path):
    (tmp_path / "note").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="`path` must not exist yet. Received: path="):
        translator().export(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["note"]


def test_a_failed_export_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        translator().export(tmp_path / "1")
    assert list(tmp_path.iterdir()) == []


def test_loading_what_is_no_export_says_so(tmp_path):
    with pytest.raises(ValueError, match="`path` must hold a SavedModel. Received: path="):
        load(tmp_path)


def test_exporting_and_translating_warn_of_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator().export(tmp_path / "1")
        translator()(["abc"])


@pytest.mark.parametrize("jit_compile", [True, False])
def test_an_export_of_sampling_draws_anew_unless_it_has_a_seed(jit_compile, tmp_path):
    tokenizer = CharacterTokenizer.train(["abcdefgh"])
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    options = {"max_length": 12, "max_source_length": 16, "jit_compile": jit_compile}
    for seed in (None, 3):
        own = Translator(model, tokenizer, search=Sampling(seed=seed), **options)
        own.export(tmp_path / str(seed), verbose=False)
        loaded = load(tmp_path / str(seed))
        for name in ("serving_default", "align"):
            first, second = (
                loaded.signatures[name](text=tf.constant(["abc"] * 4))["translation"].numpy()
                for _ in range(2)
            )
            assert (first == second).all() == (seed is not None)


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
