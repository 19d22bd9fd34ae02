"""ONNX and LiteRT, each in its own runtime, on two hundred texts."""

import random
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_transformer import GreedySearch, Transformer
from keras_transformer.serving import Translator, export_litert, export_onnx
from keras_transformer.serving.onnx_and_litert import settings_of
from keras_transformer.text import SentencePieceTokenizer
from tests.serving.trained import spaced, translator, translator_of_reversed_symbols, words
from translate_portable import PortableTranslator

FORMATS = {
    "onnx": (export_onnx, ["tf2onnx", "onnxruntime"]),
    "litert": (export_litert, ["ai_edge_litert"]),
}
PORTABLE = Path(__file__).resolve().parents[2] / "examples" / "translate_portable.py"
WORDS = "a man dog rides runs sees the horse street red old".split()  # noqa: SIM905


@pytest.fixture(params=FORMATS, scope="module")
def write(request):
    function, needed = FORMATS[request.param]
    for package in needed:
        pytest.importorskip(package)
    return function


def greedy_translator(*model_and_tokenizers, **options):
    """Not compiled by XLA, which takes long."""
    return Translator(*model_and_tokenizers, search=GreedySearch(), jit_compile=False, **options)


@pytest.mark.parity
def test_two_hundred_words_of_a_trained_model_are_translated_alike(write, tmp_path):
    trained = translator()
    greedy = greedy_translator(trained.model, trained.source_tokenizer, max_length=12)
    write(greedy, tmp_path / "portable")
    texts = [*words(198, seed=51), "", "é?"]
    assert PortableTranslator(tmp_path / "portable")(texts) == greedy(texts)
    lines = "".join(f"{text}\n" for text in texts[:20])
    done = subprocess.run(
        [sys.executable, PORTABLE, tmp_path / "portable"],
        input=lines, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == greedy(texts[:20])


@pytest.mark.parity
def test_two_hundred_sentences_of_two_vocabularies_are_translated_alike(write, tmp_path):
    generator = random.Random(3)
    texts = [" ".join(generator.choices(WORDS, k=generator.randint(1, 9))) for _ in range(200)]
    source = SentencePieceTokenizer.train(texts, 60, shrink_to_fit=True)
    target = SentencePieceTokenizer.train([text[::-1] for text in texts], 50, shrink_to_fit=True)
    keras.utils.set_random_seed(8)
    model = Transformer(
        source_vocab_size=source.vocab_size, target_vocab_size=target.vocab_size,
        num_layers=2, d_model=32, num_heads=4, d_ff=64, norm_first=True,
    )  # fmt: skip
    greedy = greedy_translator(model, source, target)
    write(greedy, tmp_path / "portable")
    assert PortableTranslator(tmp_path / "portable")(texts) == greedy(texts)


# How texts are read and written has nothing of a format.
@pytest.mark.parity
@pytest.mark.parametrize("write", ["onnx"], indirect=True)
def test_targets_that_a_tokenizer_reverses_are_written_alike(write, tmp_path):
    trained = translator_of_reversed_symbols()
    tokenizers = trained.source_tokenizer, trained.target_tokenizer
    greedy = greedy_translator(trained.model, *tokenizers, max_length=12)
    write(greedy, tmp_path / "portable")
    texts = [*map(spaced, words(100, seed=52)), ""]
    outputs = greedy(texts)
    assert outputs != [" ".join(reversed(text.split())) for text in outputs]
    assert PortableTranslator(tmp_path / "portable")(texts) == outputs


@pytest.mark.parity
@pytest.mark.parametrize("write", ["litert"], indirect=True)
def test_sources_in_another_case_and_normal_form_are_translated_alike(write, tmp_path):
    texts = ["ο μεγάλος σκύλος", "fin de l’été", "a dog"] * 9
    target = SentencePieceTokenizer.train(texts, 90, shrink_to_fit=True, lowercase=True)
    source = SentencePieceTokenizer(target.model, normalization="nfkc", lowercase=True)
    keras.utils.set_random_seed(8)
    model = Transformer(target.vocab_size, num_layers=1, d_model=32, num_heads=4, d_ff=64)
    greedy = greedy_translator(model, source, target, max_length=12)
    write(greedy, tmp_path / "portable")
    hard = ["Ο ΜΕΓΆΛΟΣ\tΣΚΎΛΟΣ", "ﬁn DE l’e\u0301te\u0301", "Ａ　DOG", *texts[:3]]
    outputs = greedy(hard)
    assert outputs[:3] == outputs[3:]
    assert PortableTranslator(tmp_path / "portable")(hard) == outputs


@pytest.mark.parametrize("divides", [False, True])
def test_a_program_knows_whether_the_translator_divides_texts(divides):
    made = translator()
    again = Translator(made.model, made.source_tokenizer, split_sentences=divides)
    assert settings_of(again)["split_sentences"] is divides


def test_an_existing_directory_is_left_alone(write, tmp_path):
    (tmp_path / "note").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="`path` must not exist yet"):
        write(translator(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["note"]


def test_a_failed_export_leaves_nothing_behind(write, tmp_path, monkeypatch):
    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("keras_transformer.serving.onnx_and_litert.write_vocabulary", fail)
    monkeypatch.setattr("keras_transformer.serving.onnx_and_litert.functions_of", lambda model: {})
    with pytest.raises(OSError, match="disk full"):
        write(translator(), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
