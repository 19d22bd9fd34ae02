"""Writes a translator as a directory of CTranslate2."""

import dataclasses
import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer import arguments
from keras_transformer.atomic_files import new_directory
from keras_transformer.decoding import BeamSearch, Sampling, Search
from keras_transformer.interop.ctranslate2_form import (
    ACTIVATIONS,
    EMBEDDINGS,
    GATES,
    POSITIONS,
    PROJECTION,
    PROJECTION_BIAS,
    places,
    relative_bias,
)
from keras_transformer.interop.files import shown
from keras_transformer.interop.token_rows import NEVER
from keras_transformer.interop.weights import read_weights, weight_shapes
from keras_transformer.layers import (
    PositionalEncoding,
    RelativePositionBias,
    RotaryPositionalEncoding,
)
from keras_transformer.layers.feed_forward import activation_config
from keras_transformer.layers.positions import AddedPosition
from keras_transformer.layers.stack import Stack
from keras_transformer.models import Transformer
from keras_transformer.serving import Translator
from keras_transformer.text import SentencePieceTokenizer
from keras_transformer.text.tokenizer import Tokenizer

QUANTIZATIONS = (
    *("float32", "float16", "bfloat16", "int16"),
    *("int8", "int8_float32", "int8_float16", "int8_bfloat16"),
)
UNKNOWN_TO_SEARCH = (  # what no call of CTranslate2 can ask for
    *("allowed_ids", "min_length_ratio", "coverage_penalty", "num_groups", "min_p", "seed"),
)
OPTIONS_OF_CALL = {  # of a search here, and the argument of CTranslate2 that does the same
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "min_length": "min_decoding_length",
    "temperature": "sampling_temperature",
    "top_k": "sampling_topk",
    "top_p": "sampling_topp",
}
LONGEST_INPUT = 1024  # what CTranslate2 reads at most unless told otherwise


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The tokens of a side by id, each once, and what its special ones are called.

    Args:
        tokens: list of str.
        unknown, end: the tokens of `unk_id` and `eos_id`.
        start: the token of `bos_id`, that targets start from.
    """

    tokens: list[str]
    unknown: str
    end: str
    start: str


def save_ctranslate2(
    translator: Translator, directory: str | PathLike[str], quantization: str | None = None
) -> None:
    """Writes a translator as a directory that `ctranslate2.Translator` opens.

    It holds the weights, `config.json`, the vocabularies, and the models of sentencepiece as
    `source.spm` and `target.spm`. CTranslate2 gets tokens, and adds the end of sources itself. It
    knows no search: give it `beam_size` and `length_penalty`. What a search here never writes
    (padding, the start, `suppressed_ids`) has the logit bias -1e9 in a model with `logits_bias`, as
    all of OPUS-MT. For another model give `suppress_sequences`. A warning names the tags, the
    forbidden tokens, `max_length` and the other options that the caller must give.

    Its scores are sums divided by `length ** length_penalty`, and with a length penalty its beam
    search stops early, as `BeamSearch(length_formula="power", early_stopping=True)`. Tokens that
    never come leave their probability to the others, as with `renormalize=True`. A warning says
    where the search here does otherwise: some translations may differ.
    What starts a text, such as a language code, is a token there: the first of the source, or the
    `target_prefix`.

    Args:
        translator: a `Translator` of a `Transformer`.
        directory: a path at which nothing is. It appears whole or not at all.
        quantization: how weights are stored: "int8", "int16", "float16", "bfloat16", or "int8"
            with the float that the rest has, as "int8_float16". None stores float32.

    Raises:
        ImportError: when CTranslate2 is not installed, or PyTorch, which it needs for bfloat16.
        ValueError: when CTranslate2 has no place for a setting, with its name, or `directory`
            exists.

    Example:

    >>> import os, tempfile
    >>> from keras_transformer import GreedySearch, Transformer
    >>> from keras_transformer.text import CharacterTokenizer
    >>> tokenizer = CharacterTokenizer("abc")
    >>> model = Transformer(tokenizer.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> directory = os.path.join(tempfile.mkdtemp(), "abc")
    >>> save_ctranslate2(Translator(model, tokenizer, search=GreedySearch()), directory)
    >>> sorted(os.listdir(directory))
    ['config.json', 'model.bin', 'shared_vocabulary.json']
    """
    specs = import_specs()
    arguments.one_of("quantization", quantization, (None, *QUANTIZATIONS))
    if quantization is not None and "bfloat16" in quantization:
        try:
            import torch  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"CTranslate2 rounds to {quantization!r} by PyTorch: pip install torch"
            ) from error
    check_settings(translator)
    vocabularies = make_vocabularies(translator)
    warn_of_what_is_left_out(translator, vocabularies)
    spec = make_spec(translator.model, specs)
    for variable, values in collect_variables(translator).items():
        if "float16" in (quantization or "") and variable == PROJECTION_BIAS:
            values = np.maximum(values, np.finfo("float16").min)
        scope, _, name = variable.rpartition("/")
        setattr(specs.model_spec.index_spec(spec, scope), name, values)
    source, target = vocabularies
    spec.register_source_vocabulary(source.tokens)
    spec.register_target_vocabulary(target.tokens)
    set_config(spec.config, translator, target)
    spec.validate()
    spec.optimize(quantization=quantization)
    with new_directory(directory) as folder:
        spec.save(folder)
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
            if isinstance(tokenizer, SentencePieceTokenizer):
                (Path(folder) / f"{side}.spm").write_bytes(tokenizer.model)


def warn_of_what_is_left_out(translator: Translator, vocabularies: Sequence[Vocabulary]) -> None:
    """Warns of what a directory has no place for, and says how its caller gives it."""
    said = []
    if translator.source_tag is not None:
        said.append(f"begin each source with {translator.source_tag!r}")
    if translator.target_tag is not None:
        said.append(f"give target_prefix=[[{translator.target_tag!r}]]")
    model = translator.model
    forbidden = {*translator.search.suppressed_ids} - {model.pad_id, model.bos_id}
    if forbidden and not model.logits_bias:
        tokens = [[vocabularies[1].tokens[index]] for index in sorted(forbidden)]
        said.append(f"give suppress_sequences={shown(tokens)}")
    config, plain = translator.search.get_config(), type(translator.search)().get_config()
    options = {
        theirs: config[name] - (name == "min_length")  # which counts the end here
        for name, theirs in OPTIONS_OF_CALL.items()
        if config.get(name) != plain.get(name)
    }
    if isinstance(translator.search, Sampling):
        options.setdefault("sampling_topk", 0)  # all tokens; CTranslate2 draws from one
    if translator.max_length is not None:
        options["max_decoding_length"] = translator.max_length
    if translator.max_source_length > LONGEST_INPUT:
        options["max_input_length"] = translator.max_source_length
    said += [f"give {name}={value}" for name, value in options.items()]
    if config["max_length_ratio"] is not None:
        ratio = f"{config['max_length_ratio']:g}"
        said.append(f"give a max_decoding_length of {ratio} times the tokens of the source")
    if translator.split_sentences:
        said.append("give one sentence at a time (split_sentences)")
    if said:
        warnings.warn(
            "CTranslate2's files have no place for tags, forbidden tokens and options of a search: "
            f"{', '.join(said)} when you translate.",
            stacklevel=3,
        )
    differ = list_differences(translator.search, bool(forbidden))
    if differ:
        warnings.warn(
            f"CTranslate2 searches with {', '.join(differ)}, which this search does not: other "
            "hypotheses and scores may be the best there.",
            stacklevel=3,
        )


def list_differences(search: Search, has_forbidden: bool) -> list[str]:
    """Returns the options of CTranslate2's searches, by our names, that a search does not have."""
    found = []
    if isinstance(search, BeamSearch) and search.beam_size > 1 and search.length_penalty:
        found += [] if search.length_formula == "power" else ["length_formula='power'"]
        found += [] if search.early_stopping is True else ["early_stopping=True"]
    if has_forbidden and search.renormalize is not True:
        found.append("renormalize=True")
    return found


def import_specs() -> Any:
    """Returns CTranslate2's module of specifications, or raises `ImportError`."""
    try:
        import ctranslate2.specs
    except ImportError as error:
        raise ImportError(
            "`save_ctranslate2` needs CTranslate2: pip install ctranslate2"
        ) from error
    return ctranslate2.specs


def check_settings(translator: Translator) -> None:
    """Raises `ValueError` for a setting that CTranslate2 has no place for."""
    model = translator.model
    if not isinstance(model, Transformer):
        raise ValueError(
            f"the model must be a Transformer for CTranslate2. Received: a {type(model).__name__}"
        )
    refused: dict[str, Any] = {}
    config, plain = translator.search.get_config(), type(translator.search)().get_config()
    for name in UNKNOWN_TO_SEARCH:
        if config.get(name) != plain.get(name):
            refused[f"search.{name}"] = config[name]
    if model.window is not None:
        refused["window"] = model.window
    position = model.position
    held = (AddedPosition, RotaryPositionalEncoding, RelativePositionBias)
    is_held = isinstance(position, held)
    if not is_held or getattr(position, "scaling", None) == "yarn":
        refused["position"] = position
    if activation_number(model.encoder) is None:
        refused["activation"] = activation_config(model.activation)
    tokenizers = {"source": translator.source_tokenizer, "target": translator.target_tokenizer}
    for side, tokenizer in tokenizers.items():
        if tokenizer.reverse:
            refused[f"{side}_tokenizer.reverse"] = True
        if tokenizer.lowercase:
            refused[f"{side}_tokenizer.lowercase"] = True
        if tokenizer.normalization != "identity":
            refused[f"{side}_tokenizer.normalization"] = tokenizer.normalization
    for name, value in refused.items():
        raise ValueError(
            f"`{name}` must be one that CTranslate2 can hold, which it cannot. "
            f"Received: {name}={value!r:.200}"
        )


def activation_number(stack: Stack) -> int | None:
    """Returns CTranslate2's number of an activation, None for one that it does not have."""
    name = activation_config(stack.activation)
    name = {gated: plain for plain, gated in GATES.items()}.get(name, name)
    return next((number for number, known in ACTIVATIONS.items() if known == name), None)


def make_spec(model: Transformer, specs: Any) -> Any:
    """Returns CTranslate2's specification of a model, its weights not set."""
    options: dict[str, Any] = {
        "pre_norm": model.norm_first,
        "activation": activation_number(model.encoder),
        "layernorm_embedding": model.embedding_norm,
        "ffn_glu": isinstance(model.activation, str),
        "rms_norm": model.rms_norm,
        "num_heads_kv": model.num_key_value_heads,
    }
    position = model.position
    if isinstance(position, RotaryPositionalEncoding):
        options |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": position.base}
        if position.scaling == "linear":
            linear = specs.attention_spec.RotaryScalingType.Linear
            options |= {"rotary_scaling_type": linear, "rotary_scaling_factor": position.factor}
    options["relative_attention_bias"] = isinstance(position, RelativePositionBias)
    encoder, decoder = model.encoder, model.decoder
    kinds = specs.transformer_spec
    spec = kinds.TransformerSpec(
        kinds.TransformerEncoderSpec(encoder.num_layers, encoder.num_heads, **options),
        kinds.TransformerDecoderSpec(decoder.num_layers, decoder.num_heads, **options),
    )
    if isinstance(position, RelativePositionBias):
        for layer in (*spec.encoder.layer, *spec.decoder.layer):
            distance = np.int32(position.max_distance)
            layer.self_attention.relative_attention_max_distance = distance
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = model.scale_embeddings
    return spec


def collect_variables(translator: Translator) -> dict[str, np.ndarray]:
    """Returns the float32 variables of a model by CTranslate2's names."""
    model = translator.model
    model.build()
    weights = read_weights(model)
    placed = places(model, weight_shapes(model))
    parts: dict[str, list[np.ndarray]] = {}
    # The parts of a variable are in the order of their rows.
    for name in sorted(placed, key=lambda name: placed[name].begin):
        values = weights.pop(name)
        values = values.T if name.endswith("/kernel") else values
        parts.setdefault(placed[name].variable, []).append(values)
    found = {name: np.concatenate(values) for name, values in parts.items()}
    source, target = model.source_embedding.name, model.target_embedding.name
    found[EMBEDDINGS["encoder"][0]] = weights[f"{source}/embedding/embeddings"]
    found[EMBEDDINGS["decoder"][0]] = table = weights[f"{target}/embedding/embeddings"]
    untied = weights.get(f"{target}/embedding/reverse_embeddings")
    found[PROJECTION] = table if untied is None else untied.T
    if model.logits_bias:
        bias = weights[f"{target}/logits_bias"].copy()
        # Our searches never choose these. CTranslate2 is told nothing of a search.
        never = {*translator.search.suppressed_ids, model.pad_id, model.bos_id} - {model.eos_id}
        bias[sorted(never)] = NEVER
        found[PROJECTION_BIAS] = bias
    if isinstance(model.position, RelativePositionBias):
        for stack in (model.encoder, model.decoder):
            for layer in range(1, stack.num_layers):
                found[relative_bias(stack.name, layer)] = found[relative_bias(stack.name, 0)]
    if isinstance(model.position, PositionalEncoding):
        longest = model.limit_lengths(translator.max_source_length, translator.max_length)
        length = max(LONGEST_INPUT, translator.max_source_length, longest)
        rows = np.asarray(model.position.rows(np.arange(length)), "float32")
        found |= {f"{side}/{POSITIONS}": rows for side in ("encoder", "decoder")}
    return {name: np.ascontiguousarray(values) for name, values in found.items()}


def make_vocabularies(translator: Translator) -> list[Vocabulary]:
    """Returns the vocabularies of source and target, whose special tokens have the same names."""
    sizes = translator.model.vocabulary_sizes
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    found: list[Vocabulary] = []
    for tokenizer, size in zip(tokenizers, sizes, strict=True):
        tokens = name_tokens(tokenizer, size)
        if found:
            first = found[0]
            names = {
                tokenizer.unk_id: first.unknown,
                tokenizer.eos_id: first.end,
                tokenizer.bos_id: first.start,
            }
            tokens = renamed(tokens, names)
        found.append(
            Vocabulary(
                tokens, *(tokens[i] for i in (tokenizer.unk_id, tokenizer.eos_id, tokenizer.bos_id))
            )
        )
    return found


def name_tokens(tokenizer: Tokenizer, size: int) -> list[str]:
    """Returns a token for each of `size` ids: those of the tokenizer, and names for the others."""
    listed = tokenizer.vocabulary
    unknown = listed[tokenizer.unk_id]
    special = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id}
    first = {token: index for index, token in reversed(list(enumerate(listed)))}
    first |= {listed[index]: index for index in special}
    tokens = []
    for index in range(size):
        token = listed[index] if index < len(listed) else unknown
        if first[token] != index:  # an id without a piece, or text that reads as a special token
            token = f"<unused_{index}>"
            while token in first:
                token = f"<{token}>"
        tokens.append(token)
    return tokens


def renamed(tokens: list[str], names: dict[int, str]) -> list[str]:
    """Returns tokens with other names for some ids; who had such a name gets the old one."""
    tokens = list(tokens)
    for index, name in names.items():
        if tokens[index] != name:
            if name in tokens:
                tokens[tokens.index(name)] = tokens[index]
            tokens[index] = name
    return tokens


def set_config(config: Any, translator: Translator, vocabulary: Vocabulary) -> None:
    """Sets what config.json says."""
    config.unk_token = vocabulary.unknown
    config.bos_token = config.decoder_start_token = vocabulary.start
    config.eos_token = vocabulary.end
    config.add_source_eos = translator.source_eos
    config.layer_norm_epsilon = translator.model.norm_epsilon
