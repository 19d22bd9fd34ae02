"""Loading takes the memory of the weights and of the largest up to five times, in every form."""

import os
import subprocess
import sys

import pytest

from keras_transformer import BeamSearch, Transformer
from keras_transformer.interop import save_ctranslate2, save_hugging_face
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer
from tests.conftest import REPOSITORY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc"),
]

MEASURE = r"""
import math, pathlib, re, sys
from keras_transformer.interop import load_ctranslate2, load_hugging_face

load = load_ctranslate2 if "ctranslate2" in sys.argv[1] else load_hugging_face
load(sys.argv[1])  # what TensorFlow takes for itself


def kibibytes(name):
    return int(re.search(name + r":\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])

pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = kibibytes("VmRSS")
model = load(sys.argv[2]).model
taken = 1024 * (kibibytes("VmHWM") - before)
sizes = [4 * math.prod(weight.shape) for weight in model.weights]
print((taken - sum(sizes)) / max(sizes))
"""
TEXTS = ["a man rides a horse on the beach", "two dogs play with a red ball"] * 3


def write(directory, form, d_ff):
    """Writes a model in a form, of which the two feed-forward layers are nearly all."""
    tokenizer = SentencePieceTokenizer.train(TEXTS, vocab_size=60)
    search = BeamSearch(4, length_penalty=1.0, length_formula="power")
    model = Transformer(60, num_layers=1, d_model=512, num_heads=2, d_ff=d_ff, norm_epsilon=1e-5)
    model.build()
    translator = Translator(model, tokenizer, search=search, jit_compile=False)
    if form.startswith("ctranslate2"):
        pytest.importorskip("ctranslate2")
        save_ctranslate2(translator, directory, "int8" if form.endswith("int8") else None)
        return
    save_hugging_face(translator, directory)
    if form == "pytorch_model.bin":
        torch = pytest.importorskip("torch")
        safetensors = pytest.importorskip("safetensors.torch")
        torch.save(safetensors.load_file(directory / "model.safetensors"), directory / form)
        (directory / "model.safetensors").unlink()


@pytest.mark.parametrize("form", ["safetensors", "pytorch_model.bin", "ctranslate2-int8"])
def test_loading_takes_little_more_than_the_weights(form, tmp_path):
    small, large = tmp_path / f"small {form}", tmp_path / f"large {form}"
    write(small, form, 16)
    write(large, form, 24576)  # four matrices of 48 MiB in float32
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, small, large],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    copies = float(done.stdout.split()[-1])
    # What is read, two that TensorFlow makes of an array, and what the draw of the initial values
    # leaves: 2.6 matrices on one machine, none on another.
    assert copies < 5.0
