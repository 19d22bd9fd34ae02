"""Batch shapes: the least padding that the number of shapes allows."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.batches.buckets import cheapest_runs, make_buckets

LENGTHS = st.lists(st.tuples(st.integers(2, 40), st.integers(2, 40)), min_size=1, max_size=60)


def positions(buckets):
    return sum(b.num_batches * b.rows * (b.source_length + b.target_length) for b in buckets)


def all_cuts(size, max_runs):
    """Every way to cut 0..size into at most `max_runs` runs."""
    for num_cuts in range(min(max_runs, size)):
        for cuts in itertools.combinations(range(1, size), num_cuts):
            edges = [0, *cuts, size]
            yield list(zip(edges[:-1], edges[1:], strict=True))


@settings(max_examples=50)
@given(st.integers(1, 7), st.integers(1, 8), st.integers(0, 2**31))
def test_the_runs_are_as_cheap_as_any(size, max_runs, seed):
    costs = np.random.default_rng(seed).integers(1, 50, (size, size)).astype(float)

    def total(runs):
        return sum(costs[start, stop - 1] for start, stop in runs)

    runs = cheapest_runs(costs, max_runs)
    assert runs in list(all_cuts(size, max_runs))
    assert total(runs) == min(map(total, all_cuts(size, max_runs)))


@settings(max_examples=80)
@given(LENGTHS, st.integers(1, 5), st.integers(40, 400))
def test_each_pair_fits_one_bucket_within_the_budget(lengths, max_shapes, tokens_per_batch):
    sources, targets = np.array(lengths).T
    buckets = make_buckets(sources, targets, tokens_per_batch, max_shapes)
    assert 1 <= len(buckets) <= max_shapes
    members = np.concatenate([bucket.members for bucket in buckets])
    assert sorted(members) == list(range(len(lengths)))
    for bucket in buckets:
        assert (sources[bucket.members] <= bucket.source_length).all()
        assert (targets[bucket.members] <= bucket.target_length).all()
        assert bucket.rows * max(bucket.source_length, bucket.target_length) <= tokens_per_batch
        assert bucket.rows <= len(bucket.members)


@settings(max_examples=40)
@given(LENGTHS, st.integers(1, 5), st.integers(200, 800), st.integers(1, 5))
def test_rows_are_a_multiple_within_the_budget(lengths, max_shapes, tokens_per_batch, multiple):
    sources, targets = np.array(lengths).T
    buckets = make_buckets(sources, targets, tokens_per_batch, max_shapes, multiple)
    assert 1 <= len(buckets) <= max_shapes
    members = np.concatenate([bucket.members for bucket in buckets])
    assert sorted(members) == list(range(len(lengths)))
    for bucket in buckets:
        assert bucket.rows % multiple == 0
        assert bucket.rows * max(bucket.source_length, bucket.target_length) <= tokens_per_batch
        assert bucket.rows < len(bucket.members) + multiple


@settings(max_examples=30)
@given(LENGTHS, st.integers(40, 400))
def test_more_shapes_never_pad_more(lengths, tokens_per_batch):
    sources, targets = np.array(lengths).T
    totals = [
        positions(make_buckets(sources, targets, tokens_per_batch, shapes))
        for shapes in range(1, 6)
    ]
    assert totals == sorted(totals, reverse=True)


def test_a_hand_worked_case():
    # Six pairs of 4 and 4 tokens, two of 12 and 8, a budget of 24 a side.
    # One shape: 24 // 12 = 2 rows, 4 batches, 4 * 2 * (12 + 8) = 160 positions.
    # Two shapes: 6 rows of (4, 4) in one batch = 48, and 2 rows of (12, 8) = 40: 88 positions.
    sources, targets = np.array([4, 12, 4, 4, 4, 12, 4, 4]), np.array([4, 8, 4, 4, 4, 8, 4, 4])
    one = make_buckets(sources, targets, tokens_per_batch=24, max_shapes=1)
    two = make_buckets(sources, targets, tokens_per_batch=24, max_shapes=9)
    assert [bucket.shape for bucket in one] == [(2, 12, 8)]
    assert [bucket.shape for bucket in two] == [(6, 4, 4), (2, 12, 8)]
    assert (positions(one), positions(two)) == (160, 88)
    assert two[1].members.tolist() == [1, 5]


def test_rows_are_evened_out_over_batches():
    # Room for 10 rows of 4, eleven pairs: two batches of 6 pad one row, of 10 they would pad nine.
    (bucket,) = make_buckets(np.full(11, 4), np.full(11, 4), tokens_per_batch=40, max_shapes=1)
    assert (bucket.rows, bucket.num_batches) == (6, 2)


def test_many_different_lengths_are_no_trouble():
    lengths = np.arange(2, 40_000, 4)
    buckets = make_buckets(lengths, lengths, tokens_per_batch=80_000, max_shapes=4)
    assert len(buckets) == 4
    assert sorted(np.concatenate([b.members for b in buckets])) == list(range(len(lengths)))
    for bucket in buckets:
        assert lengths[bucket.members].max() <= bucket.source_length
