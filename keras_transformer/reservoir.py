"""A sample of a stream that need not fit in memory: the same one each time."""

import math
import random
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def sample_evenly(
    items: Iterable[Item],
    size: int,
    *,
    measure: Callable[[Item], int] | None = None,
    most: float = math.inf,
) -> list[Item]:
    """Returns `size` of the items in their order, or all where there are fewer.

    Each item is as likely in the sample as any other. The same stream gives the same sample.

    Args:
        items: a stream.
        size: how many.
        measure: the length of an item; None for 0.
        most: the largest sum of these lengths. Above it, half of the sample is dropped by chance,
            and the sample stays so small. One item may be longer.

    Reference: Vitter 1985, "Random Sampling with a Reservoir", algorithm R.

    Example:

    >>> sample = sample_evenly(range(1000), 3)
    >>> len(sample), sample == sorted(sample), sample == sample_evenly(range(1000), 3)
    (3, True, True)
    """
    draws = random.Random(0)
    kept: list[tuple[int, Item]] = []
    length, total = measure or (lambda item: 0), 0
    for number, item in enumerate(items):
        if number < size:
            kept.append((number, item))
        elif (place := draws.randrange(number + 1)) < size:
            total -= length(kept[place][1])
            kept[place] = (number, item)
        else:
            continue
        total += length(item)
        while total > most and len(kept) > 1:
            size = len(kept) // 2
            kept = draws.sample(kept, size)
            total = sum(length(item) for _, item in kept)
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])]
