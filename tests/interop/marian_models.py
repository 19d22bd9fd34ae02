"""Small models of Marian with random weights, in its own files.

Sizes are different primes, or times the number of heads, where they can be.
"""

import json

import numpy as np

LETTERS = ["a", "b", "c", "d", "e", "f", "g"]
TOKENS = ["</s>", "<unk>", *LETTERS]
D_MODEL, HEADS, D_FF = 24, 4, 34
SETTINGS = {
    "type": "transformer",
    "enc-depth": 2,
    "dec-depth": 1,
    "dim-emb": D_MODEL,
    "transformer-heads": HEADS,
    "transformer-dim-ffn": D_FF,
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-postprocess-emb": "d",
    "transformer-guided-alignment-layer": "last",
    "transformer-train-position-embeddings": False,
    "transformer-tied-layers": [],
    "transformer-dropout": 0.1,
    "dim-vocabs": [len(TOKENS), len(TOKENS)],
    "version": "v1.12.0 65bf82f",
}
PRE_NORM = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
    "transformer-ffn-activation": "relu",
}


def yaml_of(settings):
    """The text of settings, as Marian writes it."""
    lines = []
    for name, value in settings.items():
        if isinstance(value, list):
            lines += [f"{name}:", *([f"  - {item}" for item in value] or ["  []"])]
        elif isinstance(value, str):
            lines.append(f"{name}: {value or chr(34) * 2}")
        else:
            lines.append(f"{name}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def arrays_of(settings, sizes, tying="all", seed=0):
    """Random weights of a model with these settings, by Marian's names."""
    random = np.random.default_rng(seed)
    arrays = {}

    def weight(name, *shape):
        values = random.normal(size=shape) * 1.7 / np.sqrt(shape[0])
        arrays[name] = values.astype("float32")

    def vector(name, size, mean=0.0):
        arrays[name] = (mean + random.normal(size=(1, size)) / 5).astype("float32")

    pre = settings["transformer-preprocess"] == "n"
    for side, depth in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        for layer in range(1, settings[depth] + 1):
            start = f"{side}_l{layer}"
            for part in ("self",) if side == "encoder" else ("self", "context"):
                for letter in "qkvo":
                    weight(f"{start}_{part}_W{letter}", D_MODEL, D_MODEL)
                    vector(f"{start}_{part}_b{letter}", D_MODEL)
            weight(f"{start}_ffn_W1", D_MODEL, D_FF)
            vector(f"{start}_ffn_b1", D_FF)
            weight(f"{start}_ffn_W2", D_FF, D_MODEL)
            vector(f"{start}_ffn_b2", D_MODEL)
            norms = ["self_Wo", "ffn_ffn"] + ["context_Wo"] * (side == "decoder")
            for norm in norms:
                for kind, mean in (("scale", 1.0), ("bias", 0.0)):
                    vector(f"{start}_{norm}_ln_{kind}{'_pre' * pre}", D_MODEL, mean)
        for name, suffix in ((f"{side}_top", ""), (f"{side}_emb", "_pre")):
            emb = "emb" in name and "n" in settings["transformer-postprocess-emb"]
            if emb or ("top" in name and pre):
                vector(f"{name}_ln_scale{suffix}", D_MODEL, 1.0)
                vector(f"{name}_ln_bias{suffix}", D_MODEL)
    if tying == "all":
        weight("Wemb", sizes[0], D_MODEL)
    else:
        weight("encoder_Wemb", sizes[0], D_MODEL)
        weight("decoder_Wemb", sizes[1], D_MODEL)
    if tying == "none":
        weight("decoder_ff_logit_out_W", D_MODEL, sizes[1])
    if tying == "transposed":
        weight("decoder_ff_logit_out_Wt", sizes[1], D_MODEL)
    for name in ("Wemb", "encoder_Wemb", "decoder_Wemb"):
        if name in arrays:
            arrays[name] *= np.float32(0.3)
    vector("decoder_ff_logit_out_b", sizes[1])
    return arrays


def write_model(path, settings, arrays, **more):
    text = yaml_of(settings).encode() + b"\0"
    np.savez(path, **arrays, **more, **{"special:model.yml": np.frombuffer(text, "int8")})


def write_marian(directory, settings=(), decoder=(), vocabularies=2 * [TOKENS], **options):
    """Writes Marian's files, and the arrays that they hold."""
    settings = {**SETTINGS, **dict(settings)}
    arrays = arrays_of(settings, [len(tokens) for tokens in vocabularies], **options)
    directory.mkdir(exist_ok=True)
    write_model(directory / "model.npz", settings, arrays)
    names = ["vocab.yml", "vocab.yml"]
    if vocabularies[0] != vocabularies[1]:
        names = ["source.yml", "target.yml"]
    for name, tokens in zip(names, vocabularies, strict=True):
        lines = [f"{token}: {index}\n" for index, token in enumerate(tokens)]
        (directory / name).write_text("".join(lines), encoding="utf-8")
    decoder = {"models": ["model.npz"], "vocabs": names, "beam-size": 6, **dict(decoder)}
    (directory / "decoder.yml").write_text(yaml_of(decoder), encoding="utf-8")
    return arrays
