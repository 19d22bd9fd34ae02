"""Reads pairs of symbol sequences: inflection, grapheme to phoneme, SCAN, or any two columns.

Each side becomes symbols separated by spaces, after NFC; a space within a text is the symbol "▁".
The format `text` alone has its two columns as they are.
"""

import re
import unicodedata

from keras_transformer.recipes.parallel_text import read_lines

SPACE = "\u2581"


def characters(text):
    """The characters of a text as symbols."""
    return " ".join(SPACE if character.isspace() else character for character in text)


def inflection(line):
    """Lemma, inflected form and tags: SIGMORPHON and UniMorph. Each tag is one symbol.

    Tags have `;` between them, or `+` where several are values of one feature, as a verb's subject
    and object. Person and number within a tag, as in PSS1S or ARGNO3P, are symbols of their own:
    a combination that no training pair has is made of symbols that many have.
    """
    lemma, form, tags = columns(line, 3)
    symbols = [symbol for tag in re.split("[;+]", tags) for symbol in tag_symbols(tag)]
    return " ".join([characters(lemma), *symbols]), characters(form)


def grapheme_to_phoneme(line):
    """A word and its phones, which have spaces between them."""
    word, phones = columns(line, 2)
    return characters(word), " ".join(phones.split())


def scan(line):
    """`IN: command OUT: actions`, words on both sides."""
    command, found, actions = line.partition(" OUT: ")
    if not found or not command.startswith("IN: "):
        raise ValueError('must be "IN: <command> OUT: <actions>"')
    return " ".join(command.removeprefix("IN: ").split()), " ".join(actions.split())


def pairs(line):
    """Two columns of text, characters on both sides."""
    source, target = columns(line, 2)
    return characters(source), characters(target)


def text(line):
    """Two columns of text as they are, for subwords; later tabs are of the second."""
    source, tab, target = line.partition("\t")
    return tuple(columns(source + tab + target.replace("\t", " "), 2))


FORMATS = {"inflection": inflection, "g2p": grapheme_to_phoneme, "scan": scan, "pairs": pairs}
READERS = FORMATS | {"text": text}


def read_pairs(path, form):
    """Returns the pairs of a file in one of the `READERS`; a `ValueError` names the bad line."""
    found = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            composed = line if form == "text" else unicodedata.normalize("NFC", line)
            source, target = READERS[form](composed)
        except ValueError as error:
            raise ValueError(
                f"{path}: line {number} {error}, in the format {form!r}. Received: {line!r:.100}"
            ) from None
        found.append((source, target))
    if not found:
        raise ValueError(f"{path}: no line has a pair. Check the file.")
    return found


def columns(line, number):
    """The `number` columns of a line, none of them empty."""
    found = [column.strip() for column in line.split("\t")]
    if len(found) != number or not all(found):
        raise ValueError(f"must have {number} columns with tabs between them, none empty")
    return found


def tag_symbols(tag):
    """The parts of a tag as symbols that no character can be."""
    parts = re.fullmatch("([A-Z]+)([123])([SDP])", tag)
    return [f"<{part}>" for part in (parts.groups() if parts else [tag])]
