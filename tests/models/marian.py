"""Hugging Face's Marian with random weights, the same model as ours, and its conversion."""

import numpy as np
import torch
import transformers

from keras_transformer import Transformer

# The special ids of both; Marian starts its target with `bos`.
VOCAB, D_MODEL, HEADS, D_FF, LAYERS = 60, 32, 4, 48, 2
EOS, BOS, PAD = 0, 1, VOCAB - 1  # CTranslate2 drops the last, as no word of the target


def marian(seed):
    """A random Marian with weights so large that its outputs differ from input to input."""
    torch.manual_seed(seed)
    config = transformers.MarianConfig(
        vocab_size=VOCAB,
        decoder_vocab_size=VOCAB,
        d_model=D_MODEL,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=D_FF,
        decoder_ffn_dim=D_FF,
        activation_function="relu",
        max_position_embeddings=128,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        scale_embedding=True,
        init_std=0.15,
        share_encoder_decoder_embeddings=True,
        dropout=0.0,
    )
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layers" in name and name.endswith("weight") and "norm" not in name:
                weight.mul_(5.0)
            if name.endswith("bias"):
                weight.normal_(std=0.05)
        model.model.shared.weight[EOS] *= 2.0  # so that some outputs end
        model.model.shared.weight[BOS] = 0.0  # CTranslate2 starts Marian's outputs from zero
    return model


def ours():
    """Our model of the same sizes."""
    model = Transformer(
        VOCAB,
        num_layers=LAYERS,
        d_model=D_MODEL,
        num_heads=HEADS,
        d_ff=D_FF,
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
    )
    model.build()
    return model


def copy_weights(theirs, model):
    """Gives our model Marian's weights.

    Marian puts the sines of a position before its cosines, ours alternates them, so the features
    are in another order.
    """
    order = np.arange(D_MODEL).reshape(2, D_MODEL // 2).T.ravel()
    state = {name: value.detach().numpy() for name, value in theirs.state_dict().items()}
    for weight in model.weights:
        weight.assign(marian_weight(state, weight.path.split("/")[1:], weight.shape, order))


NAMES = {
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


def marian_weight(state, path, shape, order):
    """The weight of Marian's that belongs at `path` of ours."""
    if path[0] == "embedding":
        return state["model.shared.weight"][:, order]
    side, layer, part, sublayer, kind = path
    prefix = f"model.{side}.layers.{layer.split('_')[1]}"
    if part.endswith("residual"):
        suffix = "weight" if kind == "gamma" else "bias"
        return state[f"{prefix}.{NAMES[part]}.{suffix}"][order]
    inside = [] if part == "feed_forward" else [NAMES[part]]
    name = ".".join([prefix, *inside, NAMES[sublayer]])
    if kind == "bias":
        bias = state[f"{name}.bias"]
        writes = sublayer in ("attention_output", "outer")
        return bias[order] if writes else bias.reshape(shape)
    kernel = state[f"{name}.weight"].T  # -> (inputs, outputs)
    if sublayer in ("attention_output", "outer"):
        return kernel[:, order].reshape(shape)
    return kernel[order].reshape(shape)


def sources(seed, count, longest=10):
    """Random sources of 1 to `longest` tokens with `eos`, padded: int32 (count, longest + 1)."""
    random = np.random.default_rng(seed)
    ids = np.full((count, longest + 1), PAD, "int32")
    for row, length in enumerate(random.integers(1, longest + 1, count)):
        ids[row, :length] = random.integers(2, PAD, length)
        ids[row, length] = EOS
    return ids
