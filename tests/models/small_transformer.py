"""A small Transformer with ids for it, a search over given targets, and what its scores must be."""

import functools

import keras
import numpy as np
from keras import ops

from keras_transformer import Transformer
from tests.backends import array, randomise
from tests.numpy_reference import length_normaliser, log_softmax

VOCAB, PAD, BOS, EOS = 17, 0, 2, 3
SIZES = {"num_layers": 2, "d_model": 15, "num_heads": 3, "d_ff": 13}
SOURCE_IDS = np.array([[5, 6, 7, 8, 3, 0, 0], [9, 4, 3, 0, 0, 0, 0]], "int32")
TARGET_IDS = np.array([[2, 9, 5, 0, 0], [2, 6, 0, 0, 0]], "int32")
REAL = TARGET_IDS != PAD


@functools.cache
def made_once(seed, scale, **arguments):
    model = Transformer(**arguments)
    model.build()
    return randomise(model, seed, scale)


def built(seed=0, scale=0.3, **arguments):
    """A model for tests that only read it: the same one for the same arguments."""
    defaults = {"vocab_size": VOCAB, **SIZES, "norm_first": False}
    return made_once(seed, scale, **{**defaults, **arguments})


def logits_of(model, source_ids=SOURCE_IDS, target_ids=TARGET_IDS):
    return array(model((source_ids, target_ids)))


def padded(ids, more):
    return np.pad(ids, [(0, 0), (0, more)])


def with_changed_tokens(model):
    """Yields each position, the logits, and those of targets with another token there."""
    target_ids = np.array([[2, 9, 5, 6, 11], [2, 6, 7, 7, 4]], "int32")
    before = logits_of(model, target_ids=target_ids)
    for position in range(1, 5):
        changed = target_ids.copy()
        changed[:, position] = 16
        after = logits_of(model, target_ids=changed)
        yield position, before, after


class Forced:
    """A search that reads given targets, several to a sentence, and keeps the logits of each."""

    def __init__(self, targets):
        self.targets = targets  # (batch, beam, length), starting with `bos`

    def __call__(self, step, state, **task):
        _, beams, length = self.targets.shape
        rows = self.targets.reshape(-1, length)
        state = keras.tree.map_structure(lambda part: ops.repeat(part, beams, axis=0), state)
        found = []
        for index in range(length):
            tokens = ops.convert_to_tensor(rows[:, index])
            logits, state, _ = step(tokens, ops.convert_to_tensor(index, "int32"), state)
            found.append(array(logits))
        return np.stack(found, axis=1).reshape(*self.targets.shape, -1)


def random_targets(beams, length=5):
    targets = np.random.default_rng(1).integers(4, VOCAB, (2, beams, length)).astype("int32")
    targets[..., 0] = BOS
    return targets


def rescored(model, result, length_penalty):
    """The scores that the whole decoder gives the ids of each hypothesis: (batch, beam)."""
    batch, beams, length = result.ids.shape
    ids = result.ids.reshape(-1, length)
    target_ids = np.concatenate([np.full((len(ids), 1), BOS), ids[:, :-1]], axis=1)
    logits = logits_of(model, np.repeat(SOURCE_IDS, beams, axis=0), target_ids.astype("int32"))
    log_probs = np.take_along_axis(log_softmax(logits), ids[..., None], axis=-1)[..., 0]
    lengths = result.lengths.reshape(-1)
    total = np.where(np.arange(length) < lengths[:, None], log_probs, 0.0).sum(axis=1)
    return (total / length_normaliser(lengths, length_penalty)).reshape(batch, beams)
