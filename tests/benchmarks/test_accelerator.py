"""What the benchmark of a GPU counts and prints."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import accelerator


def test_the_products_of_a_step_are_those_counted_by_hand():
    # Three passes. One layer of each side, width 2, inner width 3, a row of 64 positions.
    projections = 64 * (4 + 8) * 2 * 2  # q, k, v, output: once in the encoder, twice in the decoder
    feed_forward = 2 * 64 * 2 * 2 * 3
    attention = 3 * 2 * 64 * 64 * 2  # two products for each of three attentions
    logits = 64 * 2 * 32_000
    by_hand = 3 * 2 * (projections + feed_forward + attention + logits)
    assert accelerator.step_products(d_model=2, d_ff=3, num_layers=1, rows=1) == by_hand


def test_only_and_what_choose_the_measurements():
    chosen = accelerator.measurements(["decode"], ["base", "big"], ["ours"])
    assert chosen[0] == ["decode", "ours", "base", "1", "1"]
    assert len(chosen) == 2 * len(accelerator.BATCHES)
    trainings = accelerator.measurements(["train"], ["base", "big"], None)
    assert [size for _, _, size in trainings].count("big") == len(accelerator.TRAININGS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["train", "ours, from a corpus", "smallest"], ["decode", "ours", "smallest", "4", "2"]],
)
def test_a_measurement_prints_its_line(arguments):
    pytest.importorskip("jax", reason="the benchmark runs on JAX")
    code = "from benchmarks import accelerator as a; a.SECONDS = 0.1; a.main()"
    command = [sys.executable, "-c", code, "--measure", *arguments]
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", check=True
    )
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["contestant"] == arguments[1]
    assert line["tok_s"] > 0
