"""Times contestants in turns, so that a machine that slows down slows all of them."""

import json
import os
import re
import statistics
import subprocess
import sys
import time

# What makes TensorFlow and JAX say of each program that XLA compiled that it did.
LOG_COMPILATIONS = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "device_compilation_profiler=1",
    "JAX_LOG_COMPILES": "1",
}
COMPILATION = re.compile(r"times, compile time: |Finished XLA compilation of ")
THREADS = {"OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}


def choose_threads(script):
    """The environment in which a peer's script has both cores.

    OpenMP may bind what computes with it. TensorFlow and JAX have threads of their own. KerasHub
    loads an OpenMP that would bind the process, with all of these threads, to one core.
    """
    return {} if script.startswith("keras") else THREADS


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


def dropout_is_on(model, data):
    """Whether `fit` draws: two steps on the first batch of `data()` that learn nothing differ."""
    rate = float(model.optimizer.learning_rate)
    model.optimizer.learning_rate = 0.0
    losses = [
        model.fit(data(), steps_per_epoch=1, shuffle=False, verbose=0).history["loss"][0]
        for _ in range(2)
    ]
    model.optimizer.learning_rate = rate
    return losses[0] != losses[1]


def collect_lines(command, environment=None, cwd=None):
    """Runs `command` and returns the JSON lines it printed; none, and its error, if it failed.

    Each has `compilations` besides, the number of programs that XLA compiled, which is right where
    `environment` has LOG_COMPILATIONS.
    """
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        print(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return []
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    compilations = len(COMPILATION.findall(done.stderr))
    return [{**line, "compilations": compilations} for line in lines]
