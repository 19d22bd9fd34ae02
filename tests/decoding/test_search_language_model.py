"""A decoder without a memory is a language model, and the same searches write with it."""

import itertools

import numpy as np
import pytest
from keras import ops

from keras_transformer import (
    ALiBi,
    BeamSearch,
    Decoder,
    GreedySearch,
    RotaryPositionalEncoding,
    Sampling,
    TokenEmbedding,
)
from tests.backends import array, arrays, randomise

VOCAB, BOS, EOS, LENGTH = 5, 1, 2, 4
SPECIAL = {"bos_id": BOS, "eos_id": EOS, "pad_id": 0}


class LanguageModel:
    """Embeds, decodes and predicts: whole rows, or one step of a search."""

    follows_paths = True

    def __init__(self, seed, position=RotaryPositionalEncoding):
        self.embedding = TokenEmbedding(VOCAB, 8)
        self.decoder = Decoder(2, 2, 16, position=position(), window=3)
        self.decoder(self.embedding(np.ones((1, LENGTH), "int32")))
        randomise(self.decoder, seed)
        randomise(self.embedding, seed, scale=1.0)

    def logits(self, ids):
        return array(self.embedding.logits(self.decoder(self.embedding(ids))))

    def __call__(self, tokens, index, caches, paths=None):
        hidden = self.embedding(tokens[:, None])
        hidden, caches, _ = self.decoder.step(hidden, index, caches, paths=paths)
        return self.embedding.logits(hidden)[:, 0], caches

    def write(self, search, batch_size=1):
        caches = self.decoder.start_cache(batch_size, LENGTH, search.slots_per_sentence)
        found = search(self, caches, batch_size=batch_size, max_length=LENGTH, **SPECIAL)
        return arrays(found)


def log_probs_of(model, sequences):
    """Sums of log-probabilities of sequences (n, LENGTH), each up to its `EOS`, recomputed."""
    inputs = np.concatenate([np.full((len(sequences), 1), BOS), sequences[:, :-1]], axis=1)
    log_probs = array(ops.log_softmax(model.logits(inputs.astype("int32"))))
    token = np.take_along_axis(log_probs, sequences[..., None], axis=-1)[..., 0]
    ended = np.cumsum(sequences == EOS, axis=1) - (sequences == EOS) > 0
    return np.where(ended, 0.0, token).sum(axis=1), ended


@pytest.mark.parametrize(
    "position", [RotaryPositionalEncoding, pytest.param(ALiBi, marks=pytest.mark.slow)]
)
def test_a_wide_beam_finds_the_likeliest_sequences_of_all(position):
    every = np.array(list(itertools.product(range(2, VOCAB), repeat=LENGTH)))
    for seed in range(2):
        model = LanguageModel(seed, position)
        scores, ended = log_probs_of(model, every)
        distinct = np.unique(np.where(ended, 0, every), axis=0, return_index=True)[1]
        best = distinct[np.argsort(-scores[distinct])][:5]
        found = model.write(BeamSearch(60, length_penalty=0.0, num_hypotheses=5))
        np.testing.assert_array_equal(found.ids[0], np.where(ended, 0, every)[best])
        np.testing.assert_allclose(found.scores[0], scores[best], atol=1e-4)


def test_greedy_search_writes_what_recomputing_every_prefix_does():
    model = LanguageModel(7)
    found = model.write(GreedySearch())
    ids = [BOS]
    for _ in range(found.lengths[0, 0]):
        logits = model.logits(np.array([ids], "int32"))[0, -1]
        logits[[0, BOS]] = -np.inf
        ids.append(int(logits.argmax()))
    assert found.ids[0, 0, : found.lengths[0, 0]].tolist() == ids[1:]


def test_samples_come_as_often_as_the_model_expects():
    model = LanguageModel(3)
    found = model.write(Sampling(seed=2), batch_size=2000)
    odds = np.exp(model.logits(np.array([[BOS]], "int32"))[0, 0])
    odds[[0, BOS]] = 0.0
    counts = np.bincount(found.ids[:, 0, 0], minlength=VOCAB)
    np.testing.assert_allclose(counts / counts.sum(), odds / odds.sum(), atol=0.05)
