"""What the races count and print of each contestant."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from benchmarks import training
from benchmarks.timing import LOG_COMPILATIONS, choose_threads, collect_lines, dropout_is_on
from tests.backends import on_tensorflow

REPOSITORY = Path(__file__).resolve().parents[2]

TENSORFLOW = """
import json, sys
import tensorflow as tf
double = tf.function(lambda x: x * 2, jit_compile=True)
for size in (1, 2, 2):
    double(tf.zeros(size))
print("no JSON")
print(json.dumps({"tok_s": 5}))
"""
JAX = """
import json
import jax
double = jax.jit(lambda x: x * 2)
for size in (1.0, 2, 2):
    double(size)
print(json.dumps({"tok_s": 5}))
"""


@pytest.mark.parametrize(
    "program",
    [pytest.param(TENSORFLOW, marks=pytest.mark.slow), JAX],
    ids=["tensorflow", "jax"],
)
def test_programs_that_xla_compiled_are_counted(program):
    pytest.importorskip("tensorflow" if program is TENSORFLOW else "jax")
    lines = collect_lines([sys.executable, "-c", program], LOG_COMPILATIONS)
    assert lines == [{"tok_s": 5, "compilations": 2}]


def test_a_contestant_that_fails_is_named_and_has_no_lines(capsys):
    program = f"print('{json.dumps({'tok_s': 5})}'); raise SystemExit('no memory')"
    assert collect_lines([sys.executable, "-c", program]) == []
    assert "no memory" in capsys.readouterr().err


@pytest.mark.parametrize(("rate", "is_on"), [(0.5, True), (0.0, False)])
def test_a_training_without_dropout_is_found(rate, is_on):
    model = keras.Sequential([keras.layers.Dropout(rate), keras.layers.Dense(1)])
    inputs = np.random.default_rng(1).normal(size=(4, 8)).astype("float32")
    model.build(inputs.shape)
    model.compile(keras.optimizers.Adam(0.1), "mse")
    before = model.get_weights()
    assert dropout_is_on(model, lambda: (pair for pair in [(inputs, inputs[:, :1])] * 3)) is is_on
    for weight, same in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, same)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.1)


COMMON = """
import json
calls = []
def rss_mb():
    return len(calls)
def report(windows, sizes, label, size, first, extra=None):
    print(json.dumps({"label": label, "rss_mb": rss_mb(), **extra}))
def keras_fit_bench(model, make_data, sizes, label, size):
    report(None, sizes, label, size, 0.0)
def measure(step, sizes, label, size, extra=None):
    report(None, sizes, label, size, 0.0, extra)
"""
PEER = """
import random, sys
import numpy as np
import common as C
B, src, inp, tgt = 2, np.ones(4), np.ones(4), np.ones(4)
def fwd(*batch):
    C.calls.append(batch)
    assert all(part.shape == (2,) for part in batch)
    return np.float64(random.random() if "--drop" in sys.argv else 1.0)
def step():
    pass
C.measure(step, {}, "a peer", "tiny", extra={"tok_s": 5})
"""


@pytest.mark.parametrize("drop", [True, False])
def test_the_dropout_of_a_peers_script_is_checked(tmp_path, drop):
    (tmp_path / "common.py").write_text(COMMON, encoding="utf-8")
    (tmp_path / "peer.py").write_text(PEER, encoding="utf-8")
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "peer_training.py"), "peer.py"]
    done = subprocess.run(
        [*command, *["--drop"] * drop],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    # The peak is that before the check.
    expected = {"label": "a peer", "rss_mb": 0, "tok_s": 5, "dropout": drop}
    assert json.loads(done.stdout) == expected


def test_openmp_binds_no_process_whose_threads_are_tensorflows():
    assert choose_threads("kerashub.py") == choose_threads("keras_tutorial.py") == {}
    assert choose_threads("torch_nn.py")["OMP_PROC_BIND"] == "true"


KERAS_PEER = """
import json, keras
print(json.dumps([keras.backend.backend(), keras.config.dtype_policy().name]))
"""


@pytest.mark.slow
def test_a_script_of_keras_runs_on_another_backend_and_in_half_precision(tmp_path):
    pytest.importorskip("jax")
    (tmp_path / "common.py").write_text(COMMON, encoding="utf-8")
    (tmp_path / "peer.py").write_text(KERAS_PEER, encoding="utf-8")
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "peer_training.py")]
    command += ["--backend", "jax", "--policy", "mixed_bfloat16", "peer.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert json.loads(done.stdout) == ["jax", "mixed_bfloat16"]


KERAS_FIT_BENCH = """
import json
def keras_fit_bench(model, make_data, c, *options):
    (source_ids, target_ids), labels = next(iter(make_data()))
    ids = [part.numpy().tolist() for part in (source_ids, target_ids, labels)]
    report([], c, *options, 0, {"ids": ids})
def report(windows, c, label, size, first, extra):
    print(json.dumps(extra))
def measure(step): pass
def rss_mb(): return 0
"""
KERAS_PEER_OF_IDS = """
import sys, keras, common
inputs = [keras.Input((16,)), keras.Input((16,))]
hidden = keras.layers.Embedding(16_000, 4)(keras.layers.Add()(inputs))
hidden = keras.layers.Dropout(float(sys.argv[1]))(hidden)
model = keras.Model(inputs, keras.layers.Dense(8000)(hidden))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
common.keras_fit_bench(model, lambda: None, dict(B=8, T=16), "a peer", "tiny")
"""


@pytest.mark.slow
@on_tensorflow
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_script_of_keras_is_given_the_batches_of_ours_from_texts(tmp_path, rate):
    from benchmarks.ours_training import batches_of_texts

    (tmp_path / "common.py").write_text(KERAS_FIT_BENCH, encoding="utf-8")
    (tmp_path / "peer.py").write_text(KERAS_PEER_OF_IDS, encoding="utf-8")
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "peer_training.py"), "--texts"]
    environment = {"PYTHONPATH": str(REPOSITORY), "KERAS_BACKEND": "tensorflow"}
    (line,) = collect_lines([*command, "peer.py", str(rate)], environment, tmp_path)
    (source_ids, target_ids), labels = next(iter(batches_of_texts(8, 16)(1)))
    for found, expected in zip(line["ids"], (source_ids, target_ids, labels), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert line["dropout"] is (rate > 0)  # it is checked on one batch: others differ by themselves


def test_ratios_are_of_one_round_and_the_middle_one_counts(capsys):
    """The machine was half as fast in the second round; in the third the peer failed."""
    speeds = {"ours": [300, 160, 500], "ours, bfloat16": [600, 300, 400], "a peer": [100, 40, None]}
    rest = {"first_s": 2.0, "compilations": 1, "rss_mb": 1000, "dropout": True}
    rounds = {
        name: [speed and {"tok_s": speed, **rest} for speed in found]
        for name, found in speeds.items()
    }
    assert training.ratio(rounds["ours"], rounds["a peer"]) == 3.5
    assert math.isnan(training.ratio(rounds["ours"], [None] * 3))
    training.print_table("tiny", {**rounds, "another": [None] * 3})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split()[:6] == ["a", "peer", "70", "3.50x", "nanx", "6.75x"]
    assert lines[-1].split() == ["another", "failed"]
    training.print_table("tiny", {"a peer": rounds["a peer"]})  # ours was not asked for
    assert capsys.readouterr().out.split()[-8:-5] == ["nanx"] * 3
    rest["dropout"] = False
    assert training.told("a peer", {"tok_s": 5, **rest}).endswith("; TRAINS WITHOUT DROPOUT")


@pytest.mark.parametrize(
    ("option", "is_on"),
    [
        pytest.param([], True, marks=pytest.mark.slow),
        pytest.param(["--no-dropout"], False, marks=pytest.mark.long),
    ],
)
def test_our_training_from_texts_is_checked_on_one_batch(option, is_on):
    pytest.importorskip("tensorflow")
    command = [sys.executable, "-m", "benchmarks.ours_training", "--texts", "--seconds", "0.1"]
    (line,) = collect_lines([*command, *option], {"KERAS_BACKEND": "tensorflow"}, cwd=REPOSITORY)
    assert line["dropout"] is is_on
