"""What a pass over the pairs keeps in memory."""

import numpy as np

from keras_transformer.batches.plan import make_passes
from keras_transformer.batches.token_store import SpecialIds, TokenStore


def test_a_pass_keeps_four_bytes_a_pair_and_no_room_that_nobody_asks_for():
    lengths = np.random.default_rng(0).integers(1, 30, 500)
    store = TokenStore.of_lengths(np.full(lengths.sum(), 7), lengths)
    limits = dict(tokens_per_batch=256, max_length=64, max_shapes=2, rows_multiple=1)
    passes, _ = make_passes([store, store], SpecialIds(0, 2, 3), **limits, order=1, per_update=1)
    assert {bucket.members.dtype.name for bucket in passes.buckets} == {"int32"}
    rows = sum((batch[0][0] != 0).any(axis=1).sum() for batch in passes.batches(0, len(lengths)))
    assert rows >= 500
    assert "room" not in vars(passes)
    assert passes.room.shape == (2, 500)
    assert (passes.room >= lengths).all()
