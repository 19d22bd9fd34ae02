"""How Hugging Face writes a model of ours: its settings in config.json, its weights by name.

Three families fit: Marian normalises after each sub-layer, Pegasus before, and M2M100 before with
positions of its own. NLLB is an M2M100.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_transformer.interop.files import (
    MAX_RATE,
    checked_flag,
    checked_integer,
    checked_number,
    shown,
)
from keras_transformer.layers import PositionalEncoding
from keras_transformer.models import Transformer

CONFIG = "config.json"
NORM_EPSILON = 1e-5  # that of PyTorch's LayerNorm, which no configuration changes
# Hugging Face's names of activations that Keras computes alike.
ACTIVATIONS = {"relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu", "tanh": "tanh"}


@dataclasses.dataclass(frozen=True)
class Family:
    """What all models of a `model_type` have in common, and its configuration's defaults."""

    model_type: str
    model_class: str
    norm_first: bool
    has_logits_bias: bool
    frequencies: str = "paper"
    scale_embedding: bool = False

    def position(self, pad_id: int) -> PositionalEncoding:
        """The positions of its models; those of M2M100 count from `pad_id + 1`."""
        first = pad_id + 1 if self.frequencies == "tensor2tensor" else 0
        return PositionalEncoding(
            layout="halves", frequencies=self.frequencies, first_position=first
        )


MARIAN = Family("marian", "MarianMTModel", norm_first=False, has_logits_bias=True)
PEGASUS = Family("pegasus", "PegasusForConditionalGeneration", True, has_logits_bias=True)
M2M100 = Family(
    "m2m_100",
    "M2M100ForConditionalGeneration",
    norm_first=True,
    has_logits_bias=False,
    frequencies="tensor2tensor",
    scale_embedding=True,
)
FAMILIES = {family.model_type: family for family in (MARIAN, PEGASUS, M2M100)}
# Settings that change what a model computes, and the only value that ours computes. Configurations
# of old files have them; a missing one has this value. Old files also have `add_bias_logits` and
# `extra_pos_embeddings`, which change nothing: the classes always have the bias, and sinusoids are
# not moved.
FIXED = {
    "normalize_embedding": False,
    "static_position_embeddings": True,
    "do_blenderbot_90_layernorm": False,
    "is_encoder_decoder": True,
}
SIZES = (
    *("vocab_size", "d_model", "encoder_layers", "decoder_layers"),
    *("encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim"),
)
DROPOUTS = {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0}
FLAGS = {"tie_word_embeddings": True, "share_encoder_decoder_embeddings": True}


def find_family(config: Mapping[str, Any]) -> Family:
    """Returns the family of a configuration, or raises `ValueError`."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise ValueError(
            f"config.json: `model_type` must be one of {', '.join(FAMILIES)}. "
            f"Received: {shown(kind)}"
        )
    return FAMILIES[kind]


def make_model(config: Mapping[str, Any], dtype: Any = None) -> Transformer:
    """Returns the model of a configuration, not built yet, or raises `ValueError`."""
    family = find_family(config)
    fixed = {**FIXED, "normalize_before": family.norm_first}
    fixed["add_final_layer_norm"] = family.norm_first
    for name, value in fixed.items():
        if config.get(name, value) is not value:
            raise ValueError(
                f"config.json: `{name}` must be {value}. Received: {shown(config[name])}"
            )
    activation = config.get("activation_function", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(
            f"config.json: `activation_function` must be one of {', '.join(ACTIVATIONS)}. "
            f"Received: {shown(activation)}"
        )
    sizes = read_sizes(config)
    rates = {
        name: checked_number(CONFIG, name, config.get(name, rate), 0, MAX_RATE)
        for name, rate in DROPOUTS.items()
    }
    flags = {**FLAGS, "scale_embedding": family.scale_embedding}
    flags = {name: checked_flag(CONFIG, name, config.get(name, on)) for name, on in flags.items()}
    pad_id, eos_id = (token_id(config, name) for name in ("pad_token_id", "eos_token_id"))
    bos_id = token_id(config, "decoder_start_token_id")
    tied = flags["tie_word_embeddings"]
    # From version 5 on a model that is not tied shares nothing, whatever the other setting says.
    joint = flags["share_encoder_decoder_embeddings"] and (tied or major_version(config) < 5)
    size = sizes["vocab_size"]
    target = config.get("decoder_vocab_size")
    target = size if target is None else target
    checked_integer(CONFIG, "decoder_vocab_size", target, least=1)
    vocabularies: dict[str, Any] = {"vocab_size": size}
    if not joint:
        vocabularies = {"source_vocab_size": size, "target_vocab_size": target}
    return Transformer(
        **vocabularies,
        d_model=sizes["d_model"],
        num_layers=sizes["encoder_layers"],
        num_decoder_layers=sizes["decoder_layers"],
        num_heads=sizes["encoder_attention_heads"],
        num_decoder_heads=sizes["decoder_attention_heads"],
        d_ff=sizes["encoder_ffn_dim"],
        decoder_d_ff=sizes["decoder_ffn_dim"],
        dropout=rates["dropout"],
        attention_dropout=rates["attention_dropout"],
        feed_forward_dropout=rates["activation_dropout"],
        norm_first=family.norm_first,
        activation=ACTIVATIONS[activation],
        pad_id=pad_id,
        bos_id=bos_id,
        eos_id=eos_id,
        position=family.position(pad_id),
        scale_embeddings=flags["scale_embedding"],
        tie_output=tied,
        logits_bias=family.has_logits_bias,
        norm_epsilon=NORM_EPSILON,
        dtype=dtype,
    )


def read_sizes(config: Mapping[str, Any]) -> dict[str, int]:
    """Returns the sizes of a configuration by name, or raises `ValueError`."""
    sizes = {name: checked_integer(CONFIG, name, config.get(name), least=1) for name in SIZES}
    for side in ("encoder", "decoder"):
        if sizes["d_model"] % sizes[f"{side}_attention_heads"]:
            raise ValueError(
                f"config.json: `{side}_attention_heads` must divide `d_model`, {sizes['d_model']}. "
                f"Received: {side}_attention_heads={sizes[f'{side}_attention_heads']}"
            )
    return sizes


def major_version(config: Mapping[str, Any]) -> int:
    """Returns the first number of the version of transformers that wrote a file; 4 for none."""
    version = config.get("transformers_version")
    found = re.match(r"[0-9]{1,4}", version) if isinstance(version, str) else None
    return int(found[0]) if found else 4


def token_id(config: Mapping[str, Any], name: str) -> int:
    """Returns the single id of a setting, or raises `ValueError`."""
    value = config.get(name)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    return checked_integer(CONFIG, name, value)


PARTS = {
    "attention": "self_attn",
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "attention_residual": "self_attn_layer_norm",
    "self_attention_residual": "self_attn_layer_norm",
    "cross_attention_residual": "encoder_attn_layer_norm",
    "feed_forward_residual": "final_layer_norm",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "attention_output": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
}
WHOLE = {
    "embedding/embedding/embeddings": "model.shared.weight",
    "source_embedding/embedding/embeddings": "model.encoder.embed_tokens.weight",
    "target_embedding/embedding/embeddings": "model.decoder.embed_tokens.weight",
    "embedding/embedding/reverse_embeddings": "lm_head.weight",
    "target_embedding/embedding/reverse_embeddings": "lm_head.weight",
    "embedding/logits_bias": "final_logits_bias",
    "target_embedding/logits_bias": "final_logits_bias",
    "encoder/final_norm/gamma": "model.encoder.layer_norm.weight",
    "encoder/final_norm/beta": "model.encoder.layer_norm.bias",
    "decoder/final_norm/gamma": "model.decoder.layer_norm.weight",
    "decoder/final_norm/beta": "model.decoder.layer_norm.bias",
}
# Weights of their files that hold nothing of their own: tables of positions, and copies.
COPIES = re.compile(
    r"model\.(encoder|decoder)\.embed_positions\.weights?|lm_head\.weight|final_logits_bias|"
    r"model\.(encoder|decoder)\.embed_tokens\.weight|model\.shared\.weight"
)
# The other names of a table that is tied. One that is a weight of its own is none of these.
TIED = {
    "model.shared.weight": (
        *("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
        "lm_head.weight",
    ),
    "model.decoder.embed_tokens.weight": ("lm_head.weight",),
}


def convert_name(name: str) -> str:
    """Returns Hugging Face's name of a weight."""
    if name in WHOLE:
        return WHOLE[name]
    side, layer, *parts, kind = name.split("/")
    inside = [PARTS[part] for part in parts if part not in ("feed_forward", "norm")]
    ending = "bias" if kind in ("bias", "beta") else "weight"
    return ".".join(["model", side, "layers", layer.removeprefix("layer_"), *inside, ending])


def to_theirs(name: str, values: np.ndarray) -> np.ndarray:
    """Returns a weight of ours in their form: matrices are (outputs, inputs)."""
    if name.endswith("logits_bias"):
        return values[None]
    return values.T if name.endswith(("kernel", "reverse_embeddings")) else values


def to_ours(name: str, values: np.ndarray) -> np.ndarray:
    """Returns a weight of theirs in our form."""
    if name.endswith("logits_bias"):
        return values[0]
    return values.T if name.endswith(("kernel", "reverse_embeddings")) else values
