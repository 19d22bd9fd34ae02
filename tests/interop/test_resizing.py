"""Another vocabulary for a trained model: old pieces as before, new ones from their parts."""

import numpy as np
import pytest

from keras_transformer import BeamSearch, GreedySearch, Transformer
from keras_transformer.decoding import Shortlist
from keras_transformer.interop import resize_vocabulary
from keras_transformer.interop.resizing import kept_ids
from keras_transformer.interop.token_rows import NEVER
from keras_transformer.interop.weights import read_weights
from keras_transformer.layers import RelativePositionBias
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer, SymbolTokenizer
from tests.backends import array, randomise

TEXTS = ["a man rides a horse", "two dogs play with a red ball", "the woman reads a book"]
SIZES = {"num_layers": 1, "d_model": 12, "num_heads": 2, "d_ff": 16}


def translator_of(old, new=None, search=None, **options):
    sizes = {"vocab_size": old.vocab_size}
    if new is not None:
        sizes = {"source_vocab_size": old.vocab_size, "target_vocab_size": new.vocab_size}
    model = Transformer(**sizes, **SIZES, **options)
    model.build()
    randomise(model)
    options = {"search": search or GreedySearch(), "jit_compile": False, "max_length": 9}
    return Translator(model, old, new, **options)


OPTIONS = {
    "tied": {},
    "untied, bias": {"tie_output": False, "logits_bias": True},
    "positions of T5": {"position": RelativePositionBias()},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_pieces_that_stay_keep_their_rows_and_new_ones_get_the_mean_of_their_parts(name):
    old = SymbolTokenizer.train(["b a c"])
    new = SymbolTokenizer.train(["x a b y"])
    translator = translator_of(old, search=BeamSearch(2, suppressed_ids=[5, 6]), **OPTIONS[name])
    resized = resize_vocabulary(translator, new)
    before, after = (read_weights(one.model) for one in (translator, resized))
    places = {piece: index for index, piece in enumerate(old.vocabulary)}
    for weight, values in before.items():
        found = after[weight]
        if not weight.startswith("embedding/"):
            assert (found == values).all()
            continue
        axis = 1 if weight.endswith("reverse_embeddings") else 0
        for index, piece in enumerate(new.vocabulary):
            expected = np.take(values, places[piece], axis) if piece in places else None
            if expected is None:  # no part of it was known
                expected = np.take(values, range(4, old.vocab_size), axis).mean(axis=axis)
            np.testing.assert_allclose(np.take(found, index, axis), expected, rtol=1e-6)
    kept = [new.vocabulary[index] for index in resized.search.suppressed_ids]
    assert kept == [
        old.vocabulary[index]
        for index in (5, 6)
        if old.vocabulary[index] in places and old.vocabulary[index] in new.vocabulary
    ]


def test_the_rows_that_change_are_told(capsys):
    old, new, other = (SymbolTokenizer.train([text]) for text in ("b a c", "x a b y", "b"))
    resize_vocabulary(translator_of(old), new)
    assert capsys.readouterr().out == "resize_vocabulary: 6 rows stay, 2 new, 1 left out\n"
    resize_vocabulary(translator_of(old, new), new, other)
    assert capsys.readouterr().out == (
        "resize_vocabulary: source 6 rows stay, 2 new, 1 left out\n"
        "resize_vocabulary: target 5 rows stay, 0 new, 3 left out\n"
    )
    resize_vocabulary(translator_of(old), new, verbose=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("search", [GreedySearch, BeamSearch])
def test_a_search_has_the_new_ids_and_drops_tokens_that_are_gone(search):
    old = search(min_length=2, allowed_ids=[9, 4, 7], suppressed_ids=[5, 4])
    new = old.with_ids({4: 6, 9: 4})
    assert type(new) is search
    assert new.get_config() == {**old.get_config(), "allowed_ids": [4, 6], "suppressed_ids": [6]}
    assert search().with_ids({}).get_config() == search().get_config()


def test_texts_without_new_pieces_have_the_logits_that_they_had():
    old = SentencePieceTokenizer.train(TEXTS * 3, vocab_size=60, user_defined_symbols=["<a>"])
    new = SentencePieceTokenizer.train(
        TEXTS * 3, vocab_size=62, user_defined_symbols=["<a>", "<new>", "<other>"]
    )
    assert set(old.vocabulary) < set(new.vocabulary)
    translator = translator_of(old)
    resized = resize_vocabulary(translator, new)
    pairs = [
        np.array([[*tokenizer.tokenize([text])[0].numpy(), 3]])
        for tokenizer in (old, new)
        for text in (TEXTS[0],)
    ]
    targets = [np.array([[2, *ids[0, :-1]]]) for ids in pairs]
    before = array(translator.model((pairs[0], targets[0])))
    after = array(resized.model((pairs[1], targets[1])))
    places = [new.vocabulary.index(piece) for piece in old.vocabulary]
    np.testing.assert_allclose(after[..., places], before, atol=1e-5)


def test_a_table_of_two_sentencepiece_models_takes_the_parts_of_the_side_that_knows_a_piece():
    """As an OPUS-MT directory: a model for each side, and one list of pieces."""
    texts = ["skate board skate board er"] * 9, ["ein Mann reitet ein Pferd"] * 9
    models = [
        SentencePieceTokenizer.train(t, vocab_size=30, shrink_to_fit=True).model for t in texts
    ]
    own = [SentencePieceTokenizer(model).vocabulary for model in models]
    joint = list(dict.fromkeys([*own[0], *own[1]]))
    more = [*joint, "\u2581skateboarder", "\u2581Mannerd"]
    old, new = (
        [SentencePieceTokenizer(model, vocabulary=pieces) for model in models]
        for pieces in (joint, more)
    )
    model = Transformer(len(joint), **SIZES)
    model.build()
    randomise(model)
    translator = Translator(model, *old, search=GreedySearch())
    resized = resize_vocabulary(translator, *new)
    before, after = (
        next(values for name, values in read_weights(one).items() if name.endswith("/embeddings"))
        for one in (model, resized.model)
    )
    for index, text, side in ((-2, "skateboarder", 0), (-1, "Mannerd", 1)):
        divided = [one.tokenize([text])[0].numpy() for one in old]
        assert old[0].unk_id not in divided[side]
        assert divided[0].tolist() != divided[1].tolist()
        np.testing.assert_allclose(after[index], before[divided[side]].mean(axis=0), rtol=1e-5)


def test_two_vocabularies_of_one_size_are_refused_where_the_model_has_one():
    old = SymbolTokenizer.train(["a b c"])
    new = [SymbolTokenizer.train([text]) for text in ("a b c d", "a b c e")]
    with pytest.raises(ValueError, match="must have one vocabulary.*8 and 8 pieces that differ"):
        resize_vocabulary(translator_of(old), *new)


def test_a_new_piece_starts_from_the_parts_of_its_text():
    old = SentencePieceTokenizer.train(TEXTS * 3, vocab_size=30)
    new = SentencePieceTokenizer.train(TEXTS * 3, vocab_size=60)
    translator = translator_of(old)
    resized = resize_vocabulary(translator, new)
    before, after = (
        read_weights(one.model)["embedding/embedding/embeddings"] for one in (translator, resized)
    )
    piece = next(p for p in new.vocabulary if p.endswith("man") and p not in old.vocabulary)
    parts = old.tokenize([piece.strip("\u2581")]).to_list()[0]
    assert len(parts) > 1
    found = after[new.vocabulary.index(piece)]
    np.testing.assert_allclose(found, before[parts].mean(axis=0), rtol=1e-5)


@pytest.mark.slow
def test_each_side_has_its_own_new_vocabulary():
    sides = [SymbolTokenizer.train([text]) for text in ("a b c", "x y")]
    new = [SymbolTokenizer.train([text]) for text in ("a b c d e", "y")]
    resized = resize_vocabulary(translator_of(*sides), *new)
    assert resized.model.vocabulary_sizes == tuple(side.vocab_size for side in new)
    assert len(resized(["a b"])) == 1
    with pytest.raises(ValueError, match="both tokenizers must have one vocabulary"):
        resize_vocabulary(translator_of(sides[0]), *new)


def test_a_new_piece_without_parts_gets_no_bias_of_what_never_comes():
    old, new = SymbolTokenizer.train(["b a c"]), SymbolTokenizer.train(["b a c x"])
    translator = translator_of(old, logits_bias=True)
    weights = {weight.path.split("/", 1)[1]: weight for weight in translator.model.weights}
    bias = array(weights["embedding/logits_bias"])
    bias[old.bos_id] = NEVER  # as models of Marian have it
    weights["embedding/logits_bias"].assign(bias)
    resized = read_weights(resize_vocabulary(translator, new).model)["embedding/logits_bias"]
    assert resized[new.bos_id] == NEVER
    assert np.abs(np.delete(resized, new.bos_id)).max() < 100


@pytest.mark.parametrize("separate", [False, True])
def test_ids_that_are_never_written_are_no_part_of_a_new_piece(separate):
    old = SentencePieceTokenizer.train(TEXTS * 3, vocab_size=60)
    new = old.with_pieces(["rider", "\u4e00"])
    translator = translator_of(old, old if separate else None, logits_bias=True)
    name = "target_embedding/" if separate else "embedding/"
    weights = {weight.path.split("/", 1)[1]: weight for weight in translator.model.weights}
    bias = array(weights[f"{name}logits_bias"])
    # A piece of the new one, and others as padding of a vocabulary.
    parts = old.tokenize(["rider"]).to_list()[0]
    bias[[parts[0], parts[-1], 50, 51]] = NEVER
    weights[f"{name}logits_bias"].assign(bias)
    resized = read_weights(resize_vocabulary(translator, new).model)[f"{name}logits_bias"]
    assert sorted(np.flatnonzero(resized < -100)) == sorted({parts[0], parts[-1], 50, 51})
    assert np.abs(resized[old.vocab_size :]).max() < 100
    assert len(resized) == old.vocab_size + 2


def test_the_search_names_pieces_that_both_vocabularies_have():
    old = SentencePieceTokenizer.train(TEXTS * 3, vocab_size=60)
    new = SentencePieceTokenizer.train(TEXTS * 3, vocab_size=30)
    found = kept_ids(old, new)
    both = [piece for piece in old.vocabulary if piece in new.vocabulary]
    assert len(found) == len(both) < len(old.vocabulary)
    assert all(old.vocabulary[one] == new.vocabulary[other] for one, other in found.items())


def test_a_resized_translator_keeps_every_setting():
    old, new = SymbolTokenizer.train(["b a c"]), SymbolTokenizer.train(["x a b y"])
    translator = translator_of(old)
    given = {"layout": "rows", "separator": "-", "max_segments": 3, "source_eos": False}
    given |= {"max_batch_tokens": 640, "max_source_length": 32}
    translator = Translator(**{**translator.settings, **given})
    resized = resize_vocabulary(translator, new)
    own = ("model", "source_tokenizer", "target_tokenizer", "search")
    for name, value in translator.settings.items():
        assert name in own or getattr(resized, name) == value, name


def test_a_shortlist_of_the_old_ids_is_left_out_with_a_warning():
    old, new = SymbolTokenizer.train(["b a c"]), SymbolTokenizer.train(["x a b"])
    translator = translator_of(old)
    shortlist = Shortlist.learn([[4, 5]], [[4, 6]], old.vocab_size, old.vocab_size)
    translator = Translator(**{**translator.settings, "shortlist": shortlist})
    assert new.vocab_size == old.vocab_size  # so that the old one would fit
    with pytest.warns(UserWarning, match="the resized translator has no shortlist"):
        resized = resize_vocabulary(translator, new)
    assert resized.shortlist is None
