"""Random models of Hugging Face's own classes, with real tokenizer files, saved in directories."""

import json
import shutil

import numpy as np
import torch
import transformers

KINDS = {
    "marian": (transformers.MarianConfig, transformers.MarianMTModel),
    "pegasus": (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration),
    "m2m_100": (transformers.M2M100Config, transformers.M2M100ForConditionalGeneration),
}
SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 256,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "init_std": 0.15,
}


def random_model(kind="marian", seed=0, scale=5.0, **settings):
    """A model whose weights are so large that outputs differ from input to input."""
    torch.manual_seed(seed)
    config_class, model_class = KINDS[kind]
    model = model_class(config_class(**{**SIZES, **settings})).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layers" in name and name.endswith("weight") and "norm" not in name:
                weight.mul_(scale)
            if "embed_tokens" in name or "shared" in name:
                weight.mul_(1.0 if model.config.scale_embedding else 4.0)
            if name.endswith("bias") or "norm" in name:
                weight.add_(torch.randn_like(weight) * 0.1)
        table = model.get_output_embeddings().weight
        table[model.config.eos_token_id] *= 1.1  # so that some outputs end
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.1)
    return model


def save(model, directory, tokenizer_files=None, **generation):
    """Writes the model with settings of its search, and the files of its tokenizer."""
    model.save_pretrained(directory)
    path = directory / "generation_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings |= {"forced_eos_token_id": None, **generation}
    path.write_text(json.dumps(settings), encoding="utf-8")
    for name, content in (tokenizer_files or {}).items():
        if isinstance(content, bytes):
            (directory / name).write_bytes(content)
        elif isinstance(content, (dict, list)):
            (directory / name).write_text(json.dumps(content), encoding="utf-8")
        else:
            shutil.copy(content, directory / name)
    return directory


def random_ids(model, seed=0, rows=6, longest=9, targets=False):
    """Padded source ids with the end of each, or targets that begin with the start."""
    config = model.config
    random = np.random.default_rng(seed)
    size = config.vocab_size
    if targets:
        size = getattr(config, "decoder_vocab_size", None) or size
    special = {config.pad_token_id, config.eos_token_id, config.decoder_start_token_id}
    words = [token for token in range(size) if token not in special]
    ids = np.full((rows, longest + 1), config.pad_token_id, "int32")
    for row, length in zip(ids, random.integers(1, longest + 1, rows), strict=True):
        content = random.choice(words, length)
        if targets:
            row[: length + 1] = [config.decoder_start_token_id, *content]
        else:
            row[: length + 1] = [*content, config.eos_token_id]
    return ids
