"""Weights over devices: which layout each has, and that eight devices train as one does."""

import json
import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer import RelativePositionBias, Transformer
from keras_transformer import distribution as ours

REPOSITORY = Path(__file__).resolve().parents[1]
SIZES = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
MODELS = {
    "as in the paper": {"vocab_size": 20},
    "all options": {
        "source_vocab_size": 20, "target_vocab_size": 30, "tie_output": False, "logits_bias": True,
        "activation": "swiglu", "embedding_norm": True, "position": RelativePositionBias(),
    },
}  # fmt: skip
WHOLE = r".*/(norm|\w+_norm)/(gamma|beta)|.*/(attention_output|outer)/bias"
SCRIPT = [sys.executable, str(REPOSITORY / "tests" / "train_on_eight_devices.py")]
on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="distributes on JAX alone")
# On whatever backend the tests run: the processes are on JAX.
with_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")


def weights_of(options):
    model = Transformer(**options, **SIZES)
    model.build()
    return {weight.path: tuple(weight.shape) for weight in model.weights}


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_has_one_layout_or_is_whole(name):
    for path, shape in weights_of(MODELS[name]).items():
        found = [axes for pattern, (axes, _) in ours.LAYOUTS.items() if re.fullmatch(pattern, path)]
        assert len(found) == (0 if re.fullmatch(WHOLE, path) else 1), path
        assert all(len(axes) == len(shape) for axes in found), path


def test_every_layout_is_that_of_a_weight():
    paths = [path for options in MODELS.values() for path in weights_of(options)]
    for pattern in ours.LAYOUTS:
        assert any(re.fullmatch(pattern, path) for path in paths), pattern


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX distributes")
def test_other_backends_than_jax_are_refused():
    for make in (ours.TransformerParallel, lambda: ours.transformer_layout_map(None)):
        with pytest.raises(ValueError, match="must run on JAX.*MirroredStrategy"):
            make()


@on_jax
def test_numbers_of_numpy_are_taken():
    parallel = ours.TransformerParallel(np.int64(1), np.int32(1))
    assert (type(parallel.data_parallel), type(parallel.model_parallel)) == (int, int)


@on_jax
def test_too_few_devices_and_other_axes_are_refused():
    with pytest.raises(ValueError, match=r"`model_parallel`, 999, must be the number of devices"):
        ours.TransformerParallel(1, 999)
    with pytest.raises(ValueError, match=r"`mesh` must have the axes 'batch' and 'model'"):
        ours.transformer_layout_map(SimpleNamespace(axis_names=["data"]))


@on_jax
def test_weights_are_divided_among_the_devices_of_a_process(monkeypatch):
    """Four machines of eight: a process on each can divide them, a process for each GPU cannot."""
    devices = [f"cuda:{number}" for number in range(32)]
    monkeypatch.setattr(ours, "own_process", lambda: (0, 4))
    assert ours.TransformerParallel(4, 8, devices).model_parallel == 8
    monkeypatch.setattr(ours, "own_process", lambda: (0, 32))
    assert ours.TransformerParallel(32, 1, devices).data_parallel == 32
    with pytest.raises(ValueError, match="With one device in each process `model_parallel` must"):
        ours.TransformerParallel(4, 8, devices)


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [*SCRIPT, *arguments]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    return subprocess.Popen(command, env=environment, cwd=REPOSITORY, **pipes)


def result_of(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return json.loads(output.splitlines()[-1])


@pytest.fixture(scope="module")
def results():
    return result_of(run())


@with_jax
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["data", "model"])
def test_eight_devices_train_as_one_does(results, kind):
    one, eight = results["one"], results[kind]
    assert len(one["losses"]) >= 50
    for name in ("losses", "perplexity", "tokens"):
        np.testing.assert_allclose(eight[name], one[name], rtol=1e-5)
    for name, values in one["weights"].items():
        np.testing.assert_allclose(eight["weights"][name], values, atol=1e-5, err_msg=name)
    assert eight["ids"] == one["ids"]


@with_jax
@pytest.mark.slow
def test_a_device_holds_its_heads_its_inner_width_and_its_pieces(results):
    def of(kind, name):
        return [shape for path, shape in results[kind]["first device"].items() if name in path]

    parts = {
        "encoder/layer_0/attention/query/kernel": ([16, 4, 4], [16, 1, 4]),
        "decoder/layer_0/feed_forward/outer/kernel": ([32, 16], [8, 16]),
        "embedding/embedding/embeddings": ([24, 16], [6, 16]),
        "decoder_layer_0_self_attention_attention_output_kernel_momentum": ([4, 4, 16], [1, 4, 16]),
        "encoder/layer_0/feed_forward_residual/norm/gamma": ([16], [16]),
    }
    for name, (whole, part) in parts.items():
        assert of("data", name) == [whole], name
        assert of("model", name) == [part], name


@with_jax
@pytest.mark.slow
def test_a_device_holds_as_many_bytes_as_the_layout_map_says(results):
    def is_divided(path):
        return any(re.fullmatch(pattern, path) for pattern in ours.LAYOUTS)

    # A moment has the name of its weight, with underscores, and "_momentum" or "_velocity".
    found = results["model"]["bytes"]
    weights = [path for path in found if path in results["model"]["first device"] and "/" in path]
    divided = {path for path in weights if is_divided(path)}
    moments = {
        path
        for path in found
        for weight in divided
        if re.fullmatch(rf".*/{weight.replace('/', '_')}_(momentum|velocity)", path)
    }
    assert len(moments) == 2 * len(divided) > 0
    whole = sum(size for size, _ in found.values())
    parts = sum(size for path, (size, _) in found.items() if path in divided | moments)
    held = sum(own for _, own in found.values())
    assert held == whole - parts + parts // 4
    assert held < 0.45 * whole, "norms and biases of outputs alone are whole"
    assert all(size == own for size, own in results["data"]["bytes"].values())
    assert sum(size for size, _ in results["data"]["bytes"].values()) == whole


@with_jax
@pytest.mark.slow
def test_a_model_without_parts_is_refused(results):
    said = results["error without parts"]
    assert said.startswith("`model_parallel` must be 1 for a model without a weight that")
    assert re.search(r"Received: model_parallel=4, and \d+ variables, each whole", said)


@with_jax
@pytest.mark.slow
def test_a_size_that_does_not_divide_is_refused_by_its_name(results):
    assert results["error"].startswith("num_heads must be a multiple of `model_parallel`, 3")


@with_jax
@pytest.mark.slow
def test_two_processes_of_four_devices_train_as_one_device_does(results):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    both = [run(address, "0"), run(address, "1")]
    with ThreadPoolExecutor(2) as pool:  # each waits at its end for the other, whose pipe may fill
        first, second = pool.map(result_of, both)
    one = results["one"]
    assert first["rows"] == second["rows"] == one["rows"] // 2
    for each in (first, second):
        for name in ("losses", "perplexity", "tokens"):
            np.testing.assert_allclose(each[name], one[name], rtol=1e-5)
        assert each["weights"].keys() == one["weights"].keys()
        for name, values in one["weights"].items():
            np.testing.assert_allclose(each["weights"][name], values, atol=1e-5, err_msg=name)
