"""A training run on two devices is that on one: losses, metrics, weights, clipping."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.backends import BACKEND, on_jax, on_tensorflow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BACKEND == "torch", reason="Keras trains on one device on PyTorch"),
]
REPOSITORY = Path(__file__).resolve().parents[1]
CASES = [
    "mean",
    "mean, eagerly",
    "a Transformer",
    "a recurrent model",
    pytest.param("a last batch of a single row", marks=on_tensorflow),
    pytest.param("accumulated", marks=on_jax),
    "weights of sentences",
    "sum of weights of tokens",
    "R-drop with a regulariser",
    "R-drop of a weighted sum",
    "clipped with weight decay",
]


@pytest.fixture(scope="module")
def results():
    done = subprocess.run(
        [sys.executable, "-m", "tests.train_on_two_devices"],
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_close(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_weights_after_updates_are_those_of_one_device(results, case):
    one, two = results["1"][case], results["2"][case]
    for found, expected in zip(two["weights"], one["weights"], strict=True):
        assert_close(found, expected)


def test_gradients_of_unequal_tokens_are_those_of_one_device(results):
    one, two = (results[number]["gradients"] for number in "12")
    for found, expected in zip(two["ours"], one["ours"], strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    # With Keras's loss they are on one device ours, and on two the mean of the replicas' means.
    for found, expected in zip(one["Keras's"], one["ours"], strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    if BACKEND == "tensorflow":
        pairs = zip(two["Keras's"], one["Keras's"], strict=True)
        largest = max(np.abs(np.subtract(found, expected)).max() for found, expected in pairs)
        assert largest > 1e-2


@pytest.mark.parametrize("case", CASES)
def test_logs_of_epochs_and_of_an_evaluation_are_those_of_one_device(results, case):
    one, two = results["1"][case], results["2"][case]
    assert_close(two["history"], one["history"])
    assert_close(two["evaluated"], one["evaluated"])


@pytest.mark.parametrize("case", CASES)
def test_logs_of_batches_are_those_of_one_device(results, case):
    one, two = results["1"][case], results["2"][case]
    rows = (4, 2) if BACKEND == "jax" else (4, 3)
    for number, (found, expected) in enumerate(zip(two["batches"], one["batches"], strict=True)):
        if rows[number % 2] % 2:
            # The mean so far, weighted by rows, is one of each replica in Keras's logs of batches.
            assert found.pop("loss") != pytest.approx(expected.pop("loss"), rel=1e-6)
        assert_close(found, expected)


@on_tensorflow
def test_batches_of_texts_train_as_on_one_device(results):
    one, two = (results[number]["texts"] for number in "12")
    assert one["history"]["tokens"] == two["history"]["tokens"]
    assert one["history"]["loss"][1] < one["history"]["loss"][0]
    assert_close(two["history"], one["history"])
    for found, expected in zip(two["weights"], one["weights"], strict=True):
        assert_close(found, expected)


@on_tensorflow
def test_replicas_of_a_loop_of_ones_own_have_equal_shares_of_the_loss(results):
    shares = results["shares"]
    assert shares["parts"] == pytest.approx([shares["whole"] / 2] * 2, rel=1e-6)
    assert shares["outside"] == pytest.approx(shares["whole"], rel=1e-6)


@on_tensorflow
@pytest.mark.parametrize("name", ["dropout", "computed twice"])
def test_each_replica_drops_elements_of_its_own(results, name):
    outside, first, second = map(np.array, results["dropped"][name])
    assert np.mean(np.isclose(first, second)) < 0.7
    np.testing.assert_allclose(first, outside, atol=1e-6)  # the first has the bits of one device


@on_tensorflow
def test_accumulation_is_refused_by_our_optimizer_and_by_our_models(results):
    for message in results["refusals"]:
        assert "`gradient_accumulation_steps` must be None" in message
        assert "Received: gradient_accumulation_steps=2 with 2 replicas" in message
