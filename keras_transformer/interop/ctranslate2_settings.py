"""What a CTranslate2 directory says of its model, as the arguments of a `Transformer`.

Settings are variables of one number beside the weights, and from version 6 on also a `config.json`.
Version 2 tells little: the sizes are those of the weights, and the kind of the model is its heads.
"""

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.interop.ctranslate2_file import CTranslate2File
from keras_transformer.interop.ctranslate2_form import (
    ACTIVATIONS,
    EMBEDDINGS,
    GATES,
    POSITIONS,
    PROJECTION,
    PROJECTION_BIAS,
    relative_bias,
)
from keras_transformer.interop.files import (
    checked_flag,
    checked_integer,
    checked_number,
    read_json,
    shown,
)
from keras_transformer.layers import (
    LearnedPositionalEncoding,
    PositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)

# Kinds of models, with the heads of those that do not say them.
HEADS = {"TransformerSpec": None, "TransformerBase": 8, "TransformerBig": 16}
CONFIG: dict[str, Any] = {
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "decoder_start_token": "<s>",
    "add_source_bos": False,
    "add_source_eos": False,
    "layer_norm_epsilon": None,  # NORM_EPSILON
}
NORM_EPSILON, RMS_NORM_EPSILON = 1e-5, 1e-6  # of a model that does not say it
SINUSOIDS: list[dict[str, Any]] = [
    {"layout": layout, "frequencies": frequencies, "first_position": first}
    for first in (0, 1, 2)
    for layout in ("interleaved", "halves")
    for frequencies in ("paper", "tensor2tensor")
]
SAME_SINUSOIDS = 2e-3  # stored in float16, or computed in float32 at large positions
# Variables of one number. Of these CTranslate2 reads no other when it translates.
READ = re.compile(
    r"(encoder|decoder)/(num_heads|pre_norm|activation|scale_embeddings|embeddings_merge|alibi|"
    r"start_from_zero_embedding|embeddings(_0)?/multiply_by_sqrt_depth|"
    r"layer_[0-9]+/(self_)?attention/(num_heads_kv|head_dim|queries_scale)|"
    r"layer_[0-9]+/self_attention/(rotary_[a-z_]+|relative_attention_max_distance))"
)
WITHOUT_EFFECT = re.compile(
    r"(encoder|decoder)/(multi_query_attention|alignment_layer|alignment_heads|scale_alibi|"
    r"alibi_use_positive_positions)"
)
OLD_CONFIG = re.compile(
    r"(unk|bos|eos|decoder_start)_token|with_(source|target)_(bos|eos)|user_decoder_start_tokens"
)


def read_config(directory: Path, file: CTranslate2File) -> dict[str, Any]:
    """Returns the settings of `CONFIG`: those of config.json, or of the variables of old files."""
    config = dict(CONFIG)
    path = directory / "config.json"
    if path.exists():
        given = read_json(path)
        config |= {name: given[name] for name in CONFIG if name in given}
    elif file.version >= 6:
        raise ValueError(
            f"{directory} must hold config.json. Received: none, with a model.bin of version "
            f"{file.version}"
        )
    else:
        for name in ("unk_token", "bos_token", "eos_token"):
            config[name] = old_text(file, name, config[name])
        start = config["bos_token" if setting(file, "with_target_bos", 1) else "eos_token"]
        config["decoder_start_token"] = old_text(file, "decoder_start_token", start)
        if setting(file, "user_decoder_start_tokens", 0):
            raise ValueError(
                f"{file.path}: `user_decoder_start_tokens` must be false, because a `Translator` "
                "starts each target from the same token. Received: true"
            )
        config["add_source_bos"] = bool(setting(file, "with_source_bos", 0))
        config["add_source_eos"] = bool(setting(file, "with_source_eos", 0))
    for name in ("add_source_bos", "add_source_eos"):
        checked_flag(path, name, config[name])
    if config["add_source_bos"]:
        raise ValueError(
            f"{directory}: `add_source_bos` must be false, because a `Translator` puts nothing "
            "before sources. Received: true"
        )
    if config["layer_norm_epsilon"] is not None:
        checked_number(path, "layer_norm_epsilon", config["layer_norm_epsilon"], 1e-12, 1)
    for name in ("unk_token", "bos_token", "eos_token", "decoder_start_token"):
        if not isinstance(config[name], str):
            raise ValueError(f"{path}: `{name}` must be a string. Received: {shown(config[name])}")
    return config


def old_text(file: CTranslate2File, name: str, default: str) -> str:
    """Returns a text that a variable holds as bytes."""
    if name not in file:
        return default
    if file[name].dtype != np.int8 or file[name].size > 1000:
        raise ValueError(f"{file.path}: {name} must be a text. Received: {file[name].shape}")
    return file.read(name).tobytes().decode("utf-8", "replace")


def setting(file: CTranslate2File, name: str, default: Any) -> Any:
    """Returns the number that a variable holds, `default` where there is no such variable."""
    if name not in file:
        return default
    if file[name].size != 1:
        raise ValueError(
            f"{file.path}: {name} must be one number. Received: shape={file[name].shape}"
        )
    return file.read(name).reshape(()).item()


def model_options(
    file: CTranslate2File, config: dict[str, Any], new_output: bool
) -> dict[str, Any]:
    """Returns the arguments of the `Transformer`, without those of vocabularies.

    Args:
        file: the variables.
        config: that of `read_config`.
        new_output: whether the output gets tokens that never come, by a bias.

    Raises:
        ValueError: with the name of a setting that a `Transformer` does not have.
    """
    if file.kind not in HEADS:
        raise ValueError(
            f"{file.path}: the model must be one of {', '.join(HEADS)}. "
            f"Received: {shown(file.kind)}"
        )
    refuse_settings(file)
    encoder, decoder = (side_options(file, side) for side in ("encoder", "decoder"))
    own = ("num_layers", "num_heads", "d_ff")
    for name, value in encoder.items():
        if name not in own and decoder[name] != value:
            raise ValueError(
                f"{file.path}: `{name}` must be the same in encoder and decoder. "
                f"Received: {value} and {decoder[name]}"
            )
    d_model = file[EMBEDDINGS["decoder"][0]].shape[1]
    epsilon = config["layer_norm_epsilon"]
    if epsilon is None:
        epsilon = RMS_NORM_EPSILON if encoder["rms_norm"] else NORM_EPSILON
    return {
        **{name: value for name, value in encoder.items() if name not in own},
        "d_model": d_model,
        "num_layers": encoder["num_layers"],
        "num_decoder_layers": decoder["num_layers"],
        "num_heads": encoder["num_heads"],
        "num_decoder_heads": decoder["num_heads"],
        "d_ff": encoder["d_ff"],
        "decoder_d_ff": decoder["d_ff"],
        "position": read_positions(file, d_model),
        "norm_epsilon": epsilon,
        "tie_output": same(file, EMBEDDINGS["decoder"][0], PROJECTION),
        "logits_bias": new_output or PROJECTION_BIAS in file,
    }


def refuse_settings(file: CTranslate2File) -> None:
    """Raises `ValueError` for a variable of one number that nothing here reads."""
    for name, stored in file.items():
        if stored.size == 1 and not stored.shape and not name.endswith("_scale"):
            known = READ.fullmatch(name) or WITHOUT_EFFECT.fullmatch(name)
            is_old = OLD_CONFIG.fullmatch(name) or name in file.old_settings
            if not known and not is_old:
                raise ValueError(
                    f"{file.path}: must not have the setting {name}, which a `Transformer` does "
                    f"not have. Received: {name}={setting(file, name, None)}"
                )


def side_options(file: CTranslate2File, side: str) -> dict[str, Any]:
    """Returns the arguments of one side, or raises `ValueError`."""
    count = 0
    while f"{side}/layer_{count}/ffn/linear_0/weight" in file:
        count += 1
    required = {
        next((name for name in EMBEDDINGS[side] if name in file), EMBEDDINGS[side][0]): 2,
        f"{side}/layer_0/ffn/linear_0/weight": 2,
        f"{side}/layer_0/self_attention/linear_0/weight": 2,
        f"{side}/layer_0/self_attention/layer_norm/gamma": 1,
    }
    for name, rank in required.items():
        if name not in file or len(file[name].shape) != rank or not file[name].size:
            found = file[name].shape if name in file else f"{len(file)} others"
            raise ValueError(f"{file.path}: must have {name}, of {rank} axes. Received: {found}")
    embeddings, inner = (file[name].shape for name in list(required)[:2])
    d_model, d_ff = embeddings[1], inner[0]
    heads = setting(file, f"{side}/num_heads", HEADS[file.kind] or 8)
    if heads < 1 or d_model % heads:
        raise ValueError(
            f"{file.path}: {side}/num_heads must divide the width {d_model}. Received: {heads}"
        )
    if setting(file, f"{side}/alibi", 0):
        raise ValueError(f"{file.path}: {side}/alibi must be 0. Received: 1")
    norm_first = bool(setting(file, f"{side}/pre_norm", f"{side}/layer_norm/gamma" in file))
    rms_norm = f"{side}/layer_0/self_attention/layer_norm/beta" not in file
    return {
        "num_layers": count,
        "num_heads": heads,
        "d_ff": d_ff,
        "norm_first": norm_first,
        "activation": read_activation(file, side),
        "scale_embeddings": is_scaled(file, side, d_model),
        "embedding_norm": f"{side}/layernorm_embedding/gamma" in file,
        "rms_norm": rms_norm,
        "num_key_value_heads": key_value_heads(file, side, heads, d_model // heads),
    }


def read_activation(file: CTranslate2File, side: str) -> str:
    """Returns the name of the activation of the feed-forward networks, or raises `ValueError`."""
    number = setting(file, f"{side}/activation", 0)
    gated = f"{side}/layer_0/ffn/linear_0_noact/weight" in file
    name = ACTIVATIONS.get(number)
    if name is None or (gated and name not in GATES):
        known = [n for n, name in ACTIVATIONS.items() if not gated or name in GATES]
        kind = "a gated network" if gated else "a network without a gate"
        raise ValueError(
            f"{file.path}: {side}/activation must be one of {', '.join(map(str, known))} of {kind}."
            f" Received: {number}"
        )
    return GATES[name] if gated else name


def is_scaled(file: CTranslate2File, side: str, d_model: int) -> bool:
    """Returns whether embeddings are multiplied by sqrt(d_model), or raises `ValueError`."""
    name = f"{side}/scale_embeddings"
    if name not in file:
        embeddings = next((n for n in EMBEDDINGS[side] if n in file), EMBEDDINGS[side][0])
        flag = embeddings.removesuffix("weight") + "multiply_by_sqrt_depth"
        return bool(setting(file, flag, 1))
    value = setting(file, name, 1)
    if file[name].dtype == np.int8:
        return bool(value)
    for scale, is_factor in ((1.0, False), (math.sqrt(d_model), True)):
        if math.isclose(value, scale, rel_tol=1e-3):
            return is_factor
    raise ValueError(f"{file.path}: {name} must be 1 or sqrt({d_model}). Received: {value}")


def key_value_heads(file: CTranslate2File, side: str, heads: int, key_dim: int) -> int | None:
    """Returns the heads of keys and values, None for as many as queries; or `ValueError`."""
    found = {}
    for name in attentions(file, side):
        count = setting(file, f"{name}/num_heads_kv", heads)
        found[name] = count
        if count < 1 or heads % count:
            raise ValueError(
                f"{file.path}: {name}/num_heads_kv must divide {heads}. Received: {count}"
            )
        scale = setting(file, f"{name}/queries_scale", key_dim**-0.5)
        if not math.isclose(scale, key_dim**-0.5, rel_tol=1e-3):
            raise ValueError(
                f"{file.path}: {name}/queries_scale must be 1 / sqrt({key_dim}). Received: {scale}"
            )
        size = setting(file, f"{name}/head_dim", key_dim)
        if size != key_dim:
            raise ValueError(f"{file.path}: {name}/head_dim must be {key_dim}. Received: {size}")
    if len(set(found.values())) > 1:
        raise ValueError(
            f"{file.path}: num_heads_kv must be the same in all attentions. "
            f"Received: {shown(found)}"
        )
    count = next(iter(found.values()))
    return None if count == heads else count


def attentions(file: CTranslate2File, side: str) -> Iterable[str]:
    """Gives the names of the attentions of a side."""
    parts = ("self_attention",) if side == "encoder" else ("self_attention", "attention")
    count = 0
    while f"{side}/layer_{count}/ffn/linear_0/weight" in file:
        yield from (f"{side}/layer_{count}/{part}" for part in parts)
        count += 1


def read_positions(file: CTranslate2File, d_model: int) -> Any:
    """Returns the positions, or raises `ValueError` where encoder and decoder have others."""
    found = [side_position(file, side, d_model) for side in ("encoder", "decoder")]
    configs = [(type(position), {**position.get_config(), "name": None}) for position in found]
    if configs[0] != configs[1]:
        raise ValueError(
            f"{file.path}: positions must be of one kind and length in encoder and decoder. "
            f"Received: {shown([position_words(position) for position in found])}"
        )
    return found[0]


def position_words(position: Any) -> str:
    """Returns a position in words."""
    length = getattr(position, "max_length", None)
    return type(position).__name__ + (f" of {length}" if length else "")


def side_position(file: CTranslate2File, side: str, d_model: int) -> Any:
    """Returns the positions of one side."""
    if relative_bias(side, 0) in file:
        return read_relative_positions(file, side)
    rotary = {read_rotary(file, name) for name in attentions(file, side) if "self" in name}
    if rotary != {None}:
        if len(rotary) > 1:
            raise ValueError(
                f"{file.path}: rotary_dim and its like must be the same in all layers of the "
                f"{side}. Received: {shown(rotary)}"
            )
        base, factor = rotary.pop() or (10000.0, 1.0)
        scaling = "linear" if factor != 1 else None
        return RotaryPositionalEncoding(base, scaling=scaling, factor=factor)
    name = f"{side}/{POSITIONS}"
    if name not in file:
        return PositionalEncoding(layout="halves", frequencies="tensor2tensor", first_position=1)
    shape = file[name].shape
    if len(shape) != 2 or shape[1] != d_model or shape[0] < 2:
        raise ValueError(
            f"{file.path}: {name} must be (positions, {d_model}), with 2 positions or more. "
            f"Received: shape={shape}"
        )
    table = file.read_float32(name)
    return recognize_sinusoids(table) or LearnedPositionalEncoding(shape[0])


def recognize_sinusoids(table: np.ndarray) -> PositionalEncoding | None:
    """Returns the positions whose rows a table has, or None."""
    length, d_model = table.shape
    for options in SINUSOIDS:
        if options["frequencies"] == "tensor2tensor" and (d_model < 4 or d_model % 2):
            continue
        position = PositionalEncoding(**options)
        position.build((None, None, d_model))
        for begin in range(0, length, 1024):
            part = table[begin : begin + 1024]
            rows = position.rows(np.arange(begin, begin + len(part)))
            if not np.abs(rows - part).max() <= SAME_SINUSOIDS:
                break
        else:
            return PositionalEncoding(**options)
    return None


def read_relative_positions(file: CTranslate2File, side: str) -> RelativePositionBias:
    """Returns the positions of T5, or raises `ValueError` where a layer has others."""
    names = [name for name in attentions(file, side) if "self" in name]
    first = relative_bias(side, 0)
    distance = setting(file, f"{names[0]}/relative_attention_max_distance", 128)
    # A layer has a table of so many numbers.
    checked_integer(file.path, f"{side} relative_attention_max_distance", distance, 1, 2**16)
    for layer, name in enumerate(names):
        bias = relative_bias(side, layer)
        own = setting(file, f"{name}/relative_attention_max_distance", 128)
        if bias not in file or not same(file, first, bias) or own != distance:
            raise ValueError(
                f"{file.path}: {bias} and its distance must be those of layer 0, since one "
                "`RelativePositionBias` serves all layers. Received: others"
            )
    shape = file[first].shape
    if len(shape) != 2 or not shape[0]:
        raise ValueError(f"{file.path}: {first} must have 2 axes. Received: shape={shape}")
    try:
        return RelativePositionBias(shape[0], distance)
    except ValueError as error:
        raise ValueError(f"{file.path}: {first}: {error}") from None


def read_rotary(file: CTranslate2File, attention: str) -> tuple[float, float] | None:
    """Returns the base and the factor of a rotary attention, None for another; `ValueError`."""
    prefix = f"{attention}/rotary_"
    given = {name.removeprefix(prefix) for name in file if name.startswith(prefix)}
    if "dim" not in given:
        return None
    key_dim = file[f"{attention}/linear_1/weight"].shape[1] // setting(
        file, f"{attention.split('/')[0]}/num_heads", HEADS[file.kind] or 8
    )
    must_be = {"dim": (0, key_dim), "interleave": (0,), "scaling_type": (-1, 0)}
    for name, values in must_be.items():
        value = setting(file, f"{prefix}{name}", 1 if name == "interleave" else values[0])
        if value not in values:
            rule = " or ".join(map(str, values))
            raise ValueError(f"{file.path}: {prefix}{name} must be {rule}. Received: {value}")
    if others := given - {*must_be, "base", "scaling_factor"}:
        raise ValueError(
            f"{file.path}: must not have {prefix}{min(others)}. Received: {len(file)} variables"
        )
    factor = setting(file, f"{prefix}scaling_factor", 1.0) if "scaling_type" in given else 1.0
    return setting(file, f"{prefix}base", 10000.0), factor


def same(file: CTranslate2File, one: str, other: str) -> bool:
    """Returns whether two variables are one, or hold the same."""
    if one not in file or other not in file:
        return False
    if file[one] == file[other]:
        return True
    if file[one].shape != file[other].shape or file[one].dtype != file[other].dtype:
        return False
    pairs = [(one, other)]
    pairs += [(f"{one}_scale", f"{other}_scale")] if f"{one}_scale" in file else []
    return all(np.array_equal(file.read(a), file.read(b)) for a, b in pairs if b in file)
