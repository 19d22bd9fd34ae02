"""Exports to ONNX and LiteRT, each in its own runtime, translate texts as their translator does."""

import json
import random
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import (
    BeamSearch,
    GreedySearch,
    LearnedPositionalEncoding,
    RecurrentSeq2Seq,
    Transformer,
)
from keras_transformer.serving import Translator, export_litert, export_onnx
from keras_transformer.serving.portable_files import collect_settings, write_vocabulary
from keras_transformer.serving.portable_translator import PortableTranslator, open_vocabulary
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer
from tests.backends import randomise
from tests.serving.trained import spaced, translator, translator_of_reversed_symbols, words

FORMATS = {
    "onnx": (export_onnx, ["onnx", "onnxruntime"], BeamSearch(3)),
    "litert": (export_litert, ["ai_edge_litert"], GreedySearch()),
}
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "translate_portable.py"
WORDS = "a man dog rides runs sees the horse street red old".split()  # noqa: SIM905


@pytest.fixture(params=FORMATS, scope="module")
def write(request):
    """Exports a translator with a search that the format has: `write(*parts, path=path)`."""
    function, needed, search = FORMATS[request.param]
    for package in needed:
        pytest.importorskip(package)

    def export(*model_and_tokenizers, path, **options):
        """Not compiled by XLA, which takes long."""
        own = Translator(*model_and_tokenizers, search=search, jit_compile=False, **options)
        function(own, path)
        return own

    return export


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """The ONNX file of the trained translator, with its beam."""
    for package in FORMATS["onnx"][1]:
        pytest.importorskip(package)
    path = tmp_path_factory.mktemp("portable") / "onnx"
    export_onnx(translator(), path, card={"data": "made up"})
    return path


def test_an_onnx_file_finds_what_its_translator_finds(letters):
    texts = [*words(20, seed=51), "", "é?"]
    found = PortableTranslator(letters).n_best(texts)
    expected = translator().n_best(texts)
    for text, own, other in zip(texts, found, expected, strict=True):
        if not text:
            assert own == [("", 0.0)]
            continue
        assert [one for one, _ in own] == [one for one, _ in other]
        np.testing.assert_allclose([s for _, s in own], [s for _, s in other], atol=1e-5)


@pytest.mark.parametrize(
    "example", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["own", "example"]
)
def test_the_program_of_an_export_needs_neither_keras_nor_tensorflow(letters, example):
    texts = words(20, seed=52)
    refused = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(['keras', 'tensorflow', 'keras_transformer']))\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    program = [EXAMPLE, letters] if example else [letters / "portable_translator.py"]
    done = subprocess.run(
        [sys.executable, "-c", refused, *program],
        input="".join(f"{text}\n" for text in texts),
        capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == translator()(texts)


def test_a_folder_without_an_export_is_refused(tmp_path):
    with pytest.raises(ValueError, match=f"must hold the ONNX or LiteRT files.*{tmp_path.name}"):
        PortableTranslator(tmp_path)


def test_an_empty_batch_is_refused_and_no_texts_are_translated(letters):
    """onnxruntime may end the process at an empty batch."""
    portable = PortableTranslator(letters)
    assert portable([]) == []
    for shape in ((0, 3), (2, 0), (3,)):
        with pytest.raises(ValueError, match=rf"at least one row.* Received: shape \({shape[0]}"):
            portable.search(np.zeros(shape, np.int32))


def test_a_text_that_is_too_long_is_refused(letters):
    with pytest.raises(ValueError, match="a text has 41 tokens, and the model reads 32: 'aaaa"):
        PortableTranslator(letters)(["abc", "a" * 40])


def test_a_vocabulary_that_the_program_cannot_read_is_refused(letters, tmp_path):
    settings = json.loads((letters / "settings.json").read_text(encoding="utf-8"))
    for changed, message in (
        ({"tokenizers": {"source": "WordPieceTokenizer"}}, "no vocabularies of a WordPiece"),
        ({"leading_tags": True}, "no vocabularies with `leading_tags`"),
    ):
        text = json.dumps({**settings, **changed})
        (tmp_path / "settings.json").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            PortableTranslator(tmp_path)


@pytest.mark.parity
def test_two_hundred_words_of_a_trained_model_are_translated_alike(write, tmp_path):
    trained = translator()
    own = write(trained.model, trained.source_tokenizer, max_length=12, path=tmp_path / "portable")
    texts = [*words(198, seed=51), "", "é?"]
    assert PortableTranslator(tmp_path / "portable")(texts) == own(texts)


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
    own = write(model, source, target, path=tmp_path / "portable")
    assert PortableTranslator(tmp_path / "portable")(texts) == own(texts)


def test_outputs_of_few_positions_and_of_ids_without_a_piece_are_written_alike(write, tmp_path):
    tokenizer = CharacterTokenizer.train(["abcd"])
    model = Transformer(
        40, num_layers=1, d_model=8, num_heads=2, d_ff=16, position=LearnedPositionalEncoding(32)
    )
    model.build()
    randomise(model)
    own = write(model, tokenizer, path=tmp_path / "portable")
    texts = ["abcd" * 5, "a"]
    outputs = own(texts)
    # Without `max_length` 50 more than the source has would be allowed, but for the positions.
    assert len(outputs[0]) == 32
    assert "\ufffd" in outputs[0]
    assert PortableTranslator(tmp_path / "portable")(texts) == outputs


def test_a_model_of_half_precision_becomes_one_of_float32(write, tmp_path):
    tokenizer = CharacterTokenizer.train(["abcd"])
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
    half, whole = (
        Transformer(
            tokenizer.vocab_size, dtype=dtype, position=LearnedPositionalEncoding(16), **sizes
        )
        for dtype in ("mixed_bfloat16", "float32")
    )
    for model in (half, whole):
        model.build()
        randomise(model)
    texts, path = ["abcd", "ba"], tmp_path / "portable"
    with pytest.warns(UserWarning, match="in float32: they leave out .* quantize='int8'"):
        own = write(half, tokenizer, max_length=6, quantize="int8", path=path)
    alike = Translator(**{**own.settings, "model": whole, "quantize": None})
    found, expected = (each.n_best(texts) for each in (PortableTranslator(path), alike))
    assert any(text for row in expected for text, _ in row)
    for one, other in zip(found, expected, strict=True):
        assert [text for text, _ in one] == [text for text, _ in other]
        np.testing.assert_allclose([s for _, s in one], [s for _, s in other], atol=1e-5)


def test_a_recurrent_model_is_refused_for_litert(tmp_path):
    tokenizer = CharacterTokenizer.train(["abcd"])
    own = Translator(RecurrentSeq2Seq(tokenizer.vocab_size, d_model=8), tokenizer)
    with pytest.raises(ValueError, match=r"recurrent model .* a translator of a RecurrentSeq2Seq"):
        export_litert(own, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_each_side_has_the_unknown_id_of_its_own_vocabulary(tmp_path):
    sentences = SentencePieceTokenizer.train([" ".join(WORDS)] * 9, 60, shrink_to_fit=True)
    source = SentencePieceTokenizer(sentences.model, unk_id=7)
    letters = CharacterTokenizer.train(["abc"])
    model = Transformer(
        source_vocab_size=source.vocab_size, target_vocab_size=letters.vocab_size,
        num_layers=1, d_model=8, num_heads=2, d_ff=16,
    )  # fmt: skip
    settings = collect_settings(Translator(model, source, letters))
    write_vocabulary(str(tmp_path / "target"), letters)
    target = open_vocabulary(tmp_path, "target", settings)
    assert target.decode([4, letters.unk_id, 5]) == "a\ufffdb"


# How texts are read and written has nothing of a format.
@pytest.mark.parity
@pytest.mark.parametrize("write", ["onnx"], indirect=True)
def test_targets_that_a_tokenizer_reverses_are_written_alike(write, tmp_path):
    trained = translator_of_reversed_symbols()
    tokenizers = trained.source_tokenizer, trained.target_tokenizer
    own = write(trained.model, *tokenizers, max_length=12, path=tmp_path / "portable")
    texts = [*map(spaced, words(100, seed=52)), ""]
    outputs = own(texts)
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
    own = write(model, source, target, max_length=12, path=tmp_path / "portable")
    hard = ["Ο ΜΕΓΆΛΟΣ\tΣΚΎΛΟΣ", "ﬁn DE l’e\u0301te\u0301", "Ａ　DOG", *texts[:3]]
    outputs = own(hard)
    assert outputs[:3] == outputs[3:]
    assert PortableTranslator(tmp_path / "portable")(hard) == outputs


@pytest.mark.parity
@pytest.mark.parametrize("write", ["onnx"], indirect=True)
def test_a_lossless_vocabulary_and_tags_are_read_alike(write, tmp_path):
    texts = ["Friday, November 20, 2026", "2026-11-20", "le 20/11/26"] * 9
    trained = SentencePieceTokenizer.train(
        texts, 310, shrink_to_fit=True, lossless=True, user_defined_symbols=["<de>"]
    )
    tokenizer = SentencePieceTokenizer(trained.model, lossless=True, tags=["<de>"])
    keras.utils.set_random_seed(8)
    model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=32, num_heads=4, d_ff=64)
    tags = {"source_tag": "<de>", "target_tag": "<de>"}
    own = write(model, tokenizer, max_length=12, path=tmp_path / "portable", **tags)
    hard = [*texts[:3], "  two  spaces ", "\ue000a \u2581 \ue000", "né 🙂", ""]
    assert PortableTranslator(tmp_path / "portable")(hard) == own(hard)


@pytest.mark.parametrize("divides", [False, True])
def test_a_program_knows_whether_the_translator_divides_texts(divides):
    made = translator()
    again = Translator(made.model, made.source_tokenizer, split_sentences=divides)
    assert collect_settings(again)["split_sentences"] is divides


@pytest.mark.parametrize("function", [export_litert, export_onnx])
def test_an_existing_directory_is_left_alone(function, tmp_path):
    (tmp_path / "note").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="`path` must not exist yet"):
        function(translator(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["note"]


@pytest.mark.parametrize(("module", "function"), [("litert", export_litert), ("onnx", export_onnx)])
def test_a_failed_export_leaves_nothing_behind(module, function, tmp_path, monkeypatch):
    def fail(*args):
        raise OSError("disk full")

    package = f"keras_transformer.serving.{module}_export"
    monkeypatch.setattr(f"{package}.write_portable_files", fail)
    if module == "litert":
        monkeypatch.setattr(f"{package}.make_functions", lambda model: {})
    else:
        pytest.importorskip("onnx")
    with pytest.raises(OSError, match="disk full"):
        function(translator(), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
