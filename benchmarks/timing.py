"""Times contestants in turns, so that a machine that slows down slows all of them."""

import json
import os
import statistics
import subprocess
import sys
import time

THREADS = {"OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}


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


def lines_of(command, environment=None, cwd=None):
    """Runs `command` and returns the JSON lines it printed; none, and its error, if it failed."""
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return []
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
