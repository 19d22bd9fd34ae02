"""Reads a translation model of CTranslate2."""

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer import arguments
from keras_transformer.decoding import BeamSearch, Search
from keras_transformer.interop.argos import find_package
from keras_transformer.interop.ctranslate2_file import CTranslate2File
from keras_transformer.interop.ctranslate2_form import (
    EMBEDDINGS,
    POSITIONS,
    PROJECTION,
    PROJECTION_BIAS,
    Place,
    places,
    relative_bias,
    variable_shapes,
)
from keras_transformer.interop.ctranslate2_settings import (
    OLD_CONFIG,
    model_options,
    read_config,
    same,
)
from keras_transformer.interop.files import check_names, checked_directory, shown
from keras_transformer.interop.token_rows import TokenRows, number_tokens, vocabulary_arguments
from keras_transformer.interop.tokenizers import (
    Tokenization,
    convert_tokens,
    make_tokenizers,
    sentencepiece_files,
)
from keras_transformer.interop.vocabulary_files import read_ctranslate2_vocabulary
from keras_transformer.interop.weights import build_with, weight_shapes
from keras_transformer.layers import RelativePositionBias
from keras_transformer.models import Transformer
from keras_transformer.serving import Translator
from keras_transformer.text.piece_ids import NAMED_CODE, is_tag

PADDING = ("<pad>", "<blank>")  # what padding is called where a vocabulary has it


def load_ctranslate2(
    directory: str | PathLike[str],
    source_tokenizer: str | PathLike[str] | None = None,
    target_tokenizer: str | PathLike[str] | None = None,
    *,
    tokenization: Tokenization = "sentencepiece",
    tags: Sequence[str] | None = None,
    source_eos: bool | None = None,
    search: Search | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    **options: Any,
) -> Translator:
    """Reads a translation model that CTranslate2 wrote, such as one of OpenNMT or Argos.

    CTranslate2 need not be installed. The model goes through `fit`, every search and `export`, as
    any of ours. Binary versions 2 to 6 are read. Weights become float32 variables; those of int8
    and int16 files are what the rounded integers stand for, and a warning says so.

    Args:
        directory: the path of a directory with `model.bin` and vocabularies. Or that of an unpacked
            package of Argos Translate, with `metadata.json`, `sentencepiece.model` and `model/`.
        source_tokenizer: the file of the sentencepiece model of the sources. None takes
            `source.spm`, `sentencepiece.model` or another `.model` or `.spm` of the directory.
        target_tokenizer: that of the targets. None takes `target.spm`, or what the sources have.
        tokenization: what tokens are: "sentencepiece", "characters", or "words" between spaces.
            With the last two ids are in the order of our tokenizers, special ones first.
        tags: the tokens that text never becomes, such as language codes; see
            `SentencePieceTokenizer`.
        source_eos: whether sources end in `</s>`. None takes what the directory says. A model that
            CTranslate2 converted from Hugging Face says no and needs it. It is known by the start
            of its targets and gets the end, with a warning.
        search: a search in place of CTranslate2's: beam 2, scores divided by the length. Argos has
            beam 4, scores divided by `length ** 0.2`, and sentences one at a time.
        dtype: the dtype policy of the model; Keras's when None.
        **options: arguments of `Translator`, such as `max_length`. A model with codes of languages,
            such as NLLB, needs `source_tag` and `target_tag`.

    Returns:
        A `Translator`. Unlike CTranslate2's, its search never writes padding or the start.

    Raises:
        ValueError: when a file is missing, damaged or of another kind of model, with the name of
            the variable or setting. No memory is taken before sizes, names and settings are
            checked.

    Reference: Klein et al. 2020, "The OpenNMT Neural Machine Translation Toolkit: 2020 Edition".

    Example:

    >>> load_ctranslate2("/nowhere")
    Traceback (most recent call last):
        ...
    ValueError: `directory` must be a directory. Received: '/nowhere'
    """
    arguments.one_of("tokenization", tokenization, ("sentencepiece", "characters", "words"))
    directory = checked_directory(directory)
    if package := find_package(directory):
        directory = package.model
        source_tokenizer = source_tokenizer or package.tokenizer
        target_tokenizer = target_tokenizer or package.tokenizer
        search = package.make_search() if search is None else search
        options = {"split_sentences": True, "target_tag": package.target_prefix, **options}
        if tags is None and package.target_prefix and not is_tag(package.target_prefix, None):
            tags = [package.target_prefix]
    directory = checked_directory(directory, "model.bin")
    file = CTranslate2File(directory / "model.bin")
    config = read_config(directory, file)
    vocabularies = read_vocabularies(directory, config["unk_token"])
    sides = number_sides(file, config, vocabularies, tokenization)
    model = make_model(file, config, sides, dtype)
    check_variables(model, file, sides)
    files: list[Path] = []
    if tokenization == "sentencepiece":
        given = {"source": source_tokenizer, "target": target_tokenizer}
        files = sentencepiece_files(directory, given, sides[0] != sides[1])
    tokenizers = make_tokenizers(sides, tokenization, tags, files)
    if file.quantization:
        warnings.warn(
            f"{file.path} holds {file.quantization} weights, which become float32: the model has "
            "their rounding and the size of an unrounded one.",
            stacklevel=2,
        )
    if search is None:
        search = BeamSearch(2, 1.0, num_hypotheses=1, early_stopping=True, length_formula="power")
    source, target = tokenizers
    codes = [tag for tag in source.tags if NAMED_CODE.fullmatch(tag)]
    if codes and options.get("source_tag") is None and options.get("target_tag") is None:
        warnings.warn(
            f"{directory}: sources must begin with the code of a language, such as {codes[0]!r}, "
            "and targets too. Name them by `source_tag` and `target_tag`.",
            stacklevel=2,
        )
    if source_eos is None:
        source_eos = ends_sources(directory, file, config)
    build_with_weights(model, file, sides)
    return Translator(model, source, target, search, source_eos=source_eos, **options)


def ends_sources(directory: Path, file: CTranslate2File, config: dict[str, Any]) -> bool:
    """Whether sources end in `</s>`, by the settings or by where the model seems to come from."""
    if config["add_source_eos"] or not is_from_hugging_face(file, config):
        return bool(config["add_source_eos"])
    warnings.warn(
        f"{directory}: sources end in {config['eos_token']!r} here, though its settings say no. It "
        "seems to come from Hugging Face, whose users append the end. Give source_eos=True to say "
        "so, and False for sources without an end.",
        stacklevel=3,
    )
    return True


def is_from_hugging_face(file: CTranslate2File, config: dict[str, Any]) -> bool:
    """Whether a file seems to be converted from Hugging Face, by where its targets start.

    They start from zeros in Marian, from the end in M2M100 and NLLB, from padding in Pegasus. Those
    of OpenNMT start from a token of their own, and Marian's own converter adds the end to sources.
    """
    start = config["decoder_start_token"]
    return starts_from_zeros(file) or start == config["eos_token"] or start in PADDING


def starts_from_zeros(file: CTranslate2File) -> bool:
    """Whether targets start from a vector of zeros."""
    name = "decoder/start_from_zero_embedding"
    return name in file and bool(file.read(name).any())


def read_vocabularies(directory: Path, unknown: str) -> list[list[str]]:
    """Returns the tokens of source and target by row; one list where they are shared."""
    found = []
    for side in ("source", "target"):
        names = [f"{kind}_vocabulary.{end}" for kind in ("shared", side) for end in ("json", "txt")]
        checked_directory(directory, tuple(names))
        path = next(path for name in names if (path := directory / name).exists())
        tokens = read_ctranslate2_vocabulary(path)
        if unknown not in tokens:  # as CTranslate2 does
            tokens.append(unknown)
        if "shared" in path.name:
            return [tokens, tokens]
        found.append(tokens)
    return found


def number_sides(
    file: CTranslate2File,
    config: dict[str, Any],
    vocabularies: Sequence[Sequence[str]],
    tokenization: Tokenization,
) -> list[TokenRows]:
    """Returns the rows of source and target, or raises `ValueError`."""
    start, end = config["decoder_start_token"], config["eos_token"]
    zero_start = starts_from_zeros(file)
    target = vocabularies[1]
    for name, token in {"eos_token": end, "decoder_start_token": start}.items():
        if token not in target and not (zero_start and token == start):
            raise ValueError(
                f"the target vocabulary must have `{name}`. Received: {name}={shown(token)}"
            )
    special_rows = []
    for tokens in vocabularies:
        rows = {token: row for row, token in reversed(list(enumerate(tokens)))}
        pad = next((rows[token] for token in PADDING if token in rows), None)
        special_rows.append(
            {
                "pad_id": None if pad == rows.get(end) else pad,
                "unk_id": rows[config["unk_token"]],
                "bos_id": None if zero_start else rows.get(start),
                "eos_id": rows.get(end),
            }
        )
    texts = None
    if tokenization != "sentencepiece":
        pairs = zip(vocabularies, special_rows, strict=True)
        texts = [convert_tokens(*pair, tokenization) for pair in pairs]
    return number_tokens(vocabularies, special_rows, texts)


def embedding_names(file: CTranslate2File) -> tuple[str, str]:
    """Returns the variables of the embeddings of source and target."""
    source, target = (
        next((name for name in EMBEDDINGS[side] if name in file), EMBEDDINGS[side][0])
        for side in ("encoder", "decoder")
    )
    return source, target


def make_model(
    file: CTranslate2File, config: dict[str, Any], sides: Sequence[TokenRows], dtype: Any
) -> Transformer:
    """Returns the model of a directory, not built yet, or raises `ValueError`."""
    options = model_options(file, config, new_output=bool(sides[1].never))
    joint = sides[0] == sides[1] and same(file, *embedding_names(file))
    return Transformer(**vocabulary_arguments(sides, joint=joint), **options, dtype=dtype)


def check_variables(model: Transformer, file: CTranslate2File, sides: Sequence[TokenRows]) -> None:
    """Raises `ValueError` unless the file has the variables of the model, of the right shapes."""
    shapes = weight_shapes(model)
    expected = variable_shapes(places(model, shapes), shapes)
    optional = {name for name in expected if name.endswith("/bias")}
    for name, side in zip(embedding_names(file), sides, strict=True):
        expected[name] = (max(side.rows) + 1, model.d_model)
    expected[PROJECTION] = (max(sides[1].rows) + 1, model.d_model)
    expected[PROJECTION_BIAS] = expected[PROJECTION][:1]
    optional.add(PROJECTION_BIAS)
    missing = [name for name in expected if name not in file and name not in optional]
    known = {*expected, *(f"{name}_scale" for name in expected)}
    known |= {f"{side}/{POSITIONS}" for side in ("encoder", "decoder")}
    if isinstance(model.position, RelativePositionBias):
        for stack in (model.encoder, model.decoder):
            known |= {relative_bias(stack.name, layer) for layer in range(stack.num_layers)}
    unknown = [
        name
        for name, stored in file.items()
        if name not in known and stored.shape and not OLD_CONFIG.fullmatch(name)
    ]
    check_names(file.path, missing, unknown, f"{len(file)} variables")
    for name, shape in expected.items():
        if name in file and file[name].shape != shape:
            raise ValueError(
                f"{file.path}: {name} must have the shape {shape}. Received: {file[name].shape}"
            )


def build_with_weights(
    model: Transformer, file: CTranslate2File, sides: Sequence[TokenRows]
) -> None:
    """Builds a model with the weights of a file, read one at a time."""
    shapes = weight_shapes(model)
    placed = places(model, shapes)
    source, target = sides
    tables = dict(zip(("encoder", "decoder"), embedding_names(file), strict=True))

    def read(name: str) -> np.ndarray:
        if name in placed:
            return placed_weight(file, name, placed[name])
        if name.endswith("/logits_bias"):
            has_bias = PROJECTION_BIAS in file
            return target.bias(file.read_float32(PROJECTION_BIAS) if has_bias else None)
        if name.endswith("/reverse_embeddings"):
            return target.take(file.dequantized(PROJECTION)).T
        if name.startswith("source_embedding/"):
            return source.take(file.dequantized(tables["encoder"]))
        return target.take(file.dequantized(tables["decoder"]))

    build_with(model, read)


def placed_weight(file: CTranslate2File, name: str, place: Place) -> np.ndarray:
    """Returns a weight of ours from its place; a bias that is not in the file is 0."""
    if place.variable not in file:
        return np.zeros(place.size, "float32")
    values = file.dequantized(place.variable)[place.begin : place.begin + place.size]
    return values.T if name.endswith("/kernel") else values
