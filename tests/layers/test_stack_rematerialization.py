"""Rematerialised stacks: the same outputs, gradients and dropout masks, in less memory."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import (
    Decoder,
    Encoder,
    MaskedCrossentropy,
    RelativePositionBias,
    Transformer,
)
from tests.backends import BACKEND, array, gradients, normal, on_tensorflow, prepared

SIZES = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12, "dropout": 0.4}
SOURCES = np.array([[5, 6, 7, 3, 0, 0], [8, 3, 0, 0, 0, 0]] * 2, "int32")
INPUTS = np.array([[2, 9, 5, 4], [2, 6, 0, 0]] * 2, "int32")
LABELS = np.array([[9, 5, 4, 3], [6, 3, 0, 0]] * 2, "int32")


def fitted(jit_compile, **arguments):
    keras.utils.set_random_seed(5)
    model = Transformer(11, **{**SIZES, **arguments})
    model.build()
    loss = MaskedCrossentropy(0.1)
    model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=jit_compile)
    fit = dict(batch_size=2, verbose=0, shuffle=False)
    history = model.fit((SOURCES, INPUTS), LABELS, **fit).history
    return history["loss"], [array(weight) for weight in model.weights]


OPTIONS = {
    "the paper": {},
    "pre-norm, shared bias": {
        "num_layers": 2,
        "norm_first": True,
        "attention_dropout": 0.3,
        "feed_forward_dropout": 0.3,
        "position": RelativePositionBias(4, 8),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "jit_compile"), [("pre-norm, shared bias", False), ("the paper", True)]
)
def test_training_with_dropout_is_the_same(name, jit_compile):
    if jit_compile and BACKEND == "torch":
        pytest.skip("PyTorch's compiler is not asked for")
    options = OPTIONS[name]
    expected_losses, expected = fitted(jit_compile, **options)
    losses, weights = fitted(jit_compile, remat=True, **options)
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    for weight, value in zip(weights, expected, strict=True):
        # What is rounded is of the size of the whole tensor, not of an element near 0: 6e-5 of it
        # after some updates under XLA. By other masks weights differ by as much as they are.
        allowed = 1e-6 + 2e-4 * np.abs(value).max(initial=0.0)
        np.testing.assert_allclose(weight, value, rtol=0, atol=allowed)


@pytest.mark.parametrize("stack", [Encoder, Decoder])
def test_the_gradient_of_the_inputs_is_the_same(stack):
    """Of one step, in which another mask of the recomputation would show at once."""
    inputs, factors, found = normal(1, 2, 5, 8), normal(2, 2, 5, 8), []
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    for remat in (False, True):
        keras.utils.set_random_seed(2)
        layer = stack(1, 2, 12, dropout=0.5, remat=remat)
        layer.build(inputs.shape)

        def total(x, layer=layer):
            outputs = layer(x, padding_mask=mask, training=True)
            return keras.ops.sum(outputs * keras.ops.convert_to_tensor(factors))

        found.append(gradients(total, [inputs])[0][0])
    assert np.abs(found[0]).max() > 0.01
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "way",
    ["eager", *(pytest.param(way, marks=pytest.mark.slow) for way in ("compiled", "reloaded"))],
)
def test_outputs_outside_of_training_are_the_same(way, tmp_path):
    keras.utils.set_random_seed(3)
    plain, twin = Encoder(1, 2, 12), Encoder(1, 2, 12, remat=True)
    inputs = normal(1, 2, 5, 8)
    for layer in (plain, twin):
        layer.build(inputs.shape)
    twin.set_weights(plain.get_weights())
    run = prepared(way, twin, [inputs], tmp_path)
    np.testing.assert_allclose(run(inputs), array(plain(inputs)), rtol=1e-5, atol=1e-6)


def test_a_bad_argument_raises():
    with pytest.raises(ValueError, match="`remat` must be True or False. Received: remat='full'"):
        Encoder(2, 2, 12, remat="full")


PEAK = """
import re, sys
import keras, numpy as np
from keras_transformer import MaskedCrossentropy, Transformer
model = Transformer(
    500, num_layers=4, d_model=128, num_heads=4, d_ff=512, dropout=0.3, remat=sys.argv[1] == "True"
)
model.build()
model.compile(keras.optimizers.SGD(0.1), MaskedCrossentropy(), jit_compile=False)
ids = np.random.default_rng(0).integers(4, 500, (128, 64)).astype("int32")
model.fit((ids, ids), ids, batch_size=128, verbose=0, shuffle=False)
# Not ru_maxrss, which starts from that of the process which started this one.
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1))
"""


@on_tensorflow
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_the_peak_of_memory_is_lower():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    peaks = []
    for remat in (False, True):
        command = [sys.executable, "-c", PEAK, str(remat)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] < 0.85 * peaks[0], peaks
