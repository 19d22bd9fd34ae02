"""Reads translation models of Hugging Face: Marian (OPUS-MT), M2M100 with NLLB, and Pegasus."""

import re
import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_transformer.decoding import Search
from keras_transformer.interop.files import (
    MAX_VOCABULARY,
    check_names,
    checked_directory,
    checked_file,
    checked_flag,
    checked_integer,
    checked_number,
    read_json,
    shown,
)
from keras_transformer.interop.hugging_face_form import (
    COPIES,
    M2M100,
    TIED,
    convert_name,
    find_family,
    make_model,
    to_ours,
    to_theirs,
    token_id,
)
from keras_transformer.interop.hugging_face_search import (
    SEARCH_SETTINGS,
    longest_output,
    make_search,
)
from keras_transformer.interop.tensor_file import TensorFile
from keras_transformer.interop.tensor_files import NAMES, open_tensors
from keras_transformer.interop.vocabulary_files import read_sentencepiece_pieces
from keras_transformer.interop.weights import build_with, weight_shapes
from keras_transformer.models import Transformer
from keras_transformer.models.sequence_to_sequence import EXTRA_LENGTH
from keras_transformer.serving import Translator
from keras_transformer.serving.id_functions import SMALLEST_LENGTH
from keras_transformer.serving.translator import LONGEST_SOURCE
from keras_transformer.text import SentencePieceTokenizer
from keras_transformer.text.tokenizer import LANGUAGE_CODE

# Ids of config.json, and how tokenizer_config.json and vocabularies name the tokens unless told.
SPECIAL_TOKENS = {"eos_token_id": ("eos_token", "</s>"), "pad_token_id": ("pad_token", "<pad>")}

# Codes of languages of NLLB and M2M100, and what both have beside them, such as `<mask>`.
LANGUAGE = re.compile("[a-z]{2,3}_[A-Z][A-Za-z]*|__[A-Za-z_]+__|<[^<>]+>|madeupword[0-9a-z]*")

# The languages of M2M100 in the order of their ids (Fan et al. 2020, table 1), which newer versions
# of transformers write into no file.
M2M100_LANGUAGES = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu "
    "ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms "
    "my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur "
    "uz vi wo xh yi yo zh zu"
).split()


def load_hugging_face(
    directory: str | PathLike[str],
    source_language: str | None = None,
    target_language: str | None = None,
    search: Search | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    **options: Any,
) -> Translator:
    """Reads a translation model that Hugging Face's `save_pretrained` wrote.

    Marian, which all OPUS-MT models are, M2M100, NLLB, and the Pegasus that `save_hugging_face`
    writes. Neither PyTorch nor transformers is needed, and nothing from the files is run. The
    model goes through `fit`, every search and `export`, as any of ours.

    Args:
        directory: the path of a directory with `config.json`, weights and the tokenizer's files.
        source_language, target_language: the codes of the languages, as the model names them:
            "eng_Latn" for NLLB, "en" for M2M100. A Marian model of several target languages takes
            `target_language`, as "fra" for its `>>fra<<`.
        search: a search in place of the one that the directory describes.
        dtype: the dtype policy of the model; Keras's when None. Weights are float32 variables,
            whatever the files hold.
        **options: arguments of `Translator`, such as `max_length` and `jit_compile`.

    Returns:
        A `Translator`. Its search has the directory's beams, length penalty, forbidden tokens and
        stop: Hugging Face's default, `early_stopping=False`, is "current_length" here. An output
        that reaches `max_length` is cut. Hugging Face forces an end there, if the directory has a
        `forced_eos_token_id`.

    Raises:
        ValueError: when a file is missing, damaged or of another kind of model. No memory is
            taken before sizes, names and settings are checked.

    Reference: Junczys-Dowmunt et al. 2018, "Marian: Fast Neural Machine Translation in C++";
    Tiedemann and Thottingal 2020, "OPUS-MT"; Fan et al. 2020 (M2M100); NLLB Team et al. 2022.

    Example:

    >>> load_hugging_face("/nowhere")
    Traceback (most recent call last):
        ...
    ValueError: `directory` must be a directory. Received: '/nowhere'
    """
    directory = checked_directory(directory, "config.json", NAMES)
    config = read_config(directory)
    model = make_model(config, dtype)
    tokenizers = read_tokenizers(directory, config)
    tensors = open_tensors(directory)
    check_num_layers(model, tensors)  # first: what follows takes memory for each layer
    tensors = with_tied_names(model, tensors)
    check_tensors(model, tensors)
    warn_of_layer_drop(config)
    tags = language_tags(config, tokenizers, source_language, target_language)
    search = make_search(config, model) if search is None else search
    if source_length := longest_source(directory):
        options = {"max_source_length": source_length, **options}
    longest = longest_output(config)
    if longest and longest < (options.get("max_source_length") or LONGEST_SOURCE) + EXTRA_LENGTH:
        options = {"max_length": longest, **options}  # else no output reaches it
    build_with(model, lambda name: our_weight(name, tensors))
    source, target = tokenizers
    return Translator(model, source, target, search, **{**tags, **options})


def read_config(directory: Path) -> dict[str, Any]:
    """Returns config.json, with the settings of the search from a file of their own.

    Where there is such a file, those of config.json have no effect, as in Hugging Face: what is
    left out has its default. The start alone stays, because the model is trained with it.
    """
    config = read_json(directory / "config.json")
    generation = directory / "generation_config.json"
    if generation.exists():
        found = read_json(generation)
        for name in {*SEARCH_SETTINGS} - {"decoder_start_token_id"}:
            config.pop(name, None)
        config |= {name: found[name] for name in SEARCH_SETTINGS if found.get(name) is not None}
        for name in SPECIAL_TOKENS:
            ids = found.get(name)
            ids = ids if isinstance(ids, list) else [ids]
            if ids != [None] and name in config and ids != [token_id(config, name)]:
                raise ValueError(
                    f"{generation}: `{name}` must be that of config.json, {shown(config[name])}. "
                    f"Received: {shown(found[name])}"
                )
    for name in ("model_type", "activation_function"):
        if name in config and not isinstance(config[name], str):
            raise ValueError(f"`{name}` must be a string. Received: {shown(config[name])}")
    return config


def warn_of_layer_drop(config: Mapping[str, Any]) -> None:
    """Warns of layers that Hugging Face leaves out in training, which nothing here does."""
    names = ("encoder_layerdrop", "decoder_layerdrop")
    rates = {n: checked_number("config.json", n, config.get(n, 0.0), 0, 1) for n in names}
    if any(rates.values()):
        listed = " and ".join(f"{name}={rate:g}" for name, rate in rates.items() if rate)
        warnings.warn(
            f"config.json: {listed} has no effect here. With this probability Hugging Face leaves "
            "out a layer in training; `fit` leaves out none. Translations are the same.",
            stacklevel=3,
        )


def with_tied_names(model: Transformer, tensors: TensorFile) -> TensorFile:
    """Returns the tensors, a tied table also by the name that the model asks for.

    `safetensors.torch.save_model` writes one of its names alone, such as `lm_head.weight`.
    """
    own = {convert_name(name) for name in weight_shapes(model)}
    found = dict(tensors)
    for name in own.intersection(TIED) - found.keys():
        copy = next((copy for copy in TIED[name] if copy in found and copy not in own), None)
        if copy is not None:
            found[name] = found[copy]
    return TensorFile(tensors.path, found)


def check_num_layers(model: Transformer, tensors: TensorFile) -> None:
    """Raises `ValueError` where the file has fewer tensors than the model has layers."""
    stacks = model.encoder, model.decoder
    if sum(stack.num_layers for stack in stacks) > len(tensors):
        raise ValueError(
            f"{tensors.path}: must have the weights of every layer. Received: {len(tensors)} "
            f"tensors for {[stack.num_layers for stack in stacks]} layers"
        )


def check_tensors(model: Transformer, tensors: TensorFile) -> None:
    """Raises `ValueError` unless the file has the weights of the model, of the right shapes."""
    expected = {}
    for name, shape in weight_shapes(model).items():
        stub = np.broadcast_to(np.float32(0), shape)
        expected[convert_name(name)] = to_theirs(name, stub).shape
    optional = {"final_logits_bias"}
    missing = [name for name in expected if name not in tensors and name not in optional]
    unknown = [name for name in tensors if name not in expected and not COPIES.fullmatch(name)]
    found = f"{len(expected) - len(missing)} of the {len(expected)} that config.json asks for"
    check_names(tensors.path, missing, unknown, f"{len(tensors)} tensors, with {found}")
    for name, shape in expected.items():
        if name in tensors and tuple(tensors[name].shape) != shape:
            raise ValueError(
                f"{tensors.path}: {name} must have the shape {shape} of config.json. "
                f"Received: {tuple(tensors[name].shape)}"
            )


def our_weight(name: str, tensors: TensorFile) -> np.ndarray:
    """Reads a weight of ours from their file."""
    theirs = convert_name(name)
    if theirs not in tensors:  # the bias of the logits, which is 0 where it is left out
        return np.zeros((), "float32")
    return to_ours(name, tensors.read_float32(theirs))


def read_tokenizers(
    directory: Path, config: Mapping[str, Any]
) -> tuple[SentencePieceTokenizer, SentencePieceTokenizer]:
    """Returns the tokenizers of sources and targets."""
    special = {
        "pad_id": token_id(config, "pad_token_id"),
        "bos_id": token_id(config, "decoder_start_token_id"),
        "eos_id": token_id(config, "eos_token_id"),
    }
    if find_family(config) is M2M100:
        return 2 * (read_multilingual_tokenizer(directory, config, special),)
    checked_directory(directory, "source.spm", "target.spm", "vocab.json")
    files = {"source": "vocab.json", "target": "vocab.json"}
    settings = tokenizer_settings(directory)
    if checked_flag(
        "tokenizer_config.json", "separate_vocabs", settings.get("separate_vocabs", False)
    ):
        checked_directory(directory, "target_vocab.json")
        files["target"] = "target_vocab.json"
    vocabularies = {side: read_ids(directory / file, config) for side, file in files.items()}
    vocabularies["source"] |= (codes := added_codes(directory, vocabularies["source"], special))
    if files["source"] == files["target"]:
        vocabularies["target"] |= codes
    source, target = (
        read_marian_tokenizer(
            checked_file(directory / f"{side}.spm", MAX_VOCABULARY), vocabularies[side], special
        )
        for side in files
    )
    return source, target


def read_marian_tokenizer(
    path: Path, ids: Mapping[str, int], special: Mapping[str, Any]
) -> SentencePieceTokenizer:
    """Returns the tokenizer of one side. Special tokens of its vocabulary are tags of it."""
    options: dict[str, Any] = {"vocabulary": ids, "leading_tags": True, **special}
    tokenizer = SentencePieceTokenizer.from_file(path, **options)
    known = {*special.values(), tokenizer.unk_id}
    tags = [
        piece
        for piece, token in added_tokens(path.parent)
        if token.special is True and token.index not in known and ids.get(piece) == token.index
    ]
    if not {*tags} - {*tokenizer.tags}:
        return tokenizer
    tags = sorted({*tokenizer.tags, *tags}, key=lambda tag: ids[tag])
    return SentencePieceTokenizer.from_file(path, tags=tags, **options)


def added_codes(
    directory: Path, ids: Mapping[str, int], special: Mapping[str, int]
) -> dict[str, int]:
    """Returns the codes `>>fra<<` that were added to a Marian tokenizer, with their ids.

    Raises:
        ValueError: for another token. Hugging Face divides a text at it before sentencepiece, and
            pieces of ours are found by sentencepiece alone.
    """
    added = behind(len(ids), {piece: token.index for piece, token in added_tokens(directory)})
    known = set(special.values())
    added = {piece: i for piece, i in added.items() if piece not in ids and i not in known}
    check_no_words(directory, [p for p in added if not LANGUAGE_CODE.fullmatch(p)])
    return added


def check_no_words(directory: Path, words: list[str]) -> None:
    """Raises `ValueError` for words that were added to a tokenizer."""
    if words:
        raise ValueError(
            f"{directory}: the tokenizer must have no words of its own beside those of "
            "sentencepiece; give words to a tokenizer of ours by `with_pieces`. "
            f"Received: {shown(words)}"
        )


def read_ids(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ids of a vocab.json, or raises `ValueError` when config.json contradicts them."""
    return checked_ids(path, read_json(path, dict, MAX_VOCABULARY), config)


def checked_ids(path: Path, ids: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ids by piece, or raises `ValueError` when config.json has others of special ones."""
    settings = tokenizer_settings(path.parent)
    for piece, index in ids.items():
        checked_integer(path, piece, index)
    for name, (role, default) in SPECIAL_TOKENS.items():
        token = read_piece(settings.get(role, default))
        expected = token_id(config, name)
        if token is not None and ids.get(token, expected) != expected:
            raise ValueError(
                f"{path}: the id of {shown(token)} must be {expected}, the `{name}` of config.json."
                f" Received: {shown(ids[token])}"
            )
    return ids


def read_piece(token: Any) -> str | None:
    """Returns the piece of a token that a file writes as a string, or as an object; else None."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def read_multilingual_tokenizer(
    directory: Path, config: Mapping[str, Any], special: dict[str, Any]
) -> SentencePieceTokenizer:
    """Returns the tokenizer of an M2M100 or NLLB directory, which serves both sides."""
    path = directory / "sentencepiece.bpe.model"
    if not path.exists() and (directory / "tokenizer.json").exists():
        # Version 5 of transformers saves it so, in a form of the pieces of its own.
        raise ValueError(
            f"{directory} must hold {path.name}; copy it from the model that this one was trained "
            "from. Received: tokenizer.json alone"
        )
    checked_directory(directory, path.name)
    checked_file(path, MAX_VOCABULARY)
    if (directory / "vocab.json").exists():  # M2M100
        vocabulary = read_ids(directory / "vocab.json", config)
    else:  # NLLB: the special pieces of fairseq, then those of sentencepiece from its fourth on
        if checked_flag(
            "tokenizer_config.json",
            "legacy_behaviour",
            tokenizer_settings(directory).get("legacy_behaviour", False),
        ):
            raise ValueError(
                f"{directory / 'tokenizer_config.json'}: `legacy_behaviour` must be false, because "
                "a `Translator` puts the code of a language before a source. Received: true"
            )
        pieces = read_sentencepiece_pieces(path)
        vocabulary = checked_ids(path, {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}, config)
        vocabulary |= {piece: index + 1 for index, piece in enumerate(pieces) if index >= 3}
    tags = language_codes(directory, len(vocabulary))
    return SentencePieceTokenizer.from_file(
        path, vocabulary={**vocabulary, **tags}, tags=tags, **special
    )


def longest_source(directory: Path) -> int | None:
    """Returns the longest source that the tokenizer allows, None where ours is not longer."""
    longest = tokenizer_settings(directory).get("model_max_length")
    is_shorter = type(longest) is int and SMALLEST_LENGTH <= longest < LONGEST_SOURCE
    return longest if is_shorter else None


def tokenizer_settings(directory: Path) -> dict[str, Any]:
    """Returns tokenizer_config.json, empty where there is none."""
    path = directory / "tokenizer_config.json"
    return read_json(path) if path.exists() else {}


class AddedToken(NamedTuple):
    """A token that a file adds to a tokenizer: its id, and whether it is special, if it says so."""

    index: Any
    special: Any = None


def added_tokens(directory: Path) -> list[tuple[Any, AddedToken]]:
    """Returns the added tokens by piece, from the first file that has any."""
    path = directory / "tokenizer_config.json"
    added = read_part(path, tokenizer_settings(directory), "added_tokens_decoder", dict)
    if added:
        return [(read_piece(t), AddedToken(number_in(i), is_special(t))) for i, t in added.items()]
    if (path := directory / "added_tokens.json").exists() and (found := read_json(path)):
        return [(piece, AddedToken(index)) for piece, index in found.items()]
    if (path := directory / "tokenizer.json").exists():
        listed = read_part(path, read_json(path, dict, MAX_VOCABULARY), "added_tokens", list)
        tokens = [token for token in listed if isinstance(token, dict)]
        return [(read_piece(t), AddedToken(t.get("id"), is_special(t))) for t in tokens]
    return []


def is_special(token: Any) -> Any:
    """Returns what a file says of whether a token is special, None where it says nothing."""
    return token.get("special") if isinstance(token, dict) else None


def language_codes(directory: Path, first_id: int) -> dict[str, int]:
    """Returns the pieces of languages with their ids, which lie behind the `first_id` others.

    Versions of transformers write them into different files, with their ids or in their order.

    Raises:
        ValueError: when there is none, or the files add a word, which a tag cannot be: text never
            becomes a tag.
    """
    added = added_tokens(directory)
    found: dict[Any, Any] = {piece: token.index for piece, token in added}
    listed: list[Any] = []
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        path = directory / file
        settings = read_json(path) if path.exists() else {}
        for name in ("extra_special_tokens", "additional_special_tokens"):
            part = read_part(path, settings, name, (list, dict))
            listed = listed or [*(part.values() if isinstance(part, dict) else part)]
    special = [read_piece(piece) for piece in listed]
    if not found:
        found = {piece: first_id + index for index, piece in enumerate(special)}
    words = {piece for piece, token in added if token.special is not True} - {*special}
    codes = behind(first_id, found)
    check_no_words(directory, [p for p in codes if p in words and not LANGUAGE.fullmatch(p)])
    if not codes and tokenizer_settings(directory).get("language_codes") == "m2m100":
        pieces = [f"__{code}__" for code in M2M100_LANGUAGES]
        codes = {piece: first_id + index for index, piece in enumerate(pieces)}
    if not codes:
        raise ValueError(
            f"{directory}: tokenizer_config.json, added_tokens.json or tokenizer.json must list "
            "the codes of the languages. Received: none"
        )
    return codes


def read_part(
    path: Path, settings: Mapping[str, Any], name: str, kind: type | tuple[type, ...]
) -> Any:
    """Returns a list or an object inside a file, an empty one where there is none."""
    value = settings.get(name)
    if value is None:
        return kind() if isinstance(kind, type) else kind[0]()
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = " or ".join(k.__name__ for k in kinds)
        raise ValueError(f"{path}: `{name}` must be a JSON {names}. Received: {shown(value)}")
    return value


def number_in(text: str) -> int | None:
    """Returns the number that a key of JSON writes, None for other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def behind(first_id: int, found: Mapping[Any, Any]) -> dict[str, int]:
    """Those of the pieces found in a file whose ids are `first_id` or larger."""
    return {
        piece: index
        for piece, index in found.items()
        if isinstance(piece, str) and type(index) is int and index >= first_id
    }


def language_tags(
    config: Mapping[str, Any],
    tokenizers: tuple[SentencePieceTokenizer, SentencePieceTokenizer],
    source_language: str | None,
    target_language: str | None,
) -> dict[str, Any]:
    """Returns the arguments of `Translator` that name languages, or raises `ValueError`."""
    source, target = tokenizers
    if find_family(config) is M2M100:
        return {
            "source_tag": checked_tag("source_language", source_language, source),
            "target_tag": checked_tag("target_language", target_language, target),
        }
    if source_language is not None:
        raise ValueError(
            "`source_language` must be None: a Marian model is told the target language alone. "
            f"Received: source_language={source_language!r}"
        )
    if target_language is None:
        return {}
    return {"source_tag": checked_tag("target_language", target_language, source)}


def checked_tag(name: str, language: str | None, tokenizer: SentencePieceTokenizer) -> str:
    """Returns the piece of a language, or raises `ValueError` when there is none."""
    forms = (f"{language}", f"__{language}__", f">>{language}<<")
    tags = tokenizer.tags
    found = next((form for form in forms if form in tags), None)
    if found is None:
        listed = ", ".join(tags[:6]) + (f" and {len(tags) - 6} more" if tags[6:] else "")
        raise ValueError(
            f"`{name}` must be a language of the model: {listed or 'it has none'}. "
            f"Received: {name}={language!r}"
        )
    return found
