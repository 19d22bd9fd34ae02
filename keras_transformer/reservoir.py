"""A sample of a stream that need not fit in memory: the same one each time."""

import random
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def sample_evenly(items: Iterable[Item], size: int) -> list[Item]:
    """Returns `size` of the items in their order, or all where there are fewer.

    Each item is as likely in the sample as any other. The same stream gives the same sample.

    Reference: Vitter 1985, "Random Sampling with a Reservoir", algorithm R.

    Example:

    >>> sample = sample_evenly(range(1000), 3)
    >>> len(sample), sample == sorted(sample), sample == sample_evenly(range(1000), 3)
    (3, True, True)
    """
    draws = random.Random(0)
    kept: list[tuple[int, Item]] = []
    for number, item in enumerate(items):
        if number < size:
            kept.append((number, item))
        elif (place := draws.randrange(number + 1)) < size:
            kept[place] = (number, item)
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])]
