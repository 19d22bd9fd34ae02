"""Loading a model of the size of OPUS-MT takes at most 1.5 times its weights, in every form."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_transformer import BeamSearch, Transformer
from keras_transformer.interop import save_ctranslate2, save_hugging_face
from keras_transformer.interop.marian import convert_name, is_of_tokens
from keras_transformer.interop.weights import read_weights
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the memory from /proc"),
]

MEASURE = r"""
import math, pathlib, re, sys
from keras_transformer.recipes.imported import load_imported


def kibibytes(name):
    return int(re.search(name + r":\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])

load_imported(sys.argv[1])  # what TensorFlow and the tokenizers take for themselves
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = kibibytes("VmRSS")
model = load_imported(sys.argv[2]).model
taken = 1024 * (kibibytes("VmHWM") - before)
print(taken / sum(4 * math.prod(weight.shape) for weight in model.weights))
"""
TEXTS = ["a man rides a horse on the beach", "two dogs play with a red ball"] * 3
SMALL = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 32}
OPUS = {"num_layers": 6, "d_model": 512, "num_heads": 8, "d_ff": 2048}  # 296 MB in float32
FORMS = [
    "safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin before 1.6",
    "pytorch_model.bin in float16",
    "ctranslate2",
    "ctranslate2 in int8",
    "marian",
]


@pytest.fixture(scope="module")
def translators():
    """A small one, and one with the sizes of OPUS-MT."""
    model = SentencePieceTokenizer.train(TEXTS, vocab_size=60).model
    pieces = SentencePieceTokenizer(model).vocabulary
    more = [f"piece{index}" for index in range(58_101 - len(pieces))]
    made = []
    for sizes, listed in ((SMALL, pieces), (OPUS, pieces + more)):
        tokenizer = SentencePieceTokenizer(model, vocabulary=listed)
        transformer = Transformer(len(listed), activation="swish", norm_epsilon=1e-5, **sizes)
        search = BeamSearch(4, length_penalty=1.0, early_stopping=True, length_formula="power")
        made.append(Translator(transformer, tokenizer, search=search, jit_compile=False))
    return made


def write(translator, directory, form):
    """Writes a translator in a form."""
    if form.startswith("ctranslate2"):
        pytest.importorskip("ctranslate2")
        save_ctranslate2(translator, directory, "int8" if form.endswith("int8") else None)
    elif form == "marian":
        write_marian(translator, directory)
    else:
        save_hugging_face(translator, directory)
    if form.startswith("pytorch_model.bin"):
        torch = pytest.importorskip("torch")
        safetensors = pytest.importorskip("safetensors.torch")
        state = safetensors.load_file(directory / "model.safetensors")
        if form.endswith("float16"):
            state = {name: values.half() for name, values in state.items()}
        is_new = not form.endswith("1.6")
        path = directory / "pytorch_model.bin"
        torch.save(state, path, _use_new_zipfile_serialization=is_new)
        (directory / "model.safetensors").unlink()


def write_marian(translator, directory):
    """Writes Marian's files with the weights of a translator."""
    directory.mkdir()
    model = translator.model
    settings = {
        "type": "transformer",
        "enc-depth": model.num_layers,
        "dec-depth": model.num_layers,
        "transformer-heads": model.num_heads,
        "transformer-dim-ffn": model.d_ff,
        "transformer-preprocess": '""',
        "transformer-postprocess": "dan",
    }
    text = "".join(f"{name}: {value}\n" for name, value in settings.items())
    arrays = {"special:model.yml": np.frombuffer(text.encode(), "int8")}
    for name, values in read_weights(model).items():
        if is_of_tokens(name):
            arrays["Wemb"] = values
        else:
            arrays[convert_name(name, False)] = values if values.ndim > 1 else values[None]
    np.savez(directory / "model.npz", **arrays)
    (directory / "source.spm").write_bytes(translator.source_tokenizer.model)
    lines = [f"{piece}: {n}\n" for n, piece in enumerate(translator.source_tokenizer.vocabulary)]
    (directory / "vocab.yml").write_text("".join(lines), encoding="utf-8")


@pytest.mark.parametrize("form", FORMS)
def test_loading_takes_little_more_than_the_weights(form, translators, tmp_path):
    directories = [tmp_path / f"{size} {form}" for size in ("small", "large")]
    for translator, directory in zip(translators, directories, strict=True):
        write(translator, directory, form)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *directories],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert 1.0 <= float(done.stdout.split()[-1]) <= 1.5
