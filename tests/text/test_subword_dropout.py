"""BPE dropout: the same texts in other pieces, pass by pass, in the shapes there are."""

import collections
import itertools
import math
import os
import subprocess
import sys
import tempfile
from random import Random

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
pytest.importorskip("sentencepiece")

from sentencepiece import sentencepiece_model_pb2  # noqa: E402

from keras_transformer.text import (  # noqa: E402
    CharacterTokenizer,
    SentencePieceTokenizer,
    bpe_dropout,
    prepare_corpus,
    translation_dataset,
)
from keras_transformer.text.bpe_dropout import BpeDropout  # noqa: E402
from keras_transformer.text.subword_dropout import SubwordPass  # noqa: E402

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


def test_lengths_of_the_first_pass_are_kept_beside_a_corpus(tmp_path, monkeypatch):
    for name, texts in (("source", TEXTS), ("target", TEXTS[::-1])):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    files = tmp_path / "source", tmp_path / "target"
    corpus = prepare_corpus(tmp_path / "corpora", *files, TOKENIZER, workers=1, verbose=False)
    counted, count = [], SubwordPass.count_tokens

    def count_and_note(self, members):
        counted.append(len(members))
        return count(self, members)

    def read(rate, **options):
        counted.clear()
        sides = corpus.sources, corpus.targets
        options = {**OPTIONS, "subword_dropout": rate, **options}
        data = translation_dataset(*sides, TOKENIZER, **options)
        return data, counted.count(len(TEXTS))

    monkeypatch.setattr(SubwordPass, "count_tokens", count_and_note)
    first, drawn = read((0.2, 0.1))
    assert drawn == 2
    again, drawn = read((0.2, 0.1))
    assert drawn == 0
    lists = dataset((0.2, 0.1))
    assert first.report == again.report == lists.report
    (one,), (other,), (expected,) = (epochs(data, 1) for data in (first, again, lists))
    for batch, same, of_lists in zip(one, other, expected, strict=True):
        assert all(map(np.array_equal, batch, same))
        assert all(map(np.array_equal, batch, of_lists))
    assert read((0.2, 0.3))[1] == 1
    assert read((0.2, 0.1), seed=6)[1] == 2
    assert read((0.2, 0.1), seed=None)[1] == read((0.2, 0.1), seed=None)[1] == 2
    assert len(list(corpus.path.glob("dropout.*.npy"))) == 5


def test_the_words_that_are_kept_are_bounded(monkeypatch):
    rows = TOKENIZER.tokenize(TEXTS).to_list()

    def split(dropout):
        return [dropout.split(ids, 0.3, Random(number)) for number, ids in enumerate(rows)]

    expected = split(TOKENIZER.bpe_dropout)
    monkeypatch.setattr(bpe_dropout, "WORDS_KEPT", 3)
    dropout = SentencePieceTokenizer(TOKENIZER.model).bpe_dropout
    assert split(dropout) == expected
    assert len(dropout._texts) <= 3


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


@pytest.mark.slow
def test_another_process_splits_alike():
    code = f"""
import sys
from keras_transformer.text import SentencePieceTokenizer
tokenizer = SentencePieceTokenizer.load(sys.argv[1])
print(tokenizer.tokenize_with_dropout([{SENTENCE!r}], 0.5, 7))
"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer")
        TOKENIZER.save(path)
        command = [sys.executable, "-c", code, path]
        found = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    assert found.strip() == str(TOKENIZER.tokenize_with_dropout([SENTENCE], 0.5, 7))


def splits_of_the_paper(symbols, ranks, rate):
    """All outcomes and their probabilities, by leaving out each subset of a step's merges."""
    places = [i for i, pair in enumerate(itertools.pairwise(symbols)) if "".join(pair) in ranks]
    outcomes = collections.Counter()
    for left_out in itertools.product((False, True), repeat=len(places)):
        probability = math.prod(rate if out else 1 - rate for out in left_out)
        kept = [place for place, out in zip(places, left_out, strict=True) if not out]
        if not kept:
            outcomes[tuple(symbols)] += probability
            continue
        best = min(kept, key=lambda place: (ranks["".join(symbols[place : place + 2])], place))
        merged = [*symbols[:best], "".join(symbols[best : best + 2]), *symbols[best + 2 :]]
        for outcome, share in splits_of_the_paper(merged, ranks, rate).items():
            outcomes[outcome] += probability * share
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_each_split_is_as_frequent_as_in_the_algorithm_of_the_paper(rate):
    tokenizer = SentencePieceTokenizer.train(TEXTS, 1000, shrink_to_fit=True)
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    ranks = {piece: index for index, piece in enumerate(pieces) if index > 3}
    expected = splits_of_the_paper(list("\u2581while"), ranks, rate)
    assert len(expected) > 5
    assert math.isclose(sum(expected.values()), 1)
    number = 40_000
    ids = tokenizer.tokenize_with_dropout(["while"] * number, rate, seed=3)
    found = collections.Counter(map(tuple, ids))
    found = {tuple(tokenizer.pieces(list(key))): count for key, count in found.items()}
    assert set(found) <= set(expected)
    for split, probability in expected.items():
        spread = math.sqrt(number * probability * (1 - probability))
        assert abs(found.get(split, 0) - number * probability) < 5 * spread + 1, split


def test_digits_bytes_and_unknown_characters_stay_as_they_are():
    odd = ["a 1905 man \u4eba rides\u20ac2", "\u20ac"]
    for tokenizer in (
        SentencePieceTokenizer.train([*TEXTS, "12 34 56 7890"], 80, split_digits=True),
        SentencePieceTokenizer.train(TEXTS, 320, lossless=True),
    ):
        plain = tokenizer.tokenize(odd)
        ids = tokenizer.tokenize_with_dropout(odd, 0.9, 1)
        assert ids != plain.to_list()
        again = tokenizer.detokenize(tf.ragged.constant(ids, dtype=tf.int32)).numpy().tolist()
        assert again == tokenizer.detokenize(plain).numpy().tolist()


def test_pieces_of_two_words_are_merged_too():
    model = sentencepiece_model_pb2.ModelProto.FromString(TOKENIZER.model)
    pair = model.pieces.add()
    pair.piece, pair.score = "n\u2581r", 1.0  # a merge across words, before all others
    pair = model.pieces.add()
    pair.piece, pair.score = "\u2581r", 2.0
    tokenizer = SentencePieceTokenizer(model.SerializeToString())
    plain = tokenizer.tokenize(["a man rides"]).to_list()
    assert "n\u2581r" in tokenizer.pieces(plain[0])
    assert tokenizer.tokenize_with_dropout(["a man rides"], 0.0, 1) == plain
    ids = [tokenizer.tokenize_with_dropout(["a man rides"], 0.3, seed)[0] for seed in range(20)]
    texts = tokenizer.detokenize(tf.ragged.constant(ids, dtype=tf.int32)).numpy()
    assert set(texts) == {b"a man rides"}
    assert len(set(map(tuple, ids))) > 5


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


@pytest.mark.parametrize("batches_per_epoch", [None, 4])  # with 4, epochs begin within a pass
def test_an_epoch_follows_from_seed_and_number_alone(batches_per_epoch):
    options = dict(batches_per_epoch=batches_per_epoch, batches_per_update=2)
    whole = epochs(dataset(0.2, **options), 5)
    resumed = epochs(dataset(0.2, first_epoch=4, **options), 1)
    for first, second in zip(whole[4], resumed[0], strict=True):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)


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


def test_only_the_texts_of_the_batches_are_split(monkeypatch):
    data = dataset(0.2, batches_per_epoch=1)
    split, seen = BpeDropout.split, []
    monkeypatch.setattr(BpeDropout, "split", lambda *args: seen.append(args[1]) or split(*args))
    (((source, _, _),),) = epochs(data, 1)
    rows = int((source > 0).any(axis=1).sum())
    assert 2 * rows <= len(seen) < 2 * len(TEXTS)


def test_an_unsuitable_tokenizer_is_refused_before_it_has_worked(monkeypatch):
    letters, called = CharacterTokenizer("ab"), []
    monkeypatch.setattr(letters, "tokenize", called.append)
    with pytest.raises(ValueError, match=r"`subword_dropout` needs.*CharacterTokenizer"):
        translation_dataset(["ab"], ["ba"], letters, subword_dropout=0.1)
    assert not called


@pytest.mark.parametrize("side", [0, 1])
def test_a_pair_of_rates_is_of_sources_and_of_targets(side):
    rates = [0.0, 0.0]
    rates[side] = 0.4
    plain, dropped = epochs(dataset(0.0), 1)[0], epochs(dataset(rates), 1)[0]

    def tokens(batches, part):
        rows = [tuple(row[row > 0]) for batch in batches for row in batch[part]]
        return sorted(filter(None, rows))  # without the rows that fill a batch

    # Sources, target inputs and target outputs.
    changed = [tokens(plain, part) != tokens(dropped, part) for part in range(3)]
    assert changed == [side == 0, side == 1, side == 1]


def test_a_side_without_dropout_needs_no_bpe():
    letters = CharacterTokenizer("ab")
    options = dict(subword_dropout=(0.1, 0), verbose=False)
    (((source, target), _),) = translation_dataset(TEXTS[:1], ["ab"], TOKENIZER, letters, **options)
    assert target.numpy()[0].tolist()[:3] == [2, 4, 5]
    with pytest.raises(ValueError, match=r"`subword_dropout` needs.*CharacterTokenizer"):
        translation_dataset(["ab"], TEXTS[:1], letters, TOKENIZER, **options)


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
    with pytest.raises(ValueError, match=r"`seed` must be an integer of at least 0"):
        TOKENIZER.tokenize_with_dropout(TEXTS, 0.1, -1)
    with pytest.raises(ValueError, match=r"`subword_dropout` must be a number in \[0, 1\)"):
        dataset(1.0)
    with pytest.raises(ValueError, match=r"`subword_dropout` must be a number in \[0, 1\)"):
        dataset((0.1, "0.1"))
    with pytest.raises(ValueError, match=r"a pair of rates.*Received: subword_dropout=\(0.1,\)"):
        dataset((0.1,))
