"""The ONNX file of strings translates as its translator does, or is refused with the reason."""

import importlib.util
import json
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.serving import Translator, export_onnx
from keras_transformer.serving.onnx_strings import other_tokens
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer
from tests.backends import randomise

TEXTS = ["a man rides a horse", "two dogs run", "the old red street", "a dog sees a man"] * 5
HARD = [
    *TEXTS[:4],
    "",
    "   ",
    "  a   man\t",
    "a\u3000dog\n",
    "漢字 🙂 man",
    "ﬁne e\u0301 É",
    "\u2581dog \u2581",
    "<s> </s> <unk> <pad> <0x41>",
    "a <ph> b<ph>",
    "\ufeffman \u200b",
]


# onnxruntime-extensions may crash a process that has imported TensorFlow before.
PROGRAM = """
import json, sys
import numpy, onnxruntime, onnxruntime_extensions
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
session = onnxruntime.InferenceSession(
    sys.argv[1], options, providers=["CPUExecutionProvider"]
)
texts = numpy.array(json.load(sys.stdin), object)
json.dump([found.tolist() for found in session.run(None, {"text": texts})], sys.stdout)
"""


def run(path, texts):
    """Translations, scores, and whether each text is too long, as the file has them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path / "translator_strings.onnx"],
        input=json.dumps(texts), capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def model_of(source, target):
    keras.utils.set_random_seed(8)
    return Transformer(
        source_vocab_size=source.vocab_size, target_vocab_size=target.vocab_size,
        num_layers=1, d_model=32, num_heads=4, d_ff=64,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(TEXTS, 60, shrink_to_fit=True)


@pytest.fixture
def extensions():
    for package in ("onnx", "onnxruntime", "onnxruntime_extensions"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.mark.parity
@pytest.mark.usefixtures("extensions")
def test_ids_without_a_piece_are_unknown_ones(tokenizer, tmp_path):
    size = tokenizer.vocab_size
    model = Transformer(size + 60, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    model.build()
    randomise(model)
    search = GreedySearch(allowed_ids=[size, size + 59, 9])
    own = Translator(model, tokenizer, search=search, max_length=6, jit_compile=False)
    export_onnx(own, tmp_path / "onnx", strings=True)
    expected = own(TEXTS[:2])
    assert " \u2047 " in "".join(expected)
    assert run(tmp_path / "onnx", TEXTS[:2])[0] == [[text] for text in expected]


@pytest.mark.parity
@pytest.mark.usefixtures("extensions")
def test_a_file_of_strings_translates_as_its_translator_does(tmp_path):
    tokenizers = [
        SentencePieceTokenizer.train(TEXTS, 330, shrink_to_fit=True, **options)
        for options in (
            {"model_type": "unigram", "byte_fallback": True},
            {"normalization": "nmt_nfkc", "user_defined_symbols": ["<ph>"]},
        )
    ]
    search = BeamSearch(3, num_hypotheses=2)
    options = {"search": search, "max_length": 8, "max_source_length": 60, "jit_compile": False}
    own = Translator(model_of(*tokenizers), *tokenizers, **options)
    export_onnx(own, tmp_path / "onnx", strings=True)
    translations, scores, truncated = run(tmp_path / "onnx", [*HARD, "horse " * 80])
    expected = own.n_best(HARD)
    assert translations == [*([text for text, _ in found] for found in expected), ["", ""]]
    expected_scores = [*([score for _, score in found] for found in expected), [-1e9, -1e9]]
    np.testing.assert_allclose(scores, expected_scores, atol=5e-5)
    assert truncated == [False] * len(HARD) + [True]
    assert len({tuple(row) for row in translations}) > 5


OTHER_TOKENS = {
    "with lossless=True": lambda model: SentencePieceTokenizer(model, lossless=True),
    "with lowercase=True": lambda model: SentencePieceTokenizer(model, lowercase=True),
    "with leading_tags=True": lambda model: SentencePieceTokenizer(model, leading_tags=True),
    "with normalization='nfc'": lambda model: SentencePieceTokenizer(model, normalization="nfc"),
    "with ids of its own": lambda model: SentencePieceTokenizer(model, eos_id=7),
    "of CharacterTokenizer": lambda model: CharacterTokenizer.train(TEXTS),
}


@pytest.mark.parametrize("reason", OTHER_TOKENS)
def test_a_vocabulary_of_other_tokens_has_a_reason(reason, tokenizer):
    assert other_tokens(tokenizer) is None
    assert other_tokens(OTHER_TOKENS[reason](tokenizer.model)) == reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs SentencePiece vocabularies .* a source vocabulary with ids of its own"),
        ({"source_tag": "<de>"}, "knows no tags. Received: source_tag='<de>'"),
        ({"target_tag": "<de>"}, "knows no tags. Received: target_tag='<de>'"),
        ({"split_sentences": True}, "as one sentence. Received: split_sentences=True"),
    ],
)
def test_what_a_file_of_strings_cannot_read_is_refused(options, message, tokenizer, tmp_path):
    tagged = SentencePieceTokenizer(tokenizer.model, tags=["<de>"])
    made = Translator(model_of(tagged, tagged), tagged, tagged, **options)
    with pytest.raises(ValueError, match=message):
        export_onnx(made, tmp_path / "onnx", strings=True)
    assert list(tmp_path.iterdir()) == []
