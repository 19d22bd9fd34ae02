"""A translator with a shortlist: its translations, its options, its export, and what it refuses."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding import GreedySearch, Shortlist
from keras_transformer.serving import Translator, export_onnx, load
from keras_transformer.serving.model_card import read_card
from tests.serving.trained import OPTIONS, answer, translator, words


def learned(size=6, num_frequent=0):
    """A shortlist of the letters: each is its capital's likely source."""
    tokenizer = translator().source_tokenizer
    texts = words(300, seed=4)
    rows = [tokenizer.tokenize(side).to_list() for side in (texts, list(map(answer, texts)))]
    number = tokenizer.vocab_size
    return Shortlist.learn(*rows, number, number, size=size, num_frequent=num_frequent)


def with_shortlist(**options):
    options = {**OPTIONS, "jit_compile": False, "shortlist": learned(), **options}
    return Translator(translator().model, translator().source_tokenizer, **options)


def test_translations_are_those_of_the_whole_vocabulary():
    own, texts = with_shortlist(), words(6, seed=12)
    assert [own([text])[0] for text in texts] == translator()(texts)
    sources = [own.source_tokenizer.tokenize(texts).to_tensor()]
    assert len(own.id_functions.shortlist.candidate_ids(sources[0][:1], (0, 1, 2))) == 9
    assert len(own.source_tokenizer.vocabulary) > 9, "some tokens are left out"


def test_what_is_left_out_is_not_written_and_what_a_call_asks_for_is():
    letters = translator().source_tokenizer
    capitals = letters.tokenize(["ABC"]).to_list()[0]
    number = letters.vocab_size
    # One that gives A, B and C whatever the source is.
    table = np.tile(np.array([capitals], "int32"), (number, 1))
    narrow = Shortlist(table, np.full(table.shape, 0.3), [], vocab_size=number, size=3)
    own = with_shortlist(shortlist=narrow)
    assert set("".join([*own(["gfed"]), *own(["g"])])) <= set("ABC")
    assert own.translate(["gfed"], prefixes=["G"])[0][0][0].startswith("G")


def test_allowed_tokens_are_always_candidates():
    letters = translator().source_tokenizer
    number = letters.vocab_size
    never = Shortlist(np.zeros((number, 1)), np.zeros((number, 1)), [], vocab_size=number, size=1)
    search = GreedySearch(allowed_ids=letters.tokenize(["FG"]).to_list()[0], min_length=2)
    own, whole = (with_shortlist(search=search, shortlist=each) for each in (never, None))
    assert own(["gfed"]) == whole(["gfed"])
    assert set(own(["gfed"])[0]) <= set("FG")
    assert own(["gfed"])[0]


def test_rows_that_fill_a_batch_do_not_count(monkeypatch):
    own, met = with_shortlist(), []
    find = Shortlist.candidate_ids
    monkeypatch.setattr(
        Shortlist,
        "candidate_ids",
        lambda self, ids, *further: met.append(ids.numpy().tolist()) or find(self, ids, *further),
    )
    functions = own.id_functions
    first, second = own.source_tokenizer.tokenize(["ab", "cd"]).to_list()
    functions._generate_rows(tf.constant([first, second, first]), functions.search, {})
    assert met == [[first, second, [own.model.pad_id] * len(first)]]


def test_an_export_keeps_the_shortlist(tmp_path, export_only):
    export_only("serving_default")
    own, texts = with_shortlist(), words(3, seed=13)
    own.export(tmp_path / "1", verbose=False)
    found = load(tmp_path / "1").signatures["serving_default"](text=tf.constant(texts))
    assert [text.decode() for text in found["translation"].numpy()] == own(texts)
    card = read_card(tmp_path / "1")["shortlist"]
    assert card == {"frequent": 0, "targets_of_a_token": 64, "size": 6}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"quantize": "int8"}, {"layout": "columns"}])
def test_each_form_of_the_model_has_its_rows(options):
    texts = words(6, seed=14)
    whole = with_shortlist(shortlist=None, **options)
    own = with_shortlist(**options)
    assert [own([text])[0] for text in texts] == whole(texts)


@pytest.mark.slow
def test_xla_compiles_it_for_every_number_of_rows():
    own = with_shortlist(jit_compile=True)
    for texts in (words(1, seed=15), words(5, seed=16)):
        assert own(texts) == translator()(texts)


def test_another_shortlist_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must be a `Shortlist`"):
        with_shortlist(shortlist={})
    other = Shortlist([[3]], [[1.0]], [], vocab_size=4)
    with pytest.raises(ValueError, match="must have the source tokens of the tokenizer"):
        with_shortlist(shortlist=other)
    with pytest.raises(ValueError, match="`shortlist` must be None for ONNX"):
        export_onnx(with_shortlist(), tmp_path / "onnx")
