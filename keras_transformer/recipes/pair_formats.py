"""Reads files of pairs: inflection, grapheme to phoneme, SCAN, and any two columns.

But for "text", each side becomes symbols separated by spaces, after NFC. A space within a side
is the symbol "▁".
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from os import PathLike

from keras_transformer.recipes.parallel_text import Pair, read_lines

SPACE = "\u2581"


def read_file(path: str | PathLike[str], format: str) -> list[Pair]:
    """Returns the pairs of a file, one a line; empty lines have none.

    Args:
        path: the file, plain or gzip.
        format: a name of `READERS`.

    Raises:
        ValueError: when a line is not of the format, or no line has a pair.
    """
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            composed = line if format == "text" else unicodedata.normalize("NFC", line)
            found.append(READERS[format](composed))
        except ValueError as error:
            told = tell_line(path, number, line, format, error)
            other = ". Or give two files, one of sources and one of targets" * (format == "text")
            raise ValueError(f"{told}{other}") from None
    if not found:
        raise ValueError(f"{path}: no line has a pair. Check the file.")
    return found


def characters(line: str) -> Pair:
    """Two columns of text, each character a symbol."""
    source, target = columns(line, 2)
    return split_characters(source), split_characters(target)


def inflection(line: str) -> Pair:
    """Lemma, inflected form and tags: SIGMORPHON and UniMorph. Each tag is one symbol.

    Tags have `;` between them, or `+` where several are values of one feature, as a verb's subject
    and object. Person and number within a tag, as in PSS1S or ARGNO3P, are symbols of their own. A
    combination that no training pair has is made of symbols that many have.
    """
    lemma, form, tags = columns(line, 3)
    symbols = [symbol for tag in re.split("[;+]", tags) for symbol in split_tag(tag)]
    return " ".join([split_characters(lemma), *symbols]), split_characters(form)


def grapheme_to_phoneme(line: str) -> Pair:
    """A word and its phones, which have spaces between them."""
    word, phones = columns(line, 2)
    return split_characters(word), " ".join(phones.split())


def scan(line: str) -> Pair:
    """`IN: command OUT: actions`, words on both sides."""
    command, found, actions = line.partition(" OUT: ")
    if not found or not command.startswith("IN: "):
        raise ValueError('must be "IN: <command> OUT: <actions>"')
    return " ".join(command.removeprefix("IN: ").split()), " ".join(actions.split())


def text(line: str) -> Pair:
    """Two columns of text as they are, for subwords; later tabs belong to the second."""
    source, tab, target = line.partition("\t")
    source, target = columns(source + tab + target.replace("\t", " "), 2)
    return source, target


def encode_source(line: str, format: str) -> str:
    """A source as a user writes it, as the model reads it.

    The sources of "inflection" have two columns, lemma and tags, or a lemma alone.

    Raises:
        ValueError: when a source of "inflection" has other columns.

    Example:

    >>> encode_source("tool", "g2p")
    't o o l'
    """
    line = line if format in ("text", "dates") else unicodedata.normalize("NFC", line)
    if format in ("characters", "g2p"):
        return split_characters(line.strip())
    if format == "inflection":
        lemma, _, tags = line.partition("\t")
        if not tags.strip():
            return split_characters(lemma)
        if not lemma.strip() or "\t" in tags:
            raise ValueError("must have a lemma, or a lemma and its tags with a tab between them")
        return inflection(f"{lemma}\t-\t{tags}")[0]
    return line


def encode_sources(
    lines: Iterable[str], format: str, path: str | PathLike[str], first: int = 1
) -> list[str]:
    """Returns the lines of a file as the model reads them.

    Args:
        lines: sources as a user writes them.
        format: a name of `READERS`, or "dates".
        path: the file, and `first` the number of the first line there.

    Raises:
        ValueError: when a line is not a source of the format.
    """
    found = []
    for number, line in enumerate(lines, first):
        try:
            found.append(encode_source(line, format))
        except ValueError as error:
            raise ValueError(tell_line(path, number, line, format, error)) from None
    return found


def encode_target(line: str, format: str) -> str:
    """A target as a user writes it, as the model writes it.

    Example:

    >>> encode_target("too l", "characters")
    't o o ▁ l'
    """
    line = line if format in ("text", "dates") else unicodedata.normalize("NFC", line)
    return split_characters(line.strip()) if format in ("characters", "inflection") else line


def decode_target(text: str, format: str) -> str:
    """A target of the model as a user reads it: without spaces between characters.

    Example:

    >>> decode_target("t o o ▁ l", "characters")
    'too l'
    """
    if format in ("characters", "inflection"):
        return text.replace(" ", "").replace(SPACE, " ")
    return text


READERS: dict[str, Callable[[str], Pair]] = {
    "text": text,
    "characters": characters,
    "inflection": inflection,
    "g2p": grapheme_to_phoneme,
    "scan": scan,
}


def columns(line: str, number: int) -> list[str]:
    """The `number` columns of a line, none of them empty."""
    found = [column.strip() for column in line.split("\t")]
    if len(found) != number or not all(found):
        raise ValueError(f"must have {number} columns with tabs between them, none empty")
    return found


def tell_line(
    path: str | PathLike[str], number: int, line: str, format: str, error: ValueError
) -> str:
    """Says what is wrong with a line of a file."""
    return f"{path}: line {number} {error}, in the format {format!r}. Received: {line!r:.100}"


def split_characters(text: str) -> str:
    """The characters of a text as symbols."""
    return " ".join(SPACE if character.isspace() else character for character in text)


def split_tag(tag: str) -> list[str]:
    """The parts of a tag as symbols that no character can be."""
    parts = re.fullmatch("([A-Z]+)([123])([SDP])", tag)
    return [f"<{part}>" for part in (parts.groups() if parts else [tag])]
