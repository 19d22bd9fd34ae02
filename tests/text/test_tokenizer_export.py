"""Tokenizers inside a SavedModel, loaded where this package is not imported."""

import json
import subprocess
import sys

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

TEXTS = ["a man rides a horse.", "", "</s> caf\u00e9 \U0001f600", "two  dogs\t!", "Ａ ΜΑΣ İ"]

CLEAN_PROCESS = """
import json, sys
import tensorflow as tf
import tensorflow_text
results = {}
for name, path in json.loads(sys.argv[1]).items():
    loaded = tf.saved_model.load(path)
    batches = [json.loads(sys.argv[2]), [], ["one"]]
    served = [loaded.signatures["serving_default"](text=tf.constant(b, tf.string)) for b in batches]
    results[name] = [
        [ids["ids"].numpy().tolist(), [t.decode() for t in ids["text"].numpy()]] for ids in served
    ]
assert "keras_transformer" not in sys.modules
print(json.dumps(results))
"""


TEXT = tf.TensorSpec([None], tf.string, name="text")


class Served(tf.Module):
    """A tokenizer as an attribute of a module: strings to ids and back."""

    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer = tokenizer

    @tf.function(input_signature=[TEXT], autograph=False)
    def serve(self, text):
        ids = self.tokenizer.tokenize(text).to_tensor(self.tokenizer.pad_id)
        return {"ids": ids, "text": self.tokenizer.detokenize(ids)}

    @tf.function(input_signature=[TEXT], autograph=False)
    def count(self, text):
        return {"num_tokens": self.tokenizer.tokenize(text).row_lengths()}


class TwoSides(tf.Module):
    """Reads with one tokenizer and writes with another, as a translator does."""

    def __init__(self, source, target):
        super().__init__()
        self.source, self.target = source, target

    @tf.function(input_signature=[TEXT], autograph=False)
    def serve(self, text):
        ids = self.source.tokenize(text).to_tensor(self.source.pad_id)
        size = min(self.source.vocab_size, self.target.vocab_size)
        return {"ids": ids, "text": self.target.detokenize(ids % size)}


KINDS = ("character", "lossless", "unigram", "folded", "wordpiece")
SIDES = (("unigram", "lossless"), ("lossless", "unigram"))


@pytest.fixture(scope="module")
def served(tokenizers, tmp_path_factory):
    """What each export gives in one clean process, by its name."""
    folder, paths = tmp_path_factory.mktemp("exports"), {}
    for name in KINDS:
        module, paths[name] = Served(tokenizers[name]), str(folder / name)
        signatures = {"serving_default": module.serve, "count": module.count}
        tf.saved_model.save(module, paths[name], signatures=signatures)
    for sides in SIDES:
        name = " to ".join(sides)
        module, paths[name] = TwoSides(*(tokenizers[side] for side in sides)), str(folder / name)
        tf.saved_model.save(module, paths[name], signatures=module.serve)
    command = [sys.executable, "-c", CLEAN_PROCESS, json.dumps(paths), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=folder, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_an_exported_tokenizer_gives_the_same_in_a_clean_process(served, tokenizers, name):
    expected = []
    for batch in (TEXTS, [], ["one"]):
        ids = tokenizers[name].tokenize(batch)
        texts = [text.decode() for text in tokenizers[name].detokenize(ids).numpy()]
        expected.append([ids.to_tensor().numpy().tolist(), texts])
    assert served[name] == expected


def answers(serve):
    """What a function of an export gives, as `CLEAN_PROCESS` writes it."""
    found = [serve(text=tf.constant(batch, tf.string)) for batch in (TEXTS, [], ["one"])]
    return [
        [answer["ids"].numpy().tolist(), [text.decode() for text in answer["text"].numpy()]]
        for answer in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sides", SIDES)
def test_two_sentencepiece_models_give_the_same_in_a_clean_process(served, tokenizers, sides):
    module = TwoSides(*(tokenizers[side] for side in sides))
    assert served[" to ".join(sides)] == answers(module.serve)


def test_two_sentencepiece_models_of_one_export_are_not_taken_for_each_other(tokenizers, tmp_path):
    source, target = SIDES[0]
    module = TwoSides(tokenizers[source], tokenizers[target])
    tf.saved_model.save(module, tmp_path, signatures=module.serve)
    loaded = tf.saved_model.load(tmp_path)
    expected = [tokenizers[source].tokenize(TEXTS).to_tensor().numpy().tolist()]
    assert answers(loaded.signatures["serving_default"]) == answers(module.serve)
    assert answers(module.serve)[0][:1] == expected


def test_signatures_that_tokenize_share_one_copy_of_the_model(tokenizers, tmp_path):
    """Two uses of `tokenize` call one function of the graph, which holds the model once."""
    tokenizer = tokenizers["bpe"]
    module = Served(tokenizer)
    signatures = {"serving_default": module.serve, "count": module.count}
    tf.saved_model.save(module, tmp_path, signatures=signatures)
    model = tokenizer.to_bytes().partition(b"\n")[2]
    copies = (tmp_path / "saved_model.pb").read_bytes().count(model)
    assert copies == 2  # one to tokenize, one to detokenize
