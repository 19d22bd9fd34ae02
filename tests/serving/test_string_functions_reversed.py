"""A target tokenizer that reverses: the model writes from the end, and texts are as ever.

The model that reverses learns what another does not have to: words in capitals, in their own order.
Read by a tokenizer that does not reverse, the same model's texts are the reversed ones.
"""

import functools

import pytest
import tensorflow as tf

from keras_transformer.serving import Translator, export
from tests.serving.trained import answer, spaced, translator_of_reversed_symbols, words


@functools.cache
def translators():
    """Of one model: one whose targets are reversed, and one whose are not."""
    reverse = translator_of_reversed_symbols()
    source = reverse.source_tokenizer
    options = dict(max_length=12, max_source_length=32, max_batch_tokens=64)
    return reverse, Translator(reverse.model, source, source, search=reverse.search, **options)


def turned(text):
    return " ".join(reversed(text.split()))


def test_texts_come_in_their_own_order_and_the_model_writes_them_from_the_end():
    reverse, plain = translators()
    sources = [*map(spaced, words(200, seed=60)), ""]
    outputs = reverse(sources)
    right = [spaced(answer(source.replace(" ", ""))) for source in sources]
    assert sum(map(str.__eq__, outputs, right)) > 180
    assert outputs == [turned(text) for text in plain(sources)]
    reverse_best, plain_best = (each.n_best(sources[:20]) for each in (reverse, plain))
    for row, plain_row in zip(reverse_best, plain_best, strict=True):
        assert [(turned(text), score) for text, score in plain_row] == row


def test_a_text_has_the_probability_of_the_ids_from_its_end():
    reverse, plain = translators()
    sources = list(map(spaced, words(20, seed=61)))
    targets = [spaced(answer(source)) for source in sources]
    assert reverse.score(sources, targets) == plain.score(sources, list(map(turned, targets)))


def test_pieces_stand_where_they_are_written():
    reverse, plain = translators()
    sources = list(map(spaced, words(40, seed=62)))
    for own, other in zip(reverse.align(sources), plain.align(sources), strict=True):
        (text, pairs), (other_text, other_pairs) = own, other
        assert text == turned(other_text)
        # In the order in which the model writes.
        assert [text[target] for target, _ in pairs] == other_text.split()
        assert [source for _, source in pairs] == [source for _, source in other_pairs]


def test_a_prefix_is_what_the_text_ends_in():
    reverse, _ = translators()
    (((text, _),),) = reverse.translate(["a b c"], num_hypotheses=1, prefixes=["G D"])
    assert text.endswith("G D")
    # Of a source in several segments the last has it.
    long = spaced("abcdefg" * 10)
    (((text, _),),) = reverse.translate([long], num_hypotheses=1, prefixes=["G D F E"])
    assert text.endswith("G D F E")
    assert len(text.split()) > 12 + 4


def test_sentences_keep_their_order_and_the_last_has_the_prefix():
    reverse, _ = translators()
    texts = ["a b c", "d e f"]
    ((first, _), *_), ((second, _), *_) = reverse.translate(texts, prefixes=["", "D"])
    (((text, _), *_),) = reverse.translate(["\n".join(texts)], prefixes=["D"], split_sentences=True)
    assert text == f"{first} {second}"
    assert text.endswith("D")


def test_an_export_writes_the_same(tmp_path):
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
