"""Makes the tokenizers of a model from the tokens that its vocabularies list."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, TypeGuard

from keras_transformer.interop.files import MAX_VOCABULARY, checked_file, read_bytes, shown
from keras_transformer.interop.token_rows import TokenRows
from keras_transformer.symbols import is_symbol
from keras_transformer.text import CharacterTokenizer, SentencePieceTokenizer, SymbolTokenizer
from keras_transformer.text.piece_ids import SPECIAL
from keras_transformer.text.tokenizer import Tokenizer

Tokenization = Literal["sentencepiece", "characters", "words"]
# The names of sentencepiece models beside a model; the first that is there is taken.
SENTENCEPIECE = {
    "source": ("source.spm", "source.model", "sentencepiece.model", "sentencepiece.bpe.model"),
    "target": ("target.spm", "target.model", "sentencepiece.model", "sentencepiece.bpe.model"),
}


def fits(token: str | None, tokenization: Tokenization) -> TypeGuard[str]:
    """Whether a token is text for the tokenizer of characters or of words."""
    if token is None:
        return False
    return len(token) == 1 if tokenization == "characters" else is_symbol(token)


def convert_tokens(
    tokens: Sequence[str | None], special: Mapping[str, int | None], tokenization: Tokenization
) -> list[bool]:
    """Returns whether each token is text, for a tokenizer of characters or of words.

    What stands a second time is not text, and neither is a mark such as `<mask>`.

    Raises:
        ValueError: when another token is none for the tokenizer.
    """
    found = []
    seen: set[str | None] = {None}
    for row, token in enumerate(tokens):
        is_new, is_text = token not in seen, fits(token, tokenization)
        seen.add(token)
        is_mark = row in special.values() or f"{token}"[:1] + f"{token}"[-1:] == "<>"
        if is_new and not is_text and not is_mark:
            kind = "a character" if tokenization == "characters" else "without white space"
            raise ValueError(
                f"each token must be {kind} for tokenization={tokenization!r}. "
                f"Received: {shown(token)} in row {row}"
            )
        found.append(is_new and is_text)
    return found


def make_tokenizers(
    sides: Sequence[TokenRows],
    tokenization: Tokenization,
    tags: Sequence[str] | None = None,
    files: Sequence[Path] = (),
) -> tuple[Tokenizer, ...]:
    """Returns the tokenizers of source and target; one where they are equal.

    Args:
        sides: the tokens of source and target by id.
        tokenization: what tokens are.
        tags: the tokens that text never becomes, of tokenizers of sentencepiece.
        files: their models.

    Raises:
        ValueError: when a tag is not a token of either side, or tokens are not of sentencepiece.
    """
    known = {token for side in sides for token in side.tokens}
    if tags is not None and (tokenization != "sentencepiece" or not known.issuperset(tags)):
        raise ValueError(
            "`tags` must be tokens of a vocabulary, with tokenization='sentencepiece'. Received: "
            f"{shown([tag for tag in tags if tag not in known] or [*tags])}, "
            f"tokenization={tokenization!r}"
        )
    if tokenization != "sentencepiece":
        kind = CharacterTokenizer if tokenization == "characters" else SymbolTokenizer
        first = len(SPECIAL)
        made = [kind(t for t in side.tokens[first:] if fits(t, tokenization)) for side in sides]
        return 2 * (made[0],) if sides[0] == sides[1] else tuple(made)
    models = [read_bytes(path, MAX_VOCABULARY) for path in files]
    if sides[0] == sides[1] and models[0] == models[1]:
        return 2 * (open_tokenizer(files[0], sides[0], tags, True),)
    return tuple(
        open_tokenizer(path, side, tags, is_source)
        for path, side, is_source in zip(files, sides, (True, False), strict=True)
    )


def open_tokenizer(
    path: Path, side: TokenRows, tags: Sequence[str] | None, is_source: bool
) -> SentencePieceTokenizer:
    """Returns the tokenizer of a sentencepiece model with the ids of a side."""
    has_codes = any(token and token[:2] == ">>" and token[-2:] == "<<" for token in side.tokens)
    return SentencePieceTokenizer.from_file(
        path,
        vocabulary=side.tokens,
        tags=None if tags is None else [tag for tag in tags if tag in side.tokens],
        leading_tags=is_source and has_codes,
        **side.special,
    )


def sentencepiece_files(
    directory: Path, paths: Mapping[str, str | PathLike[str] | None], are_separate: bool
) -> list[Path]:
    """Returns the files of sentencepiece models of sources and targets, or raises `ValueError`.

    Args:
        directory: of the model.
        paths: the files that are named, by "source" and "target".
        are_separate: whether each side has a vocabulary of its own.
    """
    others = sorted([*directory.glob("*.model"), *directory.glob("*.spm")])
    found: list[Path] = []
    for side, names in SENTENCEPIECE.items():
        given = paths[side]
        path = next((path for name in names if (path := directory / name).is_file()), None)
        if given is not None:
            path = checked_file(given)
        elif path is None and found:
            if are_separate and paths["source"] is not None:
                raise ValueError(
                    "`target_tokenizer` must name a sentencepiece model too, for vocabularies that "
                    "are separate; name one file for both sides where it serves both. "
                    f"Received: target_tokenizer=None, source_tokenizer={shown(str(found[0]))}"
                )
            path = found[0]
        elif path is None and len(others) == 1:
            path = others[0]
        if path is None:
            names_found = [path.name for path in others]
            raise ValueError(
                f"`{side}_tokenizer` must name a sentencepiece model, or {directory} must hold one;"
                " without sentencepiece give tokenization='characters' or 'words'. "
                f"Received: {side}_tokenizer=None and the models {shown(names_found)}"
            )
        found.append(path)
    return found
