"""Compares the log-probabilities of `load_marian` with those of Marian's own decoder.

    python3.11 -m venv VENV
    VENV/bin/pip install pymarian==1.12.42 sentencepiece
    python -m benchmarks.marian --python VENV/bin/python

Models with random weights are written as Marian's files. Marian translates random texts with each,
greedily, and says the log-probability of each token. Here the model of `load_marian` scores the
same tokens. The table has the number of tokens. It also has the largest difference of their
log-probabilities, at the first token of the outputs and at the later ones.

Marian runs in a process of its own, on one processor. What is written stays in `--output`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

WORDS = [f"w{number}" for number in range(40)]
TOKENS = ["</s>", "<unk>", *WORDS]
NUM_TEXTS, LONGEST = 40, 12
D_MODEL, D_FF = 64, 96
SETTINGS = {
    "type": "transformer",
    "version": "v1.12.0 65bf82f 2023-02-21 09:56:29 -0800",
    "dim-emb": D_MODEL,
    "dim-vocabs": [len(TOKENS), len(TOKENS)],
    "enc-depth": 2,
    "dec-depth": 2,
    "transformer-heads": 4,
    "transformer-dim-ffn": D_FF,
    "transformer-decoder-dim-ffn": 0,
    "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": 0,
    "transformer-ffn-activation": "swish",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-no-bias": False,
    "transformer-no-affine": False,
    "transformer-rnn-projection": False,
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "transformer-depth-scaling": False,
    "transformer-pool": False,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-guided-alignment-layer": "last",
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "tied-embeddings-all": True,
    "lemma-dim-emb": 0,
    "lemma-dependency": "",
    "factors-combine": "sum",
    "factors-dim-emb": 0,
    "input-types": [],
    "layer-normalization": False,
    "right-left": False,
    "skip": False,
    "ulr": False,
    "ulr-dim-emb": 0,
    "ulr-trainable-transformation": False,
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "enc-type": "bidirectional",
    "dec-cell": "gru",
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "dim-rnn": 1024,
    "bert-train-type-embeddings": True,
    "bert-type-vocab-size": 2,
    "output-omit-bias": False,
}
NORMS_FIRST = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}
MODELS = {
    "norms last, swish, all tied": {},
    "norms last, relu": {"transformer-ffn-activation": "relu"},
    "norms last, four layers and one": {"enc-depth": 4, "dec-depth": 1},
    "norms last, untied": {"tied-embeddings-all": False},
    "norms first": NORMS_FIRST,
}
# Read by the other Python: it knows neither this file nor this package.
THEIRS = """
import json, sys
import pymarian
folder = sys.argv[1]
texts = json.load(open(f"{folder}/texts.json"))
options = (
    f"-m {folder}/model.npz -v {folder}/vocab.yml {folder}/vocab.yml --beam-size 1 --n-best "
    "--word-scores --normalize 0 --max-length-factor 2 --mini-batch 1 --maxi-batch 1 "
    "--cpu-threads 1 --quiet --quiet-translation"
)
print(json.dumps(pymarian.Translator(options).translate(texts)))
"""


def main():
    """Writes each model, asks Marian, and prints a row of the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="a Python with pymarian")
    parser.add_argument("--output", type=Path, help="a directory; default: a temporary one")
    args = parser.parse_args()
    folder = args.output or Path(tempfile.mkdtemp())
    print("| model | tokens | first token | later tokens |\n|---|---|---|---|", flush=True)
    for seed, (name, changes) in enumerate(MODELS.items()):
        directory = folder / f"model-{seed}"
        texts = write_model(directory, {**SETTINGS, **changes}, seed)
        outputs = ask_marian(args.python, directory)
        count, first, later = compare(directory, texts, outputs)
        print(f"| {name} | {count:,} | {first:.1e} | {later:.1e} |", flush=True)


def write_model(directory, settings, seed):
    """Writes Marian's files of a model with random weights; returns texts to translate."""
    random = np.random.default_rng(seed)
    directory.mkdir(parents=True, exist_ok=True)
    text = format_yaml(settings).encode() + b"\0"
    arrays = random_arrays(settings, random)
    np.savez(
        directory / "model.npz", **arrays, **{"special:model.yml": np.frombuffer(text, "int8")}
    )
    lines = [f"{json.dumps(token)}: {index}\n" for index, token in enumerate(TOKENS)]
    (directory / "vocab.yml").write_text("".join(lines), encoding="utf-8")
    decoder = {"models": ["model.npz"], "vocabs": ["vocab.yml"] * 2, "beam-size": 1}
    (directory / "decoder.yml").write_text(format_yaml(decoder), encoding="utf-8")
    lengths = random.integers(1, LONGEST + 1, NUM_TEXTS)
    texts = [" ".join(random.choice(WORDS, length)) for length in lengths]
    (directory / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    return texts


def format_yaml(settings):
    """The text of settings, as Marian reads it."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())


def random_arrays(settings, random):
    """Random weights by Marian's names, so large that outputs differ from text to text."""
    arrays = {}

    def weight(name, *shape, scale=1.7):
        arrays[name] = (random.normal(size=shape) * scale / shape[0] ** 0.5).astype("float32")

    def vector(name, size, mean=0.0):
        arrays[name] = (mean + random.normal(size=(1, size)) / 5).astype("float32")

    norms_first = settings["transformer-preprocess"] == "n"
    for side, depth in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        parts = ("self",) if side == "encoder" else ("self", "context")
        for layer in range(1, settings[depth] + 1):
            start = f"{side}_l{layer}"
            for part in parts:
                for letter in "qkvo":
                    weight(f"{start}_{part}_W{letter}", D_MODEL, D_MODEL)
                    vector(f"{start}_{part}_b{letter}", D_MODEL)
            weight(f"{start}_ffn_W1", D_MODEL, D_FF)
            weight(f"{start}_ffn_W2", D_FF, D_MODEL)
            vector(f"{start}_ffn_b1", D_FF)
            vector(f"{start}_ffn_b2", D_MODEL)
            for norm in (*(f"{part}_Wo" for part in parts), "ffn_ffn"):
                suffix = "_pre" if norms_first else ""
                vector(f"{start}_{norm}_ln_scale{suffix}", D_MODEL, mean=1.0)
                vector(f"{start}_{norm}_ln_bias{suffix}", D_MODEL)
        if norms_first:
            vector(f"{side}_top_ln_scale", D_MODEL, mean=1.0)
            vector(f"{side}_top_ln_bias", D_MODEL)
    if settings["tied-embeddings-all"]:
        weight("Wemb", len(TOKENS), D_MODEL)
    else:
        weight("encoder_Wemb", len(TOKENS), D_MODEL)
        weight("decoder_Wemb", len(TOKENS), D_MODEL)
        weight("decoder_ff_logit_out_W", D_MODEL, len(TOKENS))
    vector("decoder_ff_logit_out_b", len(TOKENS))
    arrays["decoder_ff_logit_out_b"][0, 0] += 1.5  # so that outputs end, at various lengths
    return arrays


def ask_marian(python, directory):
    """Returns the (words, log-probabilities) of Marian's translations; the end is the last."""
    command = [str(python), "-c", THEIRS, str(directory)]
    # The other Python must not see this package.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
    if done.returncode:
        sys.exit(f"{python}: {done.stderr[-2000:]}")
    found = []
    for line in json.loads(done.stdout.splitlines()[-1]):
        _, words, scores, *_ = line.split(" ||| ")
        numbers = [float(number) for number in scores.removeprefix("WordScores=").split()]
        found.append((words.split(), numbers))
    return found


def compare(directory, texts, outputs):
    """Returns the number of tokens, and the largest differences of first and of later ones."""
    from keras import ops

    from keras_transformer.interop import load_marian

    translator = load_marian(directory, tokenization="words", jit_compile=False)
    count, first, later = 0, 0.0, 0.0
    for text, (words, numbers) in zip(texts, outputs, strict=True):
        sides = (
            [*tokenizer.tokenize([side])[0].numpy(), tokenizer.eos_id]
            for tokenizer, side in (
                (translator.source_tokenizer, text),
                (translator.target_tokenizer, " ".join(words)),
            )
        )
        source, target = (np.array([ids], "int32") for ids in sides)
        scored = translator.model.score(source, target)
        ours = ops.convert_to_numpy(scored.token_log_probs)[0][: len(numbers)]
        differences = np.abs(ours - np.array(numbers))
        count += len(numbers)
        first = max(first, differences[0])
        later = max(later, *differences[1:], 0.0)
    return count, first, later


if __name__ == "__main__":
    main()
