"""The training on JAX: its vocabularies, a run where TensorFlow cannot be imported, its export."""

import csv
import importlib.util
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import train_without_tensorflow
from keras_transformer.recipes.run_directory import RunDirectory
from keras_transformer.text import SentencePieceTokenizer, SymbolTokenizer
from plain_transducer import Transducer
from plain_vocabulary import Subwords, Symbols
from symbol_pairs import read_pairs
from train_without_tensorflow import parse_arguments

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TEXTS = ["a b a", "ß b\u2028c", "x a\tb"]
SENTENCES = ["A man rides a horse.", "Ein Mann reitet auf einem Pferd.", "Two DOGS run."] * 20


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "train_without_tensorflow.py"), *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), **environment},
        check=False,
    )


@pytest.fixture
def without_tensorflow(tmp_path):
    """Runs the program in a process where importing TensorFlow fails."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for name in ("tensorflow", "tensorflow_text"):
        (folder / f"{name}.py").write_text("raise ImportError('not here')", encoding="utf-8")
    environment = dict(
        PYTHONPATH=os.pathsep.join([str(folder), str(EXAMPLES.parent)]),
        XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
        JAX_COMPILATION_CACHE_DIR=str(tmp_path / "jax"),
    )
    return lambda backend, *arguments: run(*arguments, **environment, KERAS_BACKEND=backend)


@pytest.mark.parametrize("reverse", [False, True])
def test_symbols_have_the_ids_of_the_tokenizer(tmp_path, reverse):
    Symbols.train(TEXTS).save(tmp_path / "symbols")
    ours = Symbols.load(tmp_path / "symbols", reverse)
    theirs = SymbolTokenizer(SymbolTokenizer.train(TEXTS).symbols, reverse=reverse)
    assert ours.pieces[4:] == theirs.symbols
    assert ours.size == theirs.vocab_size
    for text in [*TEXTS, "b unseen a", ""]:
        ids = theirs.tokenize([text]).to_list()[0]
        assert ours.encode(text) == ids
        assert ours.decode(ids) == theirs.detokenize([ids]).numpy()[0].decode()


def test_symbols_of_real_pairs_are_those_of_the_tokenizer(shared):
    texts = [text for pair in read_pairs(shared("data/inflection/kat.dev"), "inflection")
             for text in pair]  # fmt: skip
    assert Symbols.train(texts).pieces[4:] == SymbolTokenizer.train(texts).symbols


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("rule", ["identity", "nfc", "nfkc", "nmt_nfkc", "nmt_nfkc_cf"])
def test_subwords_have_the_ids_of_the_tokenizer(tmp_path, lowercase, rule):
    options = {"normalization": rule, "lowercase": lowercase}
    texts = [*SENTENCES, "Σ ΣΑΣ ΑΣ"]
    Subwords.train(texts, 90, **options).save(tmp_path / "model")
    ours = Subwords.load(tmp_path / "model", **options)
    theirs = SentencePieceTokenizer(ours.model, **ours.options)
    trained = SentencePieceTokenizer.train(
        texts, 90, shrink_to_fit=True, character_coverage=1.0, **options
    )
    assert trained.pieces(range(ours.size)) == theirs.pieces(range(ours.size))
    seen = [*SENTENCES[:3], ""]
    for text in [*seen, "Ä DOG\t rides\u3000ΑΣ.", "a\u0308 ﬁ"]:
        ids = theirs.tokenize([text]).to_list()[0]
        # Of other characters `SentencePieceTokenizer.train` reads what they stand for.
        assert text not in seen or trained.tokenize([text]).to_list()[0] == ids
        assert ours.encode(text) == ids
        assert ours.decode(ids) == theirs.detokenize([ids]).numpy()[0].decode()


def test_texts_are_read_as_they_are_and_symbols_composed(tmp_path):
    file = tmp_path / "pairs"
    file.write_text("e\u0301\tשּׁ\n", encoding="utf-8")
    assert read_pairs(file, "text") == [("e\u0301", "שּׁ")]
    assert read_pairs(file, "pairs")[0][0] == "é"


def test_columns_of_text_are_read(tmp_path):
    file = tmp_path / "pairs"
    file.write_text("A man.\tEin\tMann.\n", encoding="utf-8")
    assert read_pairs(file, "text") == [("A man.", "Ein Mann.")]
    file.write_text("A man.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 must have 2 columns"):
        read_pairs(file, "text")


def test_tensorflow_has_a_program_of_its_own(tmp_path, monkeypatch):
    file = tmp_path / "pairs"
    file.write_text("a\tb\n", encoding="utf-8")
    files = ("--format", "pairs", "--train", file, "--test", file, "--output", tmp_path / "run")
    monkeypatch.setattr(sys, "argv", ["train_without_tensorflow.py", *map(str, files)])
    with pytest.raises(SystemExit, match="with TensorFlow use transduce.py"):
        train_without_tensorflow.main()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "pairs", "--lowercase"), "need --format text"),
        (("--format", "pairs", "--normalization", "nfc"), "need --format text"),
        (("--format", "pairs", "--vocab-size", 9), "need --format text"),
        (("--format", "text", "--right-to-left"), "another format than text"),
        (("--format", "text", "--length-penalty", 1), "needs --beam above 1"),
        (("--format", "text", "--beam", 2, "--length-penalty", 11), "number from 0 to 10"),
        (("--format", "text", "--vocab-size", 0), "--vocab-size must be at least 1"),
        (("--format", "text", "--max-length", 9), "--max-length must be at least 16"),
        (("--format", "text", "--steps-per-execution", 0), "must be at least 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(monkeypatch, capsys, options, message):
    files = ("--train", "a", "--test", "b", "--output", "c")
    monkeypatch.setattr(sys, "argv", ["program", *map(str, options), *files])
    with pytest.raises(SystemExit) as stopped:
        parse_arguments()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_a_vocabulary_too_small_for_its_characters_is_refused():
    with pytest.raises(ValueError, match="--vocab-size must leave room for every character"):
        Subwords.train(SENTENCES, 10)


def test_a_run_begun_with_other_settings_forgets_its_vocabulary(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.open({"vocab_size": 80})
    Subwords.train(SENTENCES, 80).save(directory.path / "vocabulary.model")
    directory.open({"vocab_size": 90})
    assert [file.name for file in directory.path.iterdir()] == ["settings.json"]


class Reversing:
    """Stands in for a `Generator`: reverses the ids of each row, and notes what it is given."""

    def __init__(self):
        self.shapes = []

    def predict(self, source_ids, batch_size, verbose):
        self.shapes.append((*source_ids.shape, batch_size))
        return np.array([[*row[row > 3][::-1], 3, *row[row <= 3]] for row in source_ids])


def test_long_texts_are_searched_apart_and_all_come_back_in_order():
    symbols = Symbols("abc")
    transducer = Transducer(None, (symbols, symbols), None, 9, tokens_per_batch=12)
    transducer.generator = Reversing()
    texts = ["a b", "", "c a b", *["b c"] * 18, " ".join("abc" * 5)]
    assert transducer(texts) == [" ".join(reversed(text.split())) for text in texts]
    assert transducer.generator.shapes == [(21, 4, 3), (1, 16, 1)]
    transducer.generator = Reversing()
    assert transducer(texts[:3]) == ["b a", "", "b a c"]
    assert transducer.generator.shapes == [(3, 4, 3)]


def exported(stdout):
    """The translator that the printed lines of Python write."""
    _, _, code = stdout.partition("where TensorFlow is installed:\n")
    lines = [line for line in code.splitlines() if line.startswith("    ")]
    scope = {}
    exec(textwrap.dedent("\n".join(lines)), scope)
    return scope["translator"]


def predictions(directory):
    with open(directory / "predictions.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [row["source"] for row in rows], [row["output"] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_run_goes_on_and_is_exported_by_tensorflow(tmp_path, without_tensorflow, backend):
    pytest.importorskip(backend)
    draws, directory = random.Random(0), tmp_path / "run"
    words = ["".join(draws.choices("abcd", k=draws.randint(1, 6))) for _ in range(299)]
    # On JAX, whose loop is fast, one longer than what a Translator reads unless it is told.
    words.append("abcd" * {"jax": 75, "torch": 5}[backend])
    for name, part in (("train", words[:250]), ("test", words[250:])):
        lines = [f"{word}\t{word[::-1]}\n" for word in part]
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    files = ("--format", "pairs", "--train", tmp_path / "train", "--test", tmp_path / "test")
    options = ("--output", directory, "--right-to-left", "--tokens-per-batch", 512, "--average", 2)
    first = without_tensorflow(backend, *files, *options, "--epochs", 1)
    assert first.returncode == 0, first.stderr
    assert "Exact match" in first.stdout
    if backend == "torch":
        refused = without_tensorflow("torch", *files, *options, "--steps-per-execution", 2)
        assert "--steps-per-execution above 1 needs JAX" in refused.stderr
    steps = {"jax": 2, "torch": 1}[backend]
    second = without_tensorflow(
        backend, *files, *options, "--epochs", 2, "--steps-per-execution", steps
    )
    assert second.returncode == 0, second.stderr
    assert "Going on from epoch 1" in second.stdout
    third = without_tensorflow(backend, *files, *options, "--epochs", 2)
    assert "Already trained: 2 epochs" in third.stdout, third.stderr
    with open(directory / "history.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert all(float(row["tokens"]) > 2 * float(row["val_tokens"]) for row in rows)
    other = {"jax": "torch", "torch": "jax"}[backend]
    if importlib.util.find_spec(other):
        refused = without_tensorflow(other, *files, *options, "--epochs", 3)
        assert f"backend was '{backend}' and is '{other}'" in refused.stderr
    translator = exported(third.stdout)
    sources, outputs = predictions(directory)
    same = [a == b for a, b in zip(translator(sources), outputs, strict=True)]
    assert sum(same) >= 0.9 * len(same)  # of a model that knows little, two tokens may tie
    loaded = tf.saved_model.load(str(directory / "export" / "1"))
    served = loaded.signatures["serving_default"](text=tf.constant(sources[:3]))["translation"]
    assert [text.decode() for text in served.numpy()] == translator(sources[:3])


@pytest.mark.slow
def test_subwords_on_jax_with_a_beam(tmp_path, without_tensorflow):
    pytest.importorskip("jax")
    pytest.importorskip("sacrebleu")
    file, directory = tmp_path / "pairs", tmp_path / "run"
    lines = [f"{SENTENCES[n % 3]} {n}\t{SENTENCES[(n + 1) % 3]} {n}\n" for n in range(60)]
    file.write_text("".join(lines), encoding="utf-8")
    done = without_tensorflow(
        *("jax", "--format", "text", "--train", file, "--test", file, "--validation", file),
        *("--output", directory, "--lowercase", "--vocab-size", 100, "--epochs", 1),
        *("--normalization", "nfkc"),
        *("--beam", 3, "--length-penalty", 1, "--validate-every", 1, "--average", 0),
    )
    assert done.returncode == 0, done.stderr
    assert "BLEU: " in done.stdout
    assert "chrF: " in done.stdout
    assert "case:lc" in done.stdout
    translator = exported(done.stdout)
    sources, outputs = predictions(directory)
    same = [a == b for a, b in zip(translator(sources), outputs, strict=True)]
    assert sum(same) >= 0.9 * len(same)
