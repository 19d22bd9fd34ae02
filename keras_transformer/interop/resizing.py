"""Gives a trained model another vocabulary, with what it knows of the old one."""

import warnings
from collections.abc import Collection, Sequence

import numpy as np

from keras_transformer.interop.weights import assign_weights, read_weights
from keras_transformer.models import Transformer
from keras_transformer.serving import Translator
from keras_transformer.text.piece_ids import SPECIAL
from keras_transformer.text.sentencepiece_library import SPACE_MARK
from keras_transformer.text.tokenizer import Tokenizer


def resize_vocabulary(
    translator: Translator,
    tokenizer: Tokenizer,
    target_tokenizer: Tokenizer | None = None,
    *,
    verbose: bool = True,
) -> Translator:
    """Returns a translator with another vocabulary, whose model knows the pieces of the old one.

    A piece of both vocabularies keeps its rows. A new piece starts from a mean of rows: those of
    the pieces that the old tokenizer divides its text into. Without such pieces it is the mean of
    all rows. Ids that the model never writes do not count as parts, so that a new piece can be
    written. A text without new pieces gets the logits that it had, before any training.

    Two tokenizers may share one table, as those of OPUS-MT do. Then a piece is divided by the one
    that finds fewer parts, without unknown ones.

    Args:
        translator: a `Translator` of a `Transformer`; it stays as it is.
        tokenizer: the new tokenizer of the sources.
        target_tokenizer: that of the targets; `tokenizer` when None.
        verbose: whether to print how many rows stay, are new and are left out.

    Returns:
        A `Translator` with the settings of the old one and a model of its own. It has no shortlist:
        a warning says so where the old one has one.

    Raises:
        ValueError: when the model has one vocabulary and the tokenizers have two.

    Reference: Gee et al. 2022, "Fast Vocabulary Transfer for Language Model Compression", section
    3 (the mean of the parts).

    Example:

    >>> from keras_transformer.text import SymbolTokenizer
    >>> model = Transformer(7, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> translator = Translator(model, SymbolTokenizer.train(["a b c"]))
    >>> resized = resize_vocabulary(translator, SymbolTokenizer.train(["a b c d"]))
    resize_vocabulary: 7 rows stay, 1 new, 0 left out
    >>> resized.model.vocab_size
    8
    """
    new = tokenizer, tokenizer if target_tokenizer is None else target_tokenizer
    old = translator.source_tokenizer, translator.target_tokenizer
    model = translator.model
    if not isinstance(model, Transformer):
        raise ValueError(f"the model must be a Transformer. Received: a {type(model).__name__}")
    is_joint = model.vocab_size is not None
    if is_joint:
        for pair in (old, new):
            check_one_vocabulary(*pair)
    model.build()
    never = {*model.unused_ids}
    if is_joint:
        rows = [rows_of_old(old if old[0] is not old[1] else old[:1], new[1], never)] * 2
    else:
        rows = [rows_of_old(old[:1], new[0], set()), rows_of_old(old[1:], new[1], never)]
    sizes = {"source_vocab_size": len(rows[0]), "target_vocab_size": len(rows[1])}
    sizes = {"vocab_size": len(rows[0])} if is_joint else sizes
    special = {name: getattr(new[1], name) for name in ("pad_id", "bos_id", "eos_id")}
    resized = Transformer.from_config({**model.get_config(), **sizes, **special})
    resized.build()
    if verbose:
        sides = {"": 1} if is_joint else {"source ": 0, "target ": 1}
        for side, index in sides.items():
            print(f"resize_vocabulary: {side}{count_rows(old[index], new[index])}")
    weights = read_weights(model)
    assign_weights(resized, lambda name: resized_weight(name, weights[name], rows))
    search = translator.search.with_ids(kept_ids(old[1], new[1]))
    tokenizers = {"source_tokenizer": new[0], "target_tokenizer": new[1]}
    settings = {**translator.settings, "model": resized, "search": search, **tokenizers}
    if settings.pop("shortlist", None) is not None:
        warnings.warn(
            "the resized translator has no shortlist, because that of the old one has other ids: "
            "learn one from the new vocabularies",
            stacklevel=2,
        )
    return Translator(**settings)


def kept_ids(old: Tokenizer, new: Tokenizer) -> dict[int, int]:
    """The new id of each old one whose piece, or meaning, both vocabularies have."""
    places = {piece: index for index, piece in enumerate(new.vocabulary)}
    ids = {index: places[piece] for index, piece in enumerate(old.vocabulary) if piece in places}
    return ids | {getattr(old, name): getattr(new, name) for name in SPECIAL}


def count_rows(old: Tokenizer, new: Tokenizer) -> str:
    """Says how many rows of a vocabulary stay, are new and are left out."""
    stay = len({*kept_ids(old, new).values()})
    return f"{stay:,} rows stay, {new.vocab_size - stay:,} new, {old.vocab_size - stay:,} left out"


def check_one_vocabulary(source: Tokenizer, target: Tokenizer) -> None:
    """Raises `ValueError` when two tokenizers have different pieces, or other ids for them."""
    if source.vocabulary != target.vocabulary:
        raise ValueError(
            "both tokenizers must have one vocabulary, as the model has. Received: vocabularies of "
            f"{source.vocab_size} and {target.vocab_size} pieces that differ"
        )


def rows_of_old(
    olds: Sequence[Tokenizer], new: Tokenizer, never: Collection[int]
) -> list[list[int]]:
    """For each new id the old ids whose rows it starts from; those that stay have one.

    Args:
        olds: the tokenizers of one table of rows: one, or those of sources and targets.
        new: the new tokenizer.
        never: the ids that the model never writes.
    """
    old = olds[-1]
    places = {piece: index for index, piece in enumerate(old.vocabulary)}
    surfaces = new.surfaces()
    texts = [surface.strip() for surface in surfaces]
    divided = [
        min(divisions, key=lambda parts: (old.unk_id in parts, len(parts)))
        for divisions in zip(*(one.tokenize(texts).to_list() for one in olds), strict=True)
    ]
    space = places.get(SPACE_MARK)  # which sentencepiece puts before every text
    special = {getattr(new, name): getattr(old, name) for name in SPECIAL}
    # Special ids have rows of their own kind, such as zeros.
    apart = {*special.values(), *never}
    everything = [index for index in range(old.vocab_size) if index not in apart]
    everything = everything or list(range(old.vocab_size))
    rows = []
    for index, piece in enumerate(new.vocabulary):
        if index in special:
            rows.append([special[index]])
        elif piece in places:
            rows.append([places[piece]])
        else:
            spaces = [] if surfaces[index].startswith(" ") else [space]
            left_out = {old.unk_id, *never, *spaces}
            parts = [part for part in divided[index] if part not in left_out]
            rows.append(parts or everything)
    return rows


def resized_weight(
    name: str, values: np.ndarray, rows: Sequence[Sequence[Sequence[int]]]
) -> np.ndarray:
    """Returns a weight for the new vocabulary; those that no vocabulary sizes stay as they are."""
    is_table = name.endswith("/embeddings")
    if not is_table and not name.endswith(("reverse_embeddings", "logits_bias")):
        return values
    side = rows[0] if name.startswith("source_") else rows[1]
    axis = 1 if name.endswith("reverse_embeddings") else 0
    means = [np.mean(np.take(values, ids, axis), axis=axis) for ids in side]
    return np.stack(means, axis=axis)
