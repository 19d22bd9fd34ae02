"""Reads a translation model of Marian: its own files, as OPUS-MT publishes them."""

import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer import arguments
from keras_transformer.decoding import BeamSearch, GreedySearch, Search
from keras_transformer.decoding.search import LARGEST_LENGTH_PENALTY
from keras_transformer.interop.files import (
    MAX_BEAMS,
    MAX_RATE,
    check_names,
    checked_directory,
    checked_flag,
    checked_integer,
    checked_number,
    file_beside,
    read_text,
    shown,
)
from keras_transformer.interop.marian_settings import read_settings
from keras_transformer.interop.npz_file import read_text as read_array_text
from keras_transformer.interop.tensor_file import TensorFile
from keras_transformer.interop.tensor_files import open_tensors
from keras_transformer.interop.token_rows import TokenRows, number_tokens, vocabulary_arguments
from keras_transformer.interop.tokenizers import (
    Tokenization,
    convert_tokens,
    make_tokenizers,
    sentencepiece_files,
)
from keras_transformer.interop.vocabulary_files import (
    read_marian_vocabulary,
    read_sentencepiece_pieces,
)
from keras_transformer.interop.weights import build_with, weight_shapes
from keras_transformer.layers import PositionalEncoding
from keras_transformer.models import Transformer
from keras_transformer.serving import Translator

MODEL_YML = "special:model.yml"
NORM_EPSILON = 1e-6
BEAM_SIZE, LENGTH_FACTOR = 12, 3  # Marian's own, where decoder.yml says none
UNKNOWN, END = "<unk>", "</s>"
# Marian's own approximation of GELU is none that Keras has.
ACTIVATIONS = {"relu": "relu", "swish": "silu"}
# Settings of model.yml that change what is computed, the values that ours computes, and the value
# of a file that does not say. Letters "d", for dropout, are left out of the sequences of steps.
FIXED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-preprocess": ("", "n"),
    "transformer-postprocess": ("an", "a"),
    "transformer-postprocess-top": ("", "n"),
    "transformer-postprocess-emb": ("", "n"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-no-projection": (False,),
    "transformer-depth-scaling": (False,),
    "transformer-train-position-embeddings": (False,),
    "transformer-tied-layers": ([],),
    "transformer-rnn-projection": (False,),
    "transformer-pool": (False,),
    "lemma-dim-emb": (0,),
    "ulr": (False,),
    "right-left": (False,),
}
DROPOUTS = ("transformer-dropout", "transformer-dropout-attention", "transformer-dropout-ffn")
# Settings of decoder.yml that change what is found, and that no search here has.
NOT_HELD = ("word-penalty", "output-sampling", "force-decode", "shortlist", "max-length-crop")
LARGEST_FACTOR = 1000  # of the length
STEPS = [name for name in FIXED if "process" in name]
PARTS = {"attention": "self", "self_attention": "self", "cross_attention": "context"}
LETTERS = {"query": "q", "key": "k", "value": "v", "attention_output": "o"}
KINDS = {"kernel": "W", "bias": "b", "gamma": "scale", "beta": "bias"}
SIDES = {"source": "encoder", "target": "decoder"}
OUTPUT = "decoder_ff_logit_out"


def load_marian(
    directory: str | PathLike[str],
    source_tokenizer: str | PathLike[str] | None = None,
    target_tokenizer: str | PathLike[str] | None = None,
    *,
    tokenization: Tokenization = "sentencepiece",
    tags: Sequence[str] | None = None,
    search: Search | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    **options: Any,
) -> Translator:
    """Reads a translation model that Marian trained.

    Neither Marian nor a reader of YAML is needed, and nothing from the files is run. The model goes
    through `fit`, every search and `export`, as any of ours. Targets start from a vector of zeros,
    which is one more id here: that of padding.

    Args:
        directory: the path of a directory with `decoder.yml`, and the files that it names: a model,
            vocabularies `.spm` or `.yml`. Without it, a single `*.decoder.yml`, as Marian's
            training leaves it, or `model.npz` and `vocab.spm` or `vocab.yml`. Or the path of one of
            several `*.decoder.yml`. Files named with a path are looked for beside it.
        source_tokenizer: the file of the sentencepiece model of the sources, where vocabularies
            are `.yml`. None takes `source.spm` of the directory.
        target_tokenizer: that of the targets. None takes `target.spm`.
        tokenization: what tokens are: "sentencepiece", "characters", or "words" between spaces, as
            a program of one's own makes them.
        tags: the tokens that text never becomes; see `SentencePieceTokenizer`.
        search: a search in place of that of decoder.yml: `beam-size`, `normalize`, the power of
            the length that divides a score, and `max-length-factor`, the longest output for each
            source token. Where decoder.yml leaves them out they are Marian's own: 12, 0 and 3. Like
            Marian's, the search never writes `<unk>`.
        dtype: the dtype policy of the model; Keras's when None.
        **options: arguments of `Translator`, such as `max_length`.

    Returns:
        A `Translator`. Its search stops exactly, as `BeamSearch(early_stopping=False)`. A model
        that normalises first, with `transformer-preprocess: n`, gives a warning: Marian's own
        decoder computes it in another way.

    Raises:
        ValueError: when a file is missing, damaged or of another kind of model, with the name of
            the array or option. No memory is taken before sizes, names and settings are checked.

    Reference: Junczys-Dowmunt et al. 2018, "Marian: Fast Neural Machine Translation in C++".

    Example:

    >>> load_marian("/nowhere")
    Traceback (most recent call last):
        ...
    ValueError: `directory` must be a directory. Received: '/nowhere'
    """
    arguments.one_of("tokenization", tokenization, ("sentencepiece", "characters", "words"))
    path = Path(directory)
    if path.suffix == ".yml" and path.is_file():
        directory, decoder = path.parent, read_decoder_file(path)
    else:
        directory = checked_directory(directory)
        decoder = read_decoder(directory)
    tensors = open_tensors(named_file(directory, decoder["models"][0]))
    settings = read_model_settings(tensors)
    paths = [named_file(directory, name) for name in decoder["vocabs"]]
    sides = number_sides(tensors, paths, tokenization)
    model = make_model(tensors, settings, sides, dtype)
    check_tensors(model, tensors, sides)
    files: list[Path] = []
    if tokenization == "sentencepiece":
        own = [path if path.suffix == ".spm" else None for path in paths]
        given = {"source": source_tokenizer or own[0], "target": target_tokenizer or own[1]}
        files = sentencepiece_files(directory, given, sides[0] != sides[1])
    tokenizers = make_tokenizers(sides, tokenization, tags, files)
    search = make_search(decoder, sides[1].special["unk_id"]) if search is None else search
    build_with(model, lambda name: our_weight(name, tensors, model, sides))
    if model.norm_first:
        warnings.warn(
            f"{tensors.path}: `transformer-preprocess` is 'n', which Marian's decoder computes in "
            "another way from the second token on. This model computes what was trained, as "
            "CTranslate2 does: translations differ from Marian's.",
            stacklevel=2,
        )
    source, target = tokenizers
    return Translator(model, source, target, search, **options)


def read_decoder(directory: Path) -> dict[str, Any]:
    """Returns the settings of decoder.yml, with one model and two vocabularies."""
    path = directory / "decoder.yml"
    if path.exists():
        return read_decoder_file(path)
    found = sorted(directory.glob("*.decoder.yml"))
    if len(found) > 1:
        names = [path.name for path in found]
        raise ValueError(
            f"{directory} must hold decoder.yml, or a single *.decoder.yml; give the path of one, "
            f"or copy it to decoder.yml. Received: {shown(names)}"
        )
    if found:
        return read_decoder_file(found[0])
    vocabularies = ("vocab.spm", "vocab.yml")
    checked_directory(directory, ("decoder.yml", "model.npz"))
    checked_directory(directory, vocabularies)
    name = next(name for name in vocabularies if (directory / name).exists())
    return {"models": ["model.npz"], "vocabs": [name, name]}


def named_file(directory: Path, name: Any) -> Path:
    """Returns the path of a file that decoder.yml names, beside it, or raises `ValueError`.

    Marian's training writes paths of its own machine. The file of that name must lie beside.
    """
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) < 2 or ".." in parts:
        return file_beside(directory, name)
    if not (directory / parts[-1]).is_file():
        raise ValueError(
            f"{directory} must hold {shown(parts[-1])}, which decoder.yml names with a path; copy "
            f"it there. Received: {shown(name)}"
        )
    return file_beside(directory, parts[-1])


def read_decoder_file(path: Path) -> dict[str, Any]:
    """Returns the settings of a decoder.yml, with one model and two vocabularies."""
    decoder = read_settings(path, read_text(path))
    for name, counts in {"models": (1,), "vocabs": (1, 2)}.items():
        files = decoder.get(name)
        if not isinstance(files, list) or len(files) not in counts:
            raise ValueError(
                f"{path}: `{name}` must list {' or '.join(map(str, counts))} files. "
                f"Received: {shown(files)}"
            )
    decoder["vocabs"] = 2 * decoder["vocabs"] if len(decoder["vocabs"]) == 1 else decoder["vocabs"]
    return decoder


def read_model_settings(tensors: TensorFile) -> dict[str, Any]:
    """Returns the settings of model.yml, or raises `ValueError` for one that ours does not have."""
    if MODEL_YML not in tensors:
        raise ValueError(f"{tensors.path}: must hold {MODEL_YML}. Received: {shown([*tensors])}")
    settings = read_settings(tensors.path, read_array_text(tensors, MODEL_YML))
    for name in STEPS:
        if isinstance(settings.get(name), str):
            settings[name] = settings[name].replace("d", "")
    for name, values in FIXED.items():
        value = settings.setdefault(name, values[0])
        value = "" if value is None and "" in values else [] if value is None else value
        settings[name] = value
        if not any(value == known and type(value) is type(known) for known in values):
            rule = " or ".join(repr(known) for known in values)
            raise ValueError(
                f"{tensors.path}: `{name}` must be {rule}. Received: {name}={shown(value)}"
            )
    norm_first = settings["transformer-preprocess"] == "n"
    expected = {
        "transformer-postprocess": "a" if norm_first else "an",
        "transformer-postprocess-top": "n" if norm_first else "",
    }
    for name, value in expected.items():
        if settings[name] != value:
            raise ValueError(
                f"{tensors.path}: `{name}` must be {value!r} where `transformer-preprocess` is "
                f"{settings['transformer-preprocess']!r}. Received: {name}={settings[name]!r}"
            )
    activation = settings.get("transformer-ffn-activation", "swish")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(
            f"{tensors.path}: `transformer-ffn-activation` must be one of "
            f"{', '.join(ACTIVATIONS)}. Received: {shown(activation)}"
        )
    settings["transformer-ffn-activation"] = activation
    return settings


def number_sides(
    tensors: TensorFile, paths: Sequence[Path], tokenization: Tokenization
) -> list[TokenRows]:
    """Returns the rows of source and target, or raises `ValueError`."""
    vocabularies = []
    for path, side in zip(paths, ("encoder", "decoder"), strict=True):
        table = embeddings_name(tensors, side)
        size = tensors[table].shape[0]
        if path.suffix not in {".spm", ".yml", ".yaml", ".json"}:
            raise ValueError(
                f"`vocabs` must be .spm or .yml; factored vocabularies are not read. "
                f"Received: {path.name}"
            )
        if path.suffix == ".spm":
            ids = {piece: index for index, piece in enumerate(read_sentencepiece_pieces(path))}
        else:
            ids = read_marian_vocabulary(path)
        if not ids or max(ids.values()) >= size:
            raise ValueError(
                f"{path}: ids must be below the {size} rows of {table}. "
                f"Received: {max(ids.values(), default=None)}"
            )
        for token in (UNKNOWN, END):
            if token not in ids:
                raise ValueError(f"{path}: must have {token}. Received: {len(ids)} tokens")
        tokens: list[str | None] = [None] * size
        for token, index in ids.items():
            tokens[index] = token
        vocabularies.append(tokens)
    special = [
        {
            "pad_id": None,
            "unk_id": tokens.index(UNKNOWN),
            "bos_id": None,
            "eos_id": tokens.index(END),
        }
        for tokens in vocabularies
    ]
    texts = None
    if tokenization != "sentencepiece":
        pairs = zip(vocabularies, special, strict=True)
        texts = [convert_tokens(*pair, tokenization) for pair in pairs]
    return number_tokens(vocabularies, special, texts)


def embeddings_name(tensors: TensorFile, side: str) -> str:
    """Returns the name of the embeddings of a side, or raises `ValueError`."""
    names = ("Wemb", f"{side}_Wemb")
    for name in names:
        if name in tensors:
            if len(tensors[name].shape) != 2 or not tensors[name].size:
                raise ValueError(
                    f"{tensors.path}: {name} must be (tokens, width). "
                    f"Received: shape={tensors[name].shape}"
                )
            return name
    raise ValueError(
        f"{tensors.path}: must hold {' or '.join(names)}. Received: {shown([*tensors])}"
    )


def output_name(tensors: TensorFile) -> str | None:
    """Returns the name of an output matrix of its own, or None."""
    return next((name for end in ("W", "Wt") if (name := f"{OUTPUT}_{end}") in tensors), None)


def make_model(
    tensors: TensorFile, settings: Mapping[str, Any], sides: Sequence[TokenRows], dtype: Any
) -> Transformer:
    """Returns the model of a file, not built yet, or raises `ValueError`."""
    tables = [embeddings_name(tensors, side) for side in ("encoder", "decoder")]
    joint = tables[0] == tables[1] and sides[0] == sides[1]
    d_model = tensors[tables[1]].shape[1]
    names = ("enc-depth", "dec-depth", "transformer-heads", "transformer-dim-ffn")
    numbers = {
        name: checked_integer(tensors.path, name, settings.get(name), least=1) for name in names
    }
    decoder_d_ff = settings.get("transformer-decoder-dim-ffn")
    decoder_d_ff = numbers["transformer-dim-ffn"] if decoder_d_ff in (None, 0) else decoder_d_ff
    checked_integer(tensors.path, "transformer-decoder-dim-ffn", decoder_d_ff, least=1)
    rates = {
        name: checked_number(tensors.path, name, settings.get(name, 0.0), 0, MAX_RATE)
        for name in DROPOUTS
    }
    depth = numbers["enc-depth"] + numbers["dec-depth"]
    if depth > len(tensors) or d_model % numbers["transformer-heads"] or d_model % 2 or d_model < 4:
        raise ValueError(
            f"{tensors.path}: must have arrays for each of {depth} layers, of an even width that "
            f"{numbers['transformer-heads']} heads divide. Received: {len(tensors)} arrays, "
            f"width {d_model}"
        )
    return Transformer(
        **vocabulary_arguments(sides, joint=joint),
        d_model=d_model,
        num_layers=numbers["enc-depth"],
        num_decoder_layers=numbers["dec-depth"],
        num_heads=numbers["transformer-heads"],
        d_ff=numbers["transformer-dim-ffn"],
        decoder_d_ff=decoder_d_ff,
        dropout=rates["transformer-dropout"],
        attention_dropout=rates["transformer-dropout-attention"],
        feed_forward_dropout=rates["transformer-dropout-ffn"],
        norm_first=settings["transformer-preprocess"] == "n",
        activation=ACTIVATIONS[settings["transformer-ffn-activation"]],
        embedding_norm=settings["transformer-postprocess-emb"] == "n",
        norm_epsilon=NORM_EPSILON,
        position=PositionalEncoding(layout="halves", frequencies="tensor2tensor"),
        tie_output=output_name(tensors) is None,
        logits_bias=True,
        dtype=dtype,
    )


def convert_name(name: str, norm_first: bool) -> str:
    """Returns Marian's name of a weight of an encoder or decoder, or of a norm of embeddings."""
    suffix = "_pre" if norm_first else ""
    side, *inside, kind = name.split("/")
    if side.endswith("_norm"):
        return f"{SIDES[side.removesuffix('_norm')]}_emb_ln_{KINDS[kind]}_pre"
    if inside == ["final_norm"]:
        return f"{side}_top_ln_{KINDS[kind]}"
    layer, part, sublayer = inside
    start = f"{side}_l{int(layer.removeprefix('layer_')) + 1}"
    if part == "feed_forward":
        return f"{start}_ffn_{KINDS[kind]}{1 if sublayer == 'inner' else 2}"
    if part == "feed_forward_residual":
        return f"{start}_ffn_ffn_ln_{KINDS[kind]}{suffix}"
    if part.endswith("_residual"):
        part = PARTS[part.removesuffix("_residual")]
        return f"{start}_{part}_Wo_ln_{KINDS[kind]}{suffix}"
    return f"{start}_{PARTS[part]}_{KINDS[kind]}{LETTERS[sublayer]}"


def is_of_tokens(name: str) -> bool:
    """Whether a weight has a row for each token."""
    return name.endswith(("embeddings", "/logits_bias"))


def check_tensors(model: Transformer, tensors: TensorFile, sides: Sequence[TokenRows]) -> None:
    """Raises `ValueError` unless the file has the arrays of the model, of the right shapes."""
    expected: dict[str, tuple[int, ...]] = {}
    for name, shape in weight_shapes(model).items():
        if not is_of_tokens(name):
            shape = shape if len(shape) == 2 else (1, *shape)
            expected[convert_name(name, model.norm_first)] = shape
    sizes = [max(side.rows) + 1 for side in sides]
    for side, size in zip(("encoder", "decoder"), sizes, strict=True):
        expected[embeddings_name(tensors, side)] = (size, model.d_model)
    output = output_name(tensors)
    if output:
        own = (model.d_model, sizes[1])
        expected[output] = own if output.endswith("_W") else own[::-1]
    bias = f"{OUTPUT}_b"
    expected[bias] = (1, sizes[1])
    missing = [name for name in expected if name not in tensors and name != bias]
    unknown = [name for name in tensors if name not in expected and not name.startswith("special:")]
    check_names(tensors.path, missing, unknown, f"{len(tensors)} arrays")
    for name, shape in expected.items():
        found = tensors[name].shape if name in tensors else shape
        # Vectors may lack the first axis.
        if found != shape and not (shape[0] == 1 and found == shape[1:]):
            raise ValueError(
                f"{tensors.path}: {name} must have the shape {shape}. Received: {found}"
            )


def our_weight(
    name: str, tensors: TensorFile, model: Transformer, sides: Sequence[TokenRows]
) -> np.ndarray:
    """Reads a weight of ours from their file."""
    source, target = sides
    if not is_of_tokens(name):
        return tensors.read_float32(convert_name(name, model.norm_first))
    if name.endswith("/logits_bias"):
        bias = f"{OUTPUT}_b"
        return target.bias(tensors.read_float32(bias).reshape(-1) if bias in tensors else None)
    output = output_name(tensors)
    if output and name.endswith("/reverse_embeddings"):
        table = tensors.read_float32(output)
        return target.take(table.T if output.endswith("_W") else table).T
    if name.startswith("source_embedding/"):
        return source.take(tensors.read_float32(embeddings_name(tensors, "encoder")))
    return target.take(tensors.read_float32(embeddings_name(tensors, "decoder")))


def make_search(decoder: Mapping[str, Any], unk_id: int) -> Search:
    """Returns the search that decoder.yml describes, or raises `ValueError`."""
    where = "decoder.yml"
    beams = checked_integer(where, "beam-size", decoder.get("beam-size", BEAM_SIZE), 1, MAX_BEAMS)
    power = decoder.get("normalize", 0.0)
    power = float(power) if isinstance(power, bool) else power  # Marian's flag without a value
    power = checked_number(where, "normalize", power, 0, LARGEST_LENGTH_PENALTY)
    for name in NOT_HELD:
        if decoder.get(name) not in (None, 0, "", [], [0]):
            raise ValueError(
                f"{where}: `{name}` must be off; give `search=` instead. "
                f"Received: {name}={shown(decoder[name])}"
            )
    allows_unknown = checked_flag(where, "allow-unk", decoder.get("allow-unk", False))
    factor = decoder.get("max-length-factor", LENGTH_FACTOR)
    options: dict[str, Any] = {
        "suppressed_ids": () if allows_unknown else (unk_id,),
        "max_length_ratio": checked_number(
            where, "max-length-factor", factor, 0.01, LARGEST_FACTOR
        ),
    }
    if beams == 1:
        return GreedySearch(**options)
    return BeamSearch(beams, power, num_hypotheses=1, length_formula="power", **options)
