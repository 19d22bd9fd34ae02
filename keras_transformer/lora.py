"""Low-rank changes of the matrices of a model, trained in their place."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_transformer import arguments
from keras_transformer.layers.token_embedding import TokenEmbedding

__all__ = ["enable_lora", "merge_lora"]

MATRICES = (keras.layers.Dense, keras.layers.EinsumDense)


def enable_lora(
    model: keras.Model,
    rank: int,
    alpha: float | None = None,
    names: Sequence[str] = ("query", "value"),
    embeddings: bool = False,
) -> int:
    """Trains a low-rank change of some matrices of a model, and freezes everything else.

    `W' = W + alpha / rank * A @ B`, with A of `rank` columns and B of `rank` rows; B starts at 0,
    so that the model starts as it was.

    Args:
        model: a built model, such as a `Transformer`. Compile it after this call.
        rank: number of columns of A.
        alpha: scale of the change; `rank` when None.
        names: the names of the matrices: "query", "key", "value" and "attention_output" of each
            attention, "inner", "gate" and "outer" of each feed-forward network.
        embeddings: whether each `TokenEmbedding` is trained whole, its logits bias too. The new
            pieces of `interop.resize_vocabulary` need it.

    Returns:
        The number of matrices that change.

    Raises:
        ValueError: when the model is not built, has no matrix of such a name, or has LoRA already.

    Reference: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.

    Example:

    >>> import math
    >>> from keras_transformer import Transformer
    >>> model = Transformer(vocab_size=50, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    >>> model.build()
    >>> enable_lora(model, rank=2)
    6
    >>> sum(math.prod(weight.shape) for weight in model.trainable_weights)
    480
    """
    rank = arguments.positive_integer("rank", rank)
    if not model.built:
        raise ValueError("the model must be built: call `model.build()`. Received: one that is not")
    if has_lora(model):
        raise ValueError("the model must have no LoRA yet. Received: one with `lora_kernel_a`")
    chosen = [layer for layer in list_matrices(model) if layer.name in names]
    if not chosen:
        known = ", ".join(sorted({layer.name for layer in list_matrices(model)}))
        raise ValueError(f"`names` must be some of {known}. Received: names={tuple(names)!r}")
    embeddings = arguments.boolean("embeddings", embeddings)
    model.trainable = True
    for weight in model.trainable_weights:
        weight.trainable = False
    for layer in chosen:
        layer.enable_lora(rank, lora_alpha=alpha)
    whole = [layer for layer in model._flatten_layers() if isinstance(layer, TokenEmbedding)]
    for weight in [weight for layer in whole if embeddings for weight in layer.weights]:
        weight.trainable = True
    return len(chosen)


def merge_lora(model: keras.Model) -> keras.Model:
    """Returns a model without LoRA that computes the same: each matrix holds its change.

    Args:
        model: a model, with or without LoRA; it stays as it is.

    Returns:
        A new model of the same class and configuration, all of it trainable.

    Raises:
        ValueError: when Keras has quantized the model.

    Example:

    >>> from keras_transformer import Transformer
    >>> model = Transformer(vocab_size=50, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    >>> model.build()
    >>> _ = enable_lora(model, rank=2)
    >>> len(model.weights) - len(merge_lora(model).weights)
    12
    """
    if any(getattr(layer, "quantization_mode", None) for layer in list_matrices(model)):
        raise ValueError("the model must not be quantized: merge it before. Received: one that is")
    merged = type(model).from_config(model.get_config())
    merged.build()
    effective = {id(layer._kernel): layer.kernel for layer in list_matrices(model)}
    plain = [weight for weight in model.weights if "lora_kernel_" not in weight.name]
    for own, theirs in zip(merged.weights, plain, strict=True):
        own.assign(effective.get(id(theirs), theirs))
    return merged


def has_lora(model: keras.Model) -> bool:
    """Whether a matrix of the model has a low-rank change."""
    return any(getattr(layer, "lora_enabled", False) for layer in model._flatten_layers())


def list_matrices(model: keras.Model) -> list[Any]:
    """The layers of a model that multiply by one matrix."""
    return [layer for layer in model._flatten_layers() if isinstance(layer, MATRICES)]
