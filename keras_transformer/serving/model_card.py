"""The model card of an export: what the user says of it, and what it says of itself."""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer import card_file
from keras_transformer.decoding import Shortlist
from keras_transformer.models.sequence_to_sequence import EXTRA_LENGTH
from keras_transformer.processor import processor_kind
from keras_transformer.serving.saved_model import saved_model_path
from keras_transformer.text import SymbolTokenizer
from keras_transformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from keras_transformer.serving.translator import Translator

# What the card says of itself, which a user's card may not say.
OWN_FIELDS = {"model", "search", "vocabulary", "limits", "jit_compile", "operations", "versions"}
OWN_FIELDS |= {"texts", "split_sentences", "separator", "source_tag", "target_tag"}
OWN_FIELDS |= {"source_eos", "layout", "processor", "shortlist", "quantization"}
CANDIDATES, PROBES = 200, 20  # how many pieces of a vocabulary are tried, and read together


def checked_card(card: dict[str, Any] | None) -> dict[str, Any]:
    """Returns a user's `card` as a dictionary, or raises `ValueError` when JSON cannot hold it."""
    card = {} if card is None else card
    try:
        if not isinstance(card, dict):
            raise TypeError("no dictionary")
        read = json.loads(json.dumps(card, allow_nan=False, default=numbers_of_numpy))
        own = sorted(OWN_FIELDS.intersection(card))
        if own:
            raise ValueError(f"{', '.join(own)} the export says itself")
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`card` must be a dictionary of what JSON can hold. "
            f"Received: card={card!r:.200} ({error})"
        ) from error
    return read


def numbers_of_numpy(value: object) -> Any:
    """Returns NumPy's numbers and arrays as JSON has them; `TypeError` for anything else."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"not for JSON: {type(value).__name__}")


def write_card(
    folder: str | os.PathLike[str],
    translator: "Translator",
    card: dict[str, Any],
    operations: Iterable[str],
) -> None:
    """Writes the model card of an export to its `assets.extra`, `folder`."""
    text = json.dumps(model_card(translator, card, operations), indent=2, ensure_ascii=False)
    with open(os.path.join(folder, card_file.CARD), "w", encoding="utf-8") as file:
        file.write(f"{text}\n")


def model_card(
    translator: "Translator", card: dict[str, Any], operations: Iterable[str]
) -> dict[str, Any]:
    """Returns what an export is, as JSON has it: first what the user's `card` says of it."""
    tokenizers = {"source": translator.source_tokenizer, "target": translator.target_tokenizer}
    search, model = translator.search, translator.id_functions.model
    settings = {
        name: value
        for name, value in model.get_config().items()
        if name not in ("name", "trainable", "trainable_inside")
    }
    return {
        **card,
        "model": {
            "class": type(model).__name__,
            "parameters": int(model.count_params()),
            "settings": settings,
        },
        "search": {"class": type(search).__name__, "settings": search.get_config()},
        "vocabulary": {
            side: {
                "class": type(tokenizer).__name__,
                "size": tokenizer.vocab_size,
                "sha256": hashlib.sha256(tokenizer.to_bytes()).hexdigest(),
                "tags": tokenizer.tags,
            }
            for side, tokenizer in tokenizers.items()
        },
        "limits": {
            "max_length": translator.max_length,
            "max_source_length": translator.max_source_length,
            "max_segments": translator.max_segments,
            "shapes": translator.shapes,
        },
        "texts": text_conventions(translator),
        "split_sentences": translator.split_sentences,
        "separator": translator.separator,
        "source_tag": translator.source_tag,
        "target_tag": translator.target_tag,
        "source_eos": translator.source_eos,
        "jit_compile": translator.jit_compile,
        "quantization": translator.quantize,
        "layout": translator.id_functions.layout,
        "processor": processor_kind(),  # of this machine, whose layout is the default
        "shortlist": shortlist_sizes(translator.shortlist),
        "operations": sorted(operations),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("keras", "tensorflow", "tensorflow-text")
        },
    }


def shortlist_sizes(shortlist: Shortlist | None) -> dict[str, int] | None:
    """The numbers of a shortlist, or None."""
    if shortlist is None:
        return None
    frequent, targets = len(shortlist.frequent_ids), shortlist.target_ids.shape[1]
    return {"frequent": frequent, "targets_of_a_token": targets, "size": shortlist.size}


def read_card(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the card of a SavedModel, empty where it has none; `ValueError` for another path."""
    return card_file.read_card(saved_model_path(path))


def text_conventions(translator: "Translator") -> dict[str, list[str]]:
    """Returns in words what texts go in and what texts come out: {"input": ..., "output": ...}.

    Example:

    >>> from keras_transformer import Transformer
    >>> from keras_transformer.serving import Translator
    >>> symbols = SymbolTokenizer(["t", "uː", "l"])
    >>> model = Transformer(symbols.vocab_size, num_layers=1, d_model=8, num_heads=2, d_ff=16)
    >>> text_conventions(Translator(model, symbols))["input"][0]
    'Symbols with a space between any two: "t uː l" are 3, and "tuːl" is one.'
    """
    return {"input": input_conventions(translator), "output": output_conventions(translator)}


def input_conventions(translator: "Translator") -> list[str]:
    """Returns in words how a translator reads texts."""
    source = translator.source_tokenizer
    inputs = [describe_units(source)]
    words = known_words(source)
    if is_same(source, " ".join(words).upper(), " ".join(words).lower()):
        inputs.append("Capitals are read as small letters.")
    if is_same(source, "\N{LATIN SMALL LIGATURE FI}", "fi"):
        inputs.append(
            "A variant of a character, such as \N{LATIN SMALL LIGATURE FI}, is read as what it "
            "stands for, unless the vocabulary has it."
        )
    if is_same(source, "  ".join(words), "\n".join(words)) and len(words) > 1:
        inputs.append("Runs of white space, line breaks too, are read as one space.")
    inputs += tag_conventions(translator)
    what, parts = "text", f" into at most {translator.max_segments} parts"
    if translator.split_sentences:
        inputs.append("Each sentence of a text is translated on its own.")
        what, parts = "sentence", ""
    else:
        inputs.append("A text that fits is read whole, whatever sentences it has.")
    longest = translator.string_functions.splitter.longest
    inputs.append(
        f"A {what} of more than {longest} tokens is divided{parts}. The outputs of the parts are "
        f"joined by {translator.separator!r}."
    )
    return inputs


def tag_conventions(translator: "Translator") -> list[str]:
    """Returns in words which tags a translator reads and writes, such as language codes."""
    said = []
    if translator.source_tag is not None:
        said.append(f"The tag {translator.source_tag} is put before every text.")
    if translator.source_tokenizer.leading_tags:
        said.append("A text may begin with a tag, which holds for all of it.")
    if translator.target_tag is not None:
        said.append(f"Every translation is that of the tag {translator.target_tag}.")
    return said


def output_conventions(translator: "Translator") -> list[str]:
    """Returns in words how a translator writes texts."""
    target = translator.target_tokenizer
    outputs = [describe_units(target)]
    letters = "".join(target.surfaces())
    if letters != letters.upper() and not any(letter.isupper() for letter in letters):
        outputs.append("Small letters alone.")
    longest = translator.max_length
    outputs.append(
        f"At most {EXTRA_LENGTH} tokens more than were read."
        if longest is None
        else f"At most {longest} tokens, the end counted."
    )
    if target.reverse:
        outputs.append("The end is written first, and a `prefix` is what the text ends in.")
    return outputs


def describe_units(tokenizer: Tokenizer) -> str:
    """Returns in words what a text of a tokenizer is made of."""
    if isinstance(tokenizer, SymbolTokenizer):
        first = tokenizer.symbols[:3]
        return (
            f'Symbols with a space between any two: "{" ".join(first)}" are {len(first)}, and '
            f'"{"".join(first)}" is one.'
        )
    return "Text as it is written, in UTF-8."


def known_words(tokenizer: Tokenizer) -> list[str]:
    """Returns some pieces whose letters have a case, and which are known as words too."""
    words = [surface.strip() for surface in tokenizer.surfaces()]
    words = [word for word in words if word.lower() != word.upper()][:CANDIDATES]
    ids = tokenizer.tokenize(words).to_list()
    known = [word for word, row in zip(words, ids, strict=True) if tokenizer.unk_id not in row]
    return known[:PROBES]


def is_same(tokenizer: Tokenizer, one: str, other: str) -> bool:
    """Returns whether two texts have the same ids, all of them known."""
    first, second = tokenizer.tokenize([one, other]).to_list()
    return first == second and tokenizer.unk_id not in first and bool(first)
