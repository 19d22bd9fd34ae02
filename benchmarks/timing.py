"""Times several functions in turns, so that a machine that slows down slows all of them."""

import statistics
import time


def interleaved(functions, seconds=2.0, least=5):
    """Median milliseconds of each of `functions`, a dict; each is called once to warm up.

    The functions take turns until each has run `least` times and `seconds` have gone by.
    """
    for function in functions.values():
        function()
    taken = {name: [] for name in functions}
    started = time.perf_counter()
    while time.perf_counter() - started < seconds or len(next(iter(taken.values()))) < least:
        for name, function in functions.items():
            begun = time.perf_counter()
            function()
            taken[name].append((time.perf_counter() - begun) * 1000)
    return {name: statistics.median(times) for name, times in taken.items()}
