"""The words of README and docs: short sentences, common terms, lines that fit.

Each rule is a function from a text to what it complains of, and is run over a bad text of its own.
"""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_WORDS = 25  # of a sentence
MOST_CHARACTERS = 100  # of a line of a paragraph
FOLDERS = (".", "docs", "docs/how-to", "docs/lab", "examples")
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for folder in FOLDERS
    for path in (REPOSITORY / folder).glob("*.md")
    if path.name != "CHANGELOG.md"
)
FENCED = re.compile(r"^ *(`{3,}).*?^ *\1$", re.MULTILINE | re.DOTALL)
BULLET, NUMBER = re.compile(r"[-*] +"), re.compile(r"\d+\. +")
# Words that a plainer one replaces, and turns that must be read twice.
INSTEAD = {
    "utilize": "use",
    "utilise": "use",
    "in order to": "to",
    "the same of": "name the thing again",
    "of which": "begin a new sentence",
    "for want of": "without",
    "goal": "what is measured; goals are not for users",
    r"a training(?! (?:run|step|pair|file|text))": "a training run",
    "trainings": "training runs",
    "rival": "name the library",
}


def paragraphs(text):
    """Gives the lines of each paragraph and list item; code, tables and headings are none."""
    found, fresh = [], True
    for line in FENCED.sub("", text).splitlines():
        words = line.strip()
        if not words or words.startswith(("|", "#", "!", "<", "[^")):
            fresh = True
        elif fresh or BULLET.match(words) or (NUMBER.match(words) and is_numbered(found[-1])):
            found.append([line])
            fresh = False
        else:
            found[-1].append(line)
    return found


def is_numbered(lines):
    """Tells whether a paragraph is an item of a numbered list."""
    return NUMBER.match(lines[0].strip()) is not None


def sentences(text):
    """Gives the sentences; a piece of code is one word, and a link is its text."""
    for lines in paragraphs(text):
        words = " ".join(line.strip() for line in lines)
        words = re.sub(f"^(?:{BULLET.pattern}|{NUMBER.pattern})", "", words)
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words)
        words = re.sub(r"`[^`]*`", "Code", words).replace("et al.", "et al")
        yield from re.split(r"(?<=[.!?:])[)\"*]* +(?=[\"(*]*[A-Z0-9])", words)


def long_sentences(text):
    return [said for said in sentences(text) if len(said.split()) > MOST_WORDS]


def long_lines(text):
    lines = [line for lines in paragraphs(text) for line in lines]
    return [line for line in lines if len(line) > MOST_CHARACTERS and "](http" not in line]


def clumsy_words(text):
    words = " ".join(sentences(text)).lower()
    return [
        f"{said}: {plain}" for said, plain in INSTEAD.items() if re.search(rf"\b{said}\b", words)
    ]


RULES = (long_sentences, long_lines, clumsy_words)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (long_sentences, f"Short. {'word ' * MOST_WORDS}word.\n"),
        (long_sentences, f"- An item\n- {'word ' * MOST_WORDS}\n  word\n"),
        (long_lines, f"{'a' * MOST_CHARACTERS}b\n"),
        (clumsy_words, "We\nutilize it.\n"),
        (clumsy_words, "# A page\n\nTwo trainings, one of which ended.\n"),
    ],
)
def test_a_rule_finds_a_bad_text(rule, text):
    assert len(rule(text)) >= 1


def test_code_tables_and_short_sentences_are_fine():
    text = (
        f"# A {'long ' * 30}title\n\n| a | {'cell ' * 30}|\n\n"
        f"```bash\n{'a' * 80} {'of which ' * 9}\n```\n\nOne. Two `{'word ' * 9}`. [Three](4.md).\n"
    )
    assert [complaint for rule in RULES for complaint in rule(text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_written_plainly(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert [complaint for rule in RULES for complaint in rule(text)] == []
