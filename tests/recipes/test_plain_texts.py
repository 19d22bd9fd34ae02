"""Texts without TensorFlow have the ids, the files and the texts of the tokenizers with it."""

import itertools

import numpy as np
import pytest

from keras_transformer.recipes.corpus import Corpus
from keras_transformer.recipes.pair_formats import read_file
from keras_transformer.recipes.plain_texts import (
    PlainTexts,
    PlainTranslator,
    SubwordVocabulary,
    SymbolVocabulary,
    load_vocabulary,
)
from keras_transformer.recipes.settings import Settings
from keras_transformer.text import SentencePieceTokenizer, SymbolTokenizer, load_tokenizer

TEXTS = ["a b a", "ß b\u2028c", "x a\tb"]
SENTENCES = ["A man rides a horse.", "Ein Mann reitet auf einem Pferd.", "Two DOGS run."] * 20


@pytest.mark.parametrize("reverse", [False, True])
def test_symbols_have_the_ids_and_the_file_of_the_tokenizer(tmp_path, reverse):
    SymbolVocabulary(SymbolVocabulary.train(TEXTS).symbols, reverse).save(tmp_path / "file")
    ours, read = load_vocabulary(tmp_path / "file"), load_tokenizer(tmp_path / "file")
    theirs = SymbolTokenizer(SymbolTokenizer.train(TEXTS).symbols, reverse=reverse)
    assert read.to_bytes() == theirs.to_bytes()
    assert ours.symbols == theirs.symbols
    assert ours.vocab_size == theirs.vocab_size
    assert ours.pieces([4, 5]) == theirs.pieces([4, 5])
    for text in [*TEXTS, "b unseen a", ""]:
        ids = theirs.tokenize([text]).to_list()[0]
        assert ours.encode(text) == ids
        assert ours.decode(ids) == theirs.detokenize([ids]).numpy()[0].decode()


def test_symbols_of_real_pairs_are_those_of_the_tokenizer(shared):
    pairs = read_file(shared("data/inflection/kat.dev"), "inflection")
    texts = [text for pair in pairs for text in pair]
    assert SymbolVocabulary.train(texts).symbols == SymbolTokenizer.train(texts).symbols


QUICK = [("identity", False), ("nmt_nfkc", True)]
RULES = ["identity", "nfc", "nfkc", "nmt_nfkc", "nmt_nfkc_cf"]


@pytest.mark.parametrize(
    ("rule", "lowercase"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in itertools.product(RULES, [False, True])
    ],
)
def test_subwords_have_the_ids_of_the_tokenizer(tmp_path, lowercase, rule):
    texts = [*SENTENCES, "Σ ΣΑΣ ΑΣ"]
    vocabulary = SubwordVocabulary.train(texts, 90, rule, lowercase=lowercase, split_digits=False)
    vocabulary.save(tmp_path / "file")
    ours, theirs = load_vocabulary(tmp_path / "file"), load_tokenizer(tmp_path / "file")
    trained = SentencePieceTokenizer.train(
        texts, 90, shrink_to_fit=True, character_coverage=1.0, normalization=rule,
        lowercase=lowercase,
    )  # fmt: skip
    assert trained.pieces(range(ours.vocab_size)) == theirs.pieces(range(ours.vocab_size))
    seen = [*SENTENCES[:3], ""]
    for text in [*seen, "Ä DOG\t rides\u3000ΑΣ.", "a\u0308 ﬁ"]:
        ids = theirs.tokenize([text]).to_list()[0]
        # Of other characters `SentencePieceTokenizer.train` reads what they stand for.
        assert text not in seen or trained.tokenize([text]).to_list()[0] == ids
        assert ours.encode(text) == ids
        assert ours.decode(ids) == theirs.detokenize([ids]).numpy()[0].decode()


def test_long_texts_count_as_those_of_the_tokenizer():
    texts = [*SENTENCES, "quux " * 2000]  # more bytes than sentencepiece reads in a line
    ours = SubwordVocabulary.train(texts, 90, "identity", lowercase=False, split_digits=False)
    trained = SentencePieceTokenizer.train(texts, 90, character_coverage=1.0)
    assert ours.pieces(range(4, 90)) == trained.pieces(range(4, 90))
    assert "▁quux" in ours.pieces(range(90))


def test_a_vocabulary_too_small_for_its_characters_is_refused():
    rule = r"`vocab_size` must be at least 2\d to hold the characters of these texts. Received: "
    with pytest.raises(ValueError, match=f"^{rule}vocab_size=10$"):
        SubwordVocabulary.train(SENTENCES, 10, "identity", lowercase=False, split_digits=False)


def test_a_tokenizer_that_needs_tensorflow_is_refused(tmp_path):
    lossless = SentencePieceTokenizer.train(SENTENCES, 300, lossless=True, shrink_to_fit=True)
    lossless.save(tmp_path / "file")
    with pytest.raises(ValueError, match="holds a SentencePieceTokenizer that needs TensorFlow"):
        load_vocabulary(tmp_path / "file")


@pytest.mark.parametrize(
    "given",
    [
        dict(format="characters", right_to_left=True),
        dict(source_normalization="nfkc", lowercase=True),
        dict(separate_vocabularies=True, normalization="nmt_nfkc"),
        {},
    ],
)
def test_a_run_has_the_same_vocabularies_when_it_goes_on_or_another_starts_from_it(tmp_path, given):
    pairs = [("a b ﬁ", "b a")] * 20
    given_all = {"train": ("a",), "vocab_size": 40, **given}
    corpus = Corpus(pairs, pairs[:2], pairs[:1])
    found = []
    for name, start_from in (("one", ""), ("one", ""), ("two", str(tmp_path / "one"))):
        (tmp_path / name).mkdir(exist_ok=True)
        settings = Settings.from_preset(**given_all, start_from=start_from)
        texts = PlainTexts(tmp_path / name, settings, corpus)
        found.append([texts.tokenize(side, "a b ﬁ") for side in ("source", "target")])
        found[-1] += [texts.vocab_sizes, texts.longest]
        files = {file.name for file in (tmp_path / name).iterdir()}
        assert files == {"source.tokenizer", *(["target.tokenizer"] if given else [])}
    assert found[0] == found[1] == found[2]
    data = texts.training_batches(0)
    assert data.report.num_pairs == 20
    assert texts.training_batches(0, turned_too=True).report.num_pairs == 40
    assert settings.max_shapes >= len(data.report.shapes)


class Reversing:
    """Stands in for a `Generator`: reverses the ids of each row, and notes what it is given."""

    model = None

    def __init__(self):
        self.shapes = []

    def predict(self, source_ids, batch_size, verbose):
        self.shapes.append((*source_ids.shape, batch_size))
        return np.array([[*row[row > 3][::-1], 3, *row[row <= 3]] for row in source_ids])


def test_long_texts_are_searched_apart_and_all_come_back_in_order(tmp_path):
    settings = Settings.from_preset(train="a", format="characters", tokens_per_batch=12)
    pairs = [("a b c", "c b a")]
    texts = PlainTexts(tmp_path, settings, Corpus(pairs, pairs, pairs))
    translate = PlainTranslator(None, texts, None)
    translate.generator = Reversing()
    sources = ["a b", "", "c a b", *["b c"] * 18, " ".join("abc" * 5)]
    assert translate(sources) == [" ".join(reversed(text.split())) for text in sources]
    assert translate.generator.shapes == [(21, 4, 3), (1, 16, 1)]
    translate.generator = Reversing()
    assert translate(sources[:3]) == ["b a", "", "b a c"]
    assert translate.generator.shapes == [(2, 4, 2)]
    assert translate([]) == []
    assert translate([""]) == [""]


def test_symbols_and_a_sample_are_settings_of_the_vocabulary(tmp_path, capsys):
    pairs = [(f"<2de> line {n}", f"Zeile {n}") for n in range(50)]
    given = dict(user_defined_symbols=("<2de>",), input_sentence_size=40, vocab_size=60)
    settings = Settings.from_preset(train=("a",), backend="jax", **given)
    texts = PlainTexts(tmp_path, settings, Corpus(pairs, pairs[:3], pairs[:3]))
    assert texts.source.pieces(texts.tokenize("source", "x<2de>y"))[-3] == "<2de>"
    assert "from 40 texts" in capsys.readouterr().out
    assert texts.special_ids == {"pad_id": 0, "bos_id": 2, "eos_id": 3}


@pytest.mark.parametrize("options", [{"tags": ["<2de>"]}, {"bos_id": 5}])
def test_a_vocabulary_with_other_ids_is_refused(tmp_path, options):
    options_of_training = {"lowercase": False, "split_digits": False}
    model = SubwordVocabulary.train(["a b c"] * 9, 20, "identity", **options_of_training).model
    SentencePieceTokenizer(model, **options).save(tmp_path / "source.tokenizer")
    with pytest.raises(ValueError, match="SentencePieceTokenizer that needs TensorFlow"):
        load_vocabulary(tmp_path / "source.tokenizer")


def test_a_model_with_other_special_ids_is_refused(tmp_path):
    from tests.text.sentencepiece_models import MODEL

    SentencePieceTokenizer(MODEL).save(tmp_path / "source.tokenizer")
    with pytest.raises(ValueError, match="SentencePieceTokenizer that needs TensorFlow"):
        load_vocabulary(tmp_path / "source.tokenizer")
