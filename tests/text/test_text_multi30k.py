"""The real corpus: 29,000 pairs of captions."""

import time

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
pytestmark = pytest.mark.slow

from keras_transformer.text import (  # noqa: E402
    CharacterTokenizer,
    SentencePieceTokenizer,
    translation_dataset,
)


@pytest.fixture
def corpus(shared):
    return [
        shared(f"data/multi30k/train.{language}").read_text(encoding="utf-8").splitlines()
        for language in ("en", "de")
    ]


def test_the_corpus_round_trips(corpus):
    texts = corpus[0] + corpus[1]
    for name, tokenizer in [
        ("lossless", SentencePieceTokenizer.train(texts, vocab_size=8000, lossless=True)),
        ("character", CharacterTokenizer.train(texts)),
    ]:
        start = time.perf_counter()
        ids = tokenizer.tokenize(texts)
        found = tokenizer.detokenize(ids).numpy()
        seconds = time.perf_counter() - start
        print(f"{name}: {len(texts) / seconds:,.0f} texts a second there and back")
        assert [text.decode() for text in found] == texts


def test_six_shapes_waste_little(corpus):
    tokenizer = SentencePieceTokenizer.train(corpus[0] + corpus[1], vocab_size=8000)
    start = time.perf_counter()
    data = translation_dataset(*corpus, tokenizer, shuffle=True, seed=1, max_shapes=6)
    print(f"made in {time.perf_counter() - start:.2f} s: {data.report}")
    start = time.perf_counter()
    num_batches = sum(1 for _ in data)
    print(f"one epoch in {time.perf_counter() - start:.2f} s")
    assert num_batches == data.report.num_batches
    assert data.report.num_kept == len(corpus[0]) == 29000
    assert len(data.report.shapes) <= 6
    assert data.report.padding_ratio < 0.2
