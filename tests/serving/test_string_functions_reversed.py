"""A target tokenizer that reverses: the model writes from the end, and texts are as ever.

Read by a tokenizer that does not reverse, the same model's texts are the reversed ones.
"""

import functools

import pytest
import tensorflow as tf

from keras_transformer import BeamSearch, Transformer
from keras_transformer.serving import Translator, export
from keras_transformer.text import SymbolTokenizer
from tests.backends import randomise
from tests.serving.trained import (
    LETTERS,
    OPTIONS,
    answer,
    spaced,
    translator_of_reversed_symbols,
    words,
)


@functools.cache
def translators():
    """Of one untrained model: one whose targets are reversed, and one whose are not."""
    source = SymbolTokenizer([*LETTERS, *LETTERS.upper()])
    target = SymbolTokenizer(source.symbols, reverse=True)
    model = Transformer(source.vocab_size, num_layers=1, d_model=32, num_heads=2, d_ff=64)
    model.build()
    randomise(model, scale=1.0)
    options = {**OPTIONS, "search": BeamSearch(2), "max_length": 5, "jit_compile": False}
    return tuple(Translator(model, source, side, **options) for side in (target, source))


def turned(text):
    return " ".join(reversed(text.split()))


@pytest.mark.usefixtures("eagerly")
def test_texts_come_in_their_own_order_and_the_model_writes_them_from_the_end():
    reverse, plain = translators()
    sources = ["b d e", "g a", ""]
    reverse_best, plain_best = (each.n_best(sources) for each in (reverse, plain))
    assert any(text != turned(text) for row in reverse_best for text, _ in row)
    for row, plain_row in zip(reverse_best, plain_best, strict=True):
        assert [(turned(text), score) for text, score in plain_row] == row


@pytest.mark.slow
def test_a_model_learns_targets_that_are_reversed():
    trained = translator_of_reversed_symbols()
    sources = words(200, seed=60)
    right = [spaced(answer(source)) for source in sources]
    assert sum(map(str.__eq__, trained([*map(spaced, sources)]), right)) > 180


@pytest.mark.usefixtures("eagerly")
def test_a_text_has_the_probability_of_the_ids_from_its_end():
    reverse, plain = translators()
    sources, targets = ["a b c", "d"], ["C B A A", "F E"]
    assert reverse.score(sources, targets) == plain.score(sources, list(map(turned, targets)))


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_pieces_stand_where_they_are_written():
    reverse, plain = translators()
    sources = ["b d e", "g a"]
    for own, other in zip(reverse.align(sources), plain.align(sources), strict=True):
        (text, pairs), (other_text, other_pairs) = own, other
        assert text == turned(other_text)
        # In the order in which the model writes.
        assert [text[target] for target, _ in pairs] == other_text.split()
        assert [source for _, source in pairs] == [source for _, source in other_pairs]


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_prefix_is_what_the_text_ends_in():
    reverse, _ = translators()
    # Of a source in several segments the last has it.
    sources, prefixes = ["a b c", spaced("abcdefg" * 5)], ["G D", "G D F E"]
    ((short, _),), ((text, _),) = reverse.translate(sources, num_hypotheses=1, prefixes=prefixes)
    assert short.endswith("G D")
    assert text.endswith("G D F E")
    assert len(text.split()) > 5


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("max_length", [None, 5])
def test_no_texts_have_no_translations(max_length):
    reverse, _ = translators()
    options = {**reverse.settings, "max_length": max_length}
    assert Translator(**options).translate([]) == []


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_sentences_keep_their_order_and_the_last_has_the_prefix():
    reverse, _ = translators()
    texts = ["a b c", "d e f"]
    ((first, _), *_), ((second, _), *_) = reverse.translate(texts, prefixes=["", "D"])
    (((text, _), *_),) = reverse.translate(["\n".join(texts)], prefixes=["D"], split_sentences=True)
    assert text == f"{first} {second}"
    assert text.endswith("D")


@pytest.mark.slow
def test_an_export_writes_the_same(tmp_path, export_only):
    export_only("serving_default")
    reverse, _ = translators()
    export(reverse, tmp_path / "model", verbose=False)
    sources = list(map(spaced, words(20, seed=63)))
    loaded = tf.saved_model.load(tmp_path / "model")
    found = loaded.signatures["serving_default"](text=tf.constant(sources))
    assert [text.decode() for text in found["translation"].numpy()] == reverse(sources)


def test_sources_may_not_be_reversed():
    reverse, _ = translators()
    with pytest.raises(ValueError, match="must be that of the targets alone"):
        Translator(reverse.model, reverse.target_tokenizer)
