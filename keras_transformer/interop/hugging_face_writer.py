"""Writes a translator as a directory that Hugging Face's transformers reads."""

import json
import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.atomic_files import new_directory
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, Search
from keras_transformer.interop.files import shown
from keras_transformer.interop.hugging_face_form import (
    ACTIVATIONS,
    MARIAN,
    NORM_EPSILON,
    PEGASUS,
    Family,
    convert_name,
    to_theirs,
)
from keras_transformer.interop.safetensors_file import write_safetensors
from keras_transformer.interop.weights import halves_order, read_weights, reordered
from keras_transformer.layers import PositionalEncoding
from keras_transformer.models import Transformer
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer
from keras_transformer.text.tokenizer import LANGUAGE_CODE

MAX_LENGTH = 512  # of outputs, where the translator names none
# Hugging Face's names of the stops of a `BeamSearch`.
EARLY_STOPPING = {True: True, False: "never", "current_length": False}


def save_hugging_face(translator: Translator, directory: str | PathLike[str]) -> None:
    """Writes a translator as a Marian or Pegasus model of Hugging Face.

    A model that normalises after its sub-layers becomes a `MarianMTModel`, one that normalises
    first a `PegasusForConditionalGeneration`. Both compute what the model computes: the numbers of
    d_model are put in another order, in which their sinusoids are ours. Only the epsilon of their
    norms is always 1e-5. A model trained with `norm_epsilon=1e-5` is exact, another one differs by
    rounding and gives a warning.

    The search becomes that of `generate`, which returns one hypothesis of a beam: ask there for
    more by `num_return_sequences`. Tags of the tokenizer become special tokens of theirs. It puts
    none before a text and divides no text: a warning says so where the translator does.

    Args:
        translator: a `Translator` of a `Transformer` with `SentencePieceTokenizer`s.
        directory: a path where nothing is yet. It appears whole or not at all.

    Raises:
        ValueError: when a setting of the model, the tokenizers or the search has no place there.
            The message names it.

    Example:

    >>> import tempfile
    >>> from keras_transformer import GreedySearch, Transformer
    >>> from keras_transformer.interop import load_hugging_face
    >>> from keras_transformer.serving import Translator
    >>> from keras_transformer.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a man rides"] * 5, vocab_size=20)
    >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 16}
    >>> model = Transformer(tokenizer.vocab_size, norm_epsilon=1e-5, **sizes)
    >>> translator = Translator(model, tokenizer, search=GreedySearch())
    >>> directory = tempfile.mkdtemp() + "/model"
    >>> save_hugging_face(translator, directory)
    >>> load_hugging_face(directory).model.d_model
    8
    """
    model = checked_model(translator)
    tokenizers = checked_tokenizers(translator)
    search = search_settings(translator.search, model)
    model.build()
    with new_directory(directory) as written:
        folder = Path(written)
        positions = num_positions(translator)
        write_json(folder / "config.json", model_settings(model, positions))
        longest = 1 + (translator.max_length or min(MAX_LENGTH, positions))  # with the start
        generation = {**search, **special_tokens(model), "max_length": longest}
        write_json(folder / "generation_config.json", generation)
        write_tokenizers(folder, tokenizers, translator.max_source_length)
        write_safetensors(folder / "model.safetensors", their_weights(model, positions))
    if translator.split_sentences:
        warnings.warn(
            "Hugging Face divides no text (`split_sentences`): give it one sentence at a time.",
            stacklevel=2,
        )
    if translator.source_tag is not None:
        warnings.warn(
            "Hugging Face's tokenizer puts no tag before a text: begin each with "
            f"{translator.source_tag!r} there.",
            stacklevel=2,
        )
    if model.norm_epsilon != NORM_EPSILON:
        warnings.warn(
            f"Hugging Face's norms add {NORM_EPSILON:g} to the variance, this model adds "
            f"{model.norm_epsilon:g}: logits differ a little. Train with norm_epsilon=1e-5, in a "
            "command with --norm-epsilon 1e-5, to have the same.",
            stacklevel=2,
        )


def checked_model(translator: Translator) -> Transformer:
    """Returns the model, or raises `ValueError` that names a setting without a place there."""
    model = translator.model
    if not isinstance(model, Transformer):
        raise ValueError(f"the model must be a `Transformer`. Received: a {type(model).__name__}")
    for name, only in (("source_eos", True), ("target_tag", None)):
        if getattr(translator, name) != only:
            raise ValueError(
                f"`{name}` must be {only}: Hugging Face's {family_for(model).model_class} has no "
                f"other. Received: {name}={getattr(translator, name)!r}"
            )
    position = model.position
    sinusoids = isinstance(position, PositionalEncoding) and position.frequencies == "paper"
    heads = (model.num_encoder_heads, model.num_decoder_heads)
    wanted = {
        "position": (position, "PositionalEncoding()", sinusoids and not position.first_position),
        "rms_norm": (model.rms_norm, False, not model.rms_norm),
        "activation": (model.activation, ", ".join(ACTIVATIONS), activation_name(model)),
        "num_key_value_heads": (
            model.num_key_value_heads,
            "None or `num_heads`",
            model.num_key_value_heads is None or heads == 2 * (model.num_key_value_heads,),
        ),
        "window": (model.window, None, model.window is None),
        "embedding_norm": (model.embedding_norm, False, not model.embedding_norm),
        "vocab_size": (
            model.vocab_size,
            "one of a joint vocabulary for a model with norm_first=True",
            model.vocab_size or not model.norm_first,
        ),
    }
    for name, (value, rule, fits) in wanted.items():
        if not fits:
            raise ValueError(
                f"`{name}` must be {rule}: Hugging Face's {family_for(model).model_class} has no "
                f"other. Received: {name}={value!r:.100}"
            )
    return model


def family_for(model: Transformer) -> Family:
    """The family that computes what the model computes."""
    return PEGASUS if model.norm_first else MARIAN


def activation_name(model: Transformer) -> str | None:
    """Hugging Face's name of the activation, or None."""
    ours = getattr(model.activation, "__name__", None)
    return next((theirs for theirs, name in ACTIVATIONS.items() if name == ours), None)


def special_tokens(model: Transformer) -> dict[str, Any]:
    """The special ids, in their names."""
    return {
        "pad_token_id": model.pad_id,
        "eos_token_id": model.eos_id,
        "bos_token_id": None,
        "decoder_start_token_id": model.bos_id,
        "forced_eos_token_id": None,
    }


def model_settings(model: Transformer, positions: int) -> dict[str, Any]:
    """Returns what config.json holds, of a model with tables of so many positions."""
    family = family_for(model)
    source_size, target_size = model.vocabulary_sizes
    settings = {
        "architectures": [family.model_class],
        "model_type": family.model_type,
        "is_encoder_decoder": True,
        "vocab_size": source_size,
        "d_model": model.d_model,
        "encoder_layers": model.num_encoder_layers,
        "decoder_layers": model.num_decoder_layers,
        "encoder_attention_heads": model.num_encoder_heads,
        "decoder_attention_heads": model.num_decoder_heads,
        "encoder_ffn_dim": model.encoder_d_ff,
        "decoder_ffn_dim": model.decoder_d_ff,
        "activation_function": activation_name(model),
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.feed_forward_dropout,
        "max_position_embeddings": positions,
        "scale_embedding": model.scale_embeddings,
        "tie_word_embeddings": model.tie_output,
        "normalize_before": model.norm_first,
        "add_final_layer_norm": model.norm_first,
        "dtype": "float32",
        **special_tokens(model),
    }
    if family is MARIAN:
        settings |= {
            "decoder_vocab_size": target_size,
            "share_encoder_decoder_embeddings": model.vocab_size is not None,
        }
    return settings


def num_positions(translator: Translator) -> int:
    """How many positions the tables of the directory have: as many as it reads and writes."""
    longest = max(2 * MAX_LENGTH, translator.max_length or 0, translator.max_source_length)
    return translator.model.position.max_length or longest


def their_weights(model: Transformer, positions: int) -> dict[str, np.ndarray]:
    """Returns the weights by their names, in their form, and tables of so many positions."""
    found = {}
    order = list(range(model.d_model))
    if model.position.layout == "interleaved":
        order = halves_order(model.d_model)
    for name, values in read_weights(model).items():
        found[convert_name(name)] = to_theirs(name, reordered(name, values, order))
    if "final_logits_bias" not in found:
        found["final_logits_bias"] = np.zeros((1, model.vocabulary_sizes[1]), "float32")
    # Without them it warns of missing weights, though it computes the same.
    table = model.position.rows(np.arange(positions))[:, order]
    for side in ("encoder", "decoder"):
        found[f"model.{side}.embed_positions.weight"] = table
    if model.vocab_size and not model.tie_output:
        # From version 5 on a model that is not tied has a matrix for each.
        for side in ("encoder", "decoder"):
            found[f"model.{side}.embed_tokens.weight"] = found["model.shared.weight"]
    return dict(sorted(found.items()))


def search_settings(search: Search, model: Transformer) -> dict[str, Any]:
    """Returns the search in the names of generation_config.json, or raises `ValueError`."""
    config = search.get_config() if isinstance(search, Search) else {}
    defaults = type(search)().get_config()
    homeless = (
        *("allowed_ids", "min_length_ratio", "max_length_ratio", "return_alignments"),
        *("coverage_penalty", "num_groups", "diversity_penalty", "seed"),
    )
    for name in homeless:
        if config.get(name) != defaults.get(name):
            raise ValueError(
                f"`{name}` of the search must be {defaults[name]!r}: Hugging Face's searches have "
                f"no other. Received: {name}={config[name]!r}"
            )
    never = {*search.suppressed_ids, model.pad_id, model.bos_id} - {model.eos_id}
    settings: dict[str, Any] = {
        "num_beams": 1,
        "do_sample": False,
        "suppress_tokens": sorted(never),
        "repetition_penalty": search.repetition_penalty,
        "no_repeat_ngram_size": search.no_repeat_ngram_size,
        "min_new_tokens": max(search.min_length - 1, 0),
        "renormalize_logits": search.renormalize is True,
    }
    if isinstance(search, Sampling):
        return settings | {
            "do_sample": True,
            "temperature": search.temperature,
            "top_k": search.top_k,
            "top_p": search.top_p,
            "min_p": search.min_p or None,
            "num_return_sequences": search.num_samples,
        }
    if isinstance(search, BeamSearch):
        if search.beam_size > 1 and search.repetition_penalty != 1.0:
            raise ValueError(
                "`repetition_penalty` of the search must be 1.0 with several beams: Hugging Face "
                "changes log-probabilities by it there, and logits are changed here. "
                f"Received: repetition_penalty={search.repetition_penalty!r}"
            )
        if search.length_formula != "power" and search.length_penalty:
            warnings.warn(
                "Hugging Face divides scores by length ** length_penalty, this search by "
                "((5 + length) / 6) ** length_penalty: another hypothesis may be the best.",
                stacklevel=3,
            )
        return settings | {
            "num_beams": search.beam_size,
            "length_penalty": search.length_penalty,
            "early_stopping": EARLY_STOPPING[search.early_stopping],
        }
    if not isinstance(search, GreedySearch):
        raise ValueError(
            "the search must be a GreedySearch, a BeamSearch or a Sampling. "
            f"Received: {search!r:.100}"
        )
    return settings


def checked_tokenizers(translator: Translator) -> list[SentencePieceTokenizer]:
    """Returns both tokenizers, or raises `ValueError` when one has no form there."""
    source: Any = translator.source_tokenizer
    tokenizers: list[Any] = [source, translator.target_tokenizer]
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        if not isinstance(tokenizer, SentencePieceTokenizer):
            raise ValueError(
                f"the {side} tokenizer must be a SentencePieceTokenizer. "
                f"Received: a {type(tokenizer).__name__}"
            )
        for name, plain in (
            ("lossless", False),
            ("lowercase", False),
            ("normalization", "identity"),
        ):
            if getattr(tokenizer, name) != plain:
                raise ValueError(
                    f"`{name}` of the {side} tokenizer must be {plain!r}: Hugging Face's Marian "
                    f"tokenizer does nothing of that kind. Received: {name}="
                    f"{getattr(tokenizer, name)!r}"
                )
    codes = [] if source.leading_tags else list(filter(LANGUAGE_CODE.fullmatch, source.tags))
    written = source.tokenize(codes).to_list() if codes else []
    # Text becomes those of `user_defined_symbols`, and no others.
    codes = [code for code, ids in zip(codes, written, strict=True) if source.tag_id(code) in ids]
    if codes:
        warnings.warn(
            f"the source tokenizer has {shown(codes[:3])} and no `leading_tags`: Hugging Face's "
            "Marian tokenizer takes a code off the beginning of a text first. "
            "Such a text gets other ids there",
            stacklevel=3,
        )
    read = source.tags if source.leading_tags else [translator.source_tag]
    special = [tag for tag in read if tag is not None and not LANGUAGE_CODE.fullmatch(tag)]
    if special and source.vocabulary != translator.target_tokenizer.vocabulary:
        raise ValueError(
            "`tags` of the source tokenizer must be of the form '>>fra<<' where the target has "
            "another vocabulary: Hugging Face's special tokens have one id for both. "
            f"Received: {shown(special)}"
        )
    return tokenizers


def added_tokens(tokenizer: SentencePieceTokenizer) -> dict[str, dict[str, Any]]:
    """Returns the tags that are special tokens there, as tokenizer_config.json lists them.

    A tag of the form `>>fra<<` is none: their Marian tokenizer knows it by its form.
    """
    ids = {tag: tokenizer.tag_id(tag) for tag in tokenizer.tags if not LANGUAGE_CODE.fullmatch(tag)}
    as_it_is = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {f"{ids[tag]}": {"content": tag, **as_it_is, "special": True} for tag in ids}


def write_tokenizers(
    folder: Path, tokenizers: Iterable[SentencePieceTokenizer], longest_source: int
) -> None:
    """Writes the files of a Marian tokenizer, for sources of at most so many tokens."""
    source, target = tokenizers
    vocabularies = [map_pieces(tokenizer) for tokenizer in (source, target)]
    separate = vocabularies[0] != vocabularies[1]
    (folder / "source.spm").write_bytes(source.model)
    (folder / "target.spm").write_bytes(target.model)
    write_json(folder / "vocab.json", vocabularies[0])
    if separate:
        write_json(folder / "target_vocab.json", vocabularies[1])
    names = {index: piece for piece, index in vocabularies[1].items()}
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
        "unk_token": names[target.unk_id],
        "eos_token": names[target.eos_id],
        "pad_token": names[target.pad_id],
        "model_max_length": longest_source,
    }
    if not separate and (added := added_tokens(source)):
        settings["added_tokens_decoder"] = added
    write_json(folder / "tokenizer_config.json", settings)


def map_pieces(tokenizer: SentencePieceTokenizer) -> dict[str, int]:
    """Returns the pieces with their ids."""
    pieces = tokenizer.vocabulary
    ids = {piece: index for index, piece in enumerate(pieces)}
    return {**ids, pieces[tokenizer.unk_id]: tokenizer.unk_id}  # an id without a piece has its name


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
