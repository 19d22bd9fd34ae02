"""The model card: what it says of an export and of its texts is true."""

import json

import pytest

from keras_transformer import GreedySearch, Transformer
from keras_transformer.serving import Translator
from keras_transformer.serving.model_card import model_card, text_conventions
from keras_transformer.text import (
    CharacterTokenizer,
    SentencePieceTokenizer,
    SymbolTokenizer,
    WordPieceTokenizer,
)
from tests.serving.trained import CARD, translator

TEXTS = ["Ein müder Hund läuft.", "Der finale Hund"] * 9
FOLDS, NFKC = "Capitals are read as small letters.", "A variant of a character"
SPACES, SMALL = "Runs of white space", "Small letters alone."


def conventions(*tokenizers, **options):
    size = max(tokenizer.vocab_size for tokenizer in tokenizers)
    model = Transformer(size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    return text_conventions(Translator(model, *tokenizers, search=GreedySearch(), **options))


def said(lines):
    return {start for start in (FOLDS, NFKC, SPACES, SMALL) if start in " ".join(lines)}


SUBWORDS, FITS = SentencePieceTokenizer.train, {"shrink_to_fit": True}


@pytest.mark.parametrize(
    ("make", "inputs", "outputs"),
    [
        pytest.param(
            lambda: SUBWORDS(TEXTS, 60, **FITS), {NFKC, SPACES}, set(), marks=pytest.mark.slow
        ),
        (lambda: SUBWORDS(TEXTS, 60, **FITS, lowercase=True), {FOLDS, NFKC, SPACES}, {SMALL}),
        pytest.param(
            lambda: SUBWORDS(TEXTS, 300, lossless=True), set(), set(), marks=pytest.mark.slow
        ),
        (lambda: CharacterTokenizer.train(TEXTS, normalization="nfkc"), {NFKC}, set()),
        pytest.param(
            lambda: WordPieceTokenizer.train(TEXTS, 90), {SPACES}, set(), marks=pytest.mark.slow
        ),
        (lambda: CharacterTokenizer.train(TEXTS), set(), set()),
        (lambda: CharacterTokenizer.train(["abc"]), set(), {SMALL}),
        (lambda: SymbolTokenizer(["tː", "A"]), {SPACES}, set()),
    ],
)
def test_folding_is_named_where_the_tokenizer_folds(make, inputs, outputs):
    found = conventions(make())
    assert said(found["input"]) == inputs
    assert said(found["output"]) == outputs


def test_symbols_need_spaces_and_that_is_said_first():
    symbols = SymbolTokenizer(["t", "uː", "l"])
    found = conventions(symbols, SymbolTokenizer(symbols.symbols, reverse=True))
    spaced = 'Symbols with a space between any two: "t uː l" are 3, and "tuːl" is one.'
    assert found["input"][0] == found["output"][0] == spaced
    assert "a `prefix` is what the text ends in" in found["output"][-1]


def test_lengths_and_sentences_are_those_of_the_translator():
    letters = CharacterTokenizer("abc")
    found = conventions(letters, max_source_length=33, max_length=7, max_segments=3, separator="|")
    assert "A text that fits is read whole, whatever sentences it has." in found["input"]
    assert found["input"][-1] == (
        "A text of more than 32 tokens is divided into at most 3 parts. The outputs of the parts "
        "are joined by '|'."
    )
    assert found["output"][-1] == "At most 7 tokens, the end counted."
    divides = conventions(letters, split_sentences=True)
    assert "Each sentence of a text is translated on its own." in divides["input"]
    assert divides["input"][-1].startswith("A sentence of more than 255 tokens is divided. The ")
    assert divides["output"][-1] == "At most 50 tokens more than were read."


def test_the_longest_text_leaves_room_for_a_tag_and_the_end():
    tagged = SentencePieceTokenizer(SUBWORDS(TEXTS, 60, **FITS).model, tags=["<de>"])
    for options in ({}, {"source_tag": "<de>"}):
        found = conventions(tagged, max_source_length=33, **options)
        assert found["input"][-1].startswith("A text of more than 31 tokens is divided")


def test_the_card_says_what_was_given_and_what_the_export_is(exported):
    card = json.loads((exported / "assets.extra" / "model_card.json").read_text(encoding="utf-8"))
    assert {name: card[name] for name in CARD} == CARD
    assert card["model"]["parameters"] == translator().model.count_params()
    assert card["model"]["settings"]["d_model"] == 32
    assert card["search"]["settings"]["beam_size"] == 3
    assert card["vocabulary"]["source"] == card["vocabulary"]["target"]
    assert card["vocabulary"]["source"]["size"] == 18
    assert "TopKV2" in card["operations"]
    assert card["limits"]["max_source_length"] == 32
    assert card["split_sentences"] is False
    assert card["quantization"] is None
    assert card["texts"] == text_conventions(translator())
    assert card["separator"] == " "


def test_the_card_of_a_quantized_translator_says_so():
    own = translator()
    quantized = Translator(own.model, own.source_tokenizer, quantize="int8", jit_compile=False)
    assert model_card(quantized, {}, [])["quantization"] == "int8"


@pytest.mark.parametrize(
    "card", [["list"], {"data": {1, 2}}, "text", {"scores": float("nan")}, {"quantization": "int4"}]
)
def test_a_card_that_json_cannot_hold_is_refused_before_anything_is_written(card, tmp_path):
    with pytest.raises(ValueError, match="`card` must be a dictionary of what JSON can hold"):
        translator().export(tmp_path / "1", card=card)
    assert list(tmp_path.iterdir()) == []
