"""sample_evenly: of the size asked for, in order, each item as likely as any other."""

import collections

import pytest

from keras_transformer.reservoir import sample_evenly


@pytest.mark.parametrize("size", [1, 3, 7, 50])
def test_a_sample_has_the_size_the_order_and_no_item_twice(size):
    sample = sample_evenly(iter(range(37)), size)
    assert len(sample) == len(set(sample)) == min(size, 37)
    assert sample == sorted(sample) == sample_evenly(range(37), size)


def test_no_items_make_an_empty_sample():
    assert sample_evenly([], 3) == []


def test_early_and_late_items_are_equally_likely():
    # A quarter of each 2000 is kept: 500 of them, with a standard deviation of
    # sqrt(2000 * 1/4 * 3/4) = 19.4.
    kept = sample_evenly(range(40_000), 10_000)
    counts = collections.Counter(item // 2000 for item in kept)
    assert set(counts) == set(range(20))
    assert all(abs(count - 500) < 5 * 19.4 for count in counts.values())


def test_a_sample_of_long_items_has_fewer_of_them():
    kept = sample_evenly(range(40_000), 10_000, measure=lambda item: 3, most=20_000)
    assert 3_333 <= len(kept) <= 6_666
    assert kept == sorted(set(kept))
    assert sample_evenly(range(40_000), 10_000, measure=lambda item: 2, most=20_000) == (
        sample_evenly(range(40_000), 10_000)
    )
    # 40 parts of 1,000; n of them are kept with a standard deviation below that of n draws.
    counts = collections.Counter(item // 1000 for item in kept)
    mean = len(kept) / 40
    assert all(abs(counts[part] - mean) < 5 * mean**0.5 for part in range(40))
    assert sample_evenly([1, 2, 300], 3, measure=lambda item: item, most=10) in ([1], [2], [300])
