"""BPE dropout: the same texts in other pieces, pass by pass, in the shapes there are."""

import itertools

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
pytest.importorskip("sentencepiece")

from keras_transformer.text import (  # noqa: E402
    CharacterTokenizer,
    SentencePieceTokenizer,
    translation_dataset,
)
from keras_transformer.text import subword_dropout as module  # noqa: E402

SENTENCE = "a man rides the brown horse along an old road while two women watch him"
WORDS, random = SENTENCE.split(), np.random.default_rng(1)
TEXTS = [" ".join(random.choice(WORDS, random.integers(2, 12))) for _ in range(120)]
TOKENIZER = SentencePieceTokenizer.train(TEXTS, 60)
OPTIONS = dict(shuffle=True, seed=5, tokens_per_batch=256, max_shapes=2, verbose=False)


def dataset(rate, **options):
    return translation_dataset(
        TEXTS, TEXTS[::-1], TOKENIZER, subword_dropout=rate, **{**OPTIONS, **options}
    )


def epochs(data, number):
    return [
        [[ids.numpy() for ids in (*pair, *rest)] for pair, *rest in data] for _ in range(number)
    ]


def texts_of(ids):
    return [text.decode() for text in TOKENIZER.detokenize(ids).numpy()]


def test_pieces_change_with_the_seed_and_spell_the_same_texts():
    first, second, again = (TOKENIZER.tokenize_with_dropout(TEXTS, 0.3, s) for s in (1, 2, 1))
    assert first == again
    assert sum(a != b for a, b in zip(first, second, strict=True)) > 60
    assert texts_of(tf.ragged.constant(first, dtype=tf.int32)) == TEXTS


def test_more_dropout_makes_more_pieces_from_none_to_characters():
    plain = TOKENIZER.tokenize(TEXTS).to_list()
    assert TOKENIZER.tokenize_with_dropout(TEXTS, 0.0, 1) == plain
    counts = [
        sum(map(len, TOKENIZER.tokenize_with_dropout(TEXTS, rate, 1)))
        for rate in (0.0, 0.1, 0.5, 0.999)
    ]
    assert counts == sorted(counts)
    characters = sum(len(text) + 1 for text in TEXTS)  # sentencepiece puts a space before each
    assert counts[-1] > 0.98 * characters


def test_a_lossless_and_a_lower_casing_tokenizer_spell_the_same_texts():
    odd = ["A  man\u2581 RIDES\ue000 ", "the Horse"]
    lossless = SentencePieceTokenizer.train(TEXTS, 320, lossless=True)
    ids = lossless.tokenize_with_dropout(odd, 0.5, 1)
    found = lossless.detokenize(tf.ragged.constant(ids, dtype=tf.int32)).numpy()
    assert [text.decode() for text in found] == odd
    folding = SentencePieceTokenizer.train(TEXTS, 60, lowercase=True)
    ids = folding.tokenize_with_dropout(["The HORSE"], 0.5, 1)
    assert folding.detokenize(tf.ragged.constant(ids, dtype=tf.int32)).numpy() == [b"the horse"]


def test_each_pass_has_every_pair_once_in_pieces_of_its_own():
    data = dataset(0.2)
    shapes = set(data.report.shapes)
    expected = sorted(zip(TEXTS, TEXTS[::-1], strict=True))
    seen = []
    for epoch in epochs(data, 3):
        pairs, pieces = [], set()
        for source, before, after in epoch:
            assert (*source.shape, after.shape[1]) in shapes
            np.testing.assert_array_equal(before[:, 1:], np.where(after == 3, 0, after)[:, :-1])
            pairs += zip(texts_of(source), texts_of(after), strict=True)
            pieces |= {tuple(row[row > 0]) for row in source if row.any()}
        assert sorted(pair for pair in pairs if pair != ("", "")) == expected
        seen.append(pieces)
    for first, second in itertools.combinations(seen, 2):
        assert len(first & second) < 0.8 * len(first)


def test_an_epoch_follows_from_seed_and_number_alone(monkeypatch):
    whole = epochs(dataset(0.2), 3)
    resumed = epochs(dataset(0.2, first_epoch=2), 1)
    for first, second in zip(whole[2], resumed[0], strict=True):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)
    monkeypatch.setattr(module, "TEXTS_PER_PART", 50)  # three parts, of pieces of their own
    parted = epochs(dataset(0.2), 1)[0]
    found = [text for source, *_ in parted for text in texts_of(source) if text]
    assert sorted(found) == sorted(TEXTS)


def test_a_text_without_room_is_not_split_anew():
    plain = TOKENIZER.tokenize(TEXTS)
    longest = int(plain.row_lengths().numpy().max()) + 1
    data = dataset(0.9, max_length=longest, tokens_per_batch=400)
    assert data.report.num_kept == len(TEXTS)
    assert max(max(shape[1:]) for shape in data.report.shapes) <= -(-longest // 4) * 4
    plain = {tuple(row) for row in plain.to_list()}
    (epoch,) = epochs(data, 1)
    rows = [tuple(row[row > 3]) for source, *_ in epoch for row in source if row.any()]
    kept = sum(row in plain for row in rows)
    assert 0 < kept < len(rows)


def test_weights_of_an_update_count_the_tokens_of_its_pass():
    for epoch in epochs(dataset(0.3, batches_per_update=2), 2):
        for first, second in zip(epoch[::2], epoch[1::2], strict=True):
            real = sum(np.sum(labels > 0) for _, _, labels, _ in (first, second))
            for _, _, labels, weights in (first, second):
                np.testing.assert_allclose(weights, (labels > 0) * 2 / real, rtol=1e-6)


def test_what_it_cannot_do_raises():
    unigram = SentencePieceTokenizer.train(TEXTS, 36, model_type="unigram")
    with pytest.raises(ValueError, match=r"`model_type='bpe'`.*type 'unigram'"):
        unigram.tokenize_with_dropout(TEXTS, 0.1, 1)
    with pytest.raises(ValueError, match=r"`rate` must be a number in \[0, 1\)"):
        TOKENIZER.tokenize_with_dropout(TEXTS, 1.0, 1)
    with pytest.raises(ValueError, match=r"`seed` must be below"):
        TOKENIZER.tokenize_with_dropout(TEXTS, 0.1, 2**32)
    with pytest.raises(ValueError, match=r"`subword_dropout` must be a number in \[0, 1\)"):
        dataset(1.0)
    letters = CharacterTokenizer("abc")
    with pytest.raises(ValueError, match=r"`subword_dropout` needs.*CharacterTokenizer"):
        translation_dataset(["ab"], ["ba"], letters, subword_dropout=0.1)
