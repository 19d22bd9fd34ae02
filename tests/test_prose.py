"""The words of pages and of Python files: short sentences, common terms, lines that fit.

Each rule is a function from a text to what it complains of, and is run over a bad text of its own.
Of a Python file the rules read docstrings, comments and strings, such as messages and help. Strings
of tests are data, which no rule reads.
"""

import ast
import inspect
import io
import re
import tokenize
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
MOST_WORDS = 25  # of a sentence
MOST_CHARACTERS = 100  # of a line of a paragraph
FOLDERS = (".", "docs", "docs/api", "docs/guide", "docs/how-to", "docs/lab", "examples")
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for folder in FOLDERS
    for path in (REPOSITORY / folder).glob("*.md")
)
PYTHON = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for folder in ("keras_transformer", "examples", "benchmarks", "docs", "tests")
    for path in (REPOSITORY / folder).rglob("*.py")
    if path != Path(__file__).resolve()  # whose samples are bad
)
FEWEST_WORDS = 4  # of a string that is taken for prose
FENCED = re.compile(r"^ *(`{3,}).*?^ *\1$", re.MULTILINE | re.DOTALL)
# In a docstring.
EXAMPLE = re.compile(r"^ *(?:>>>|python |keras-transformer ).*(?:\n.+)*", re.MULTILINE)
REFERENCE = re.compile(r"^References?:.*(?:\n.+)*", re.MULTILINE)
SECTION = re.compile(r"^[A-Z]\w+:$", re.MULTILINE)
INDENTED = re.compile(r"^ +.*", re.MULTILINE)  # code in a string of several lines
ENTRY = re.compile(r"^    (?=\S)", re.MULTILINE)
CELL_END = re.compile(r" *(?<!\\)\| *")  # of a row of a table
BULLET, NUMBER = re.compile(r"[-*] +"), re.compile(r"\d+\. +")
# Words that a plainer one replaces, and turns that must be read twice.
INSTEAD = {
    "utilize": "use",
    "utilise": "use",
    "in order to": "to",
    "the same of": "name the thing again",
    "of which": "begin a new sentence",
    r"(?<!there )(?:is|are|was|were|be) no (?!longer|more|less|fewer|worse|later)": "is not a",
    "for want of": "without",
    "goal": "what is measured; goals are not for users",
    r"a training(?! (?:run|step|pair|file|text|recipe|history))": "a training run",
    "trainings": "training runs",
    "rival": "name the library",
}


def paragraphs(text):
    """Gives the lines of each paragraph and list item; code, tables and options are left out."""
    found, fresh = [], True
    for line in FENCED.sub("", text).splitlines():
        words = line.strip()
        if not words or words.startswith(("|", "#", "!", "<", "[^", "$$", ":::", "options: ")):
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
    """Gives the sentences; a piece of code or a formula is one word, and a link is its text."""
    for lines in paragraphs(text):
        words = " ".join(line.strip() for line in lines)
        words = re.sub(f"^(?:{BULLET.pattern}|{NUMBER.pattern})", "", words)
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words)
        words = re.sub(r"`[^`]*`", "Code", words).replace("et al.", "et al")
        words = re.sub(r"\$[^\s$](?:[^$]*[^\s$])?\$", "Formula", words)
        yield from re.split(r"(?<=[.!?:])[)\"*]* +(?=[\"(*]*[A-Z0-9]|\"|--)", words)


def long_sentences(text):
    return [said for said in sentences(text) if len(said.split()) > MOST_WORDS]


def long_cells(text):
    """Gives the cells of tables that have a long sentence."""
    rows = [line.strip() for line in FENCED.sub("", text).splitlines()]
    cells = [cell for row in rows if row.startswith("|") for cell in CELL_END.split(row)]
    return [cell for cell in cells if long_sentences(cell)]


def long_lines(text):
    lines = [line for lines in paragraphs(text) for line in lines]
    return [line for line in lines if len(line) > MOST_CHARACTERS and "](http" not in line]


def clumsy_words(text):
    words = " ".join(sentences(text)).lower()
    return [
        f"{said}: {plain}" for said, plain in INSTEAD.items() if re.search(rf"\b{said}\b", words)
    ]


def docstrings(tree):
    """Gives the nodes of the docstrings of a module."""
    with_docstring = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, with_docstring) and ast.get_docstring(node) is not None
    ]


def docstring_page(docstring):
    """Gives a docstring as a page: commands and examples are code, arguments are list items."""
    text = EXAMPLE.sub("", REFERENCE.sub("", inspect.cleandoc(docstring)))
    return ENTRY.sub("- ", SECTION.sub("\n", text))


def strings(tree):
    """Gives each string of a module but docstrings; a formatted value is one word."""
    left_out = {id(node) for node in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out.update(id(part) for part in node.values)
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield "".join(parts)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in left_out
        ):
            yield node.value


def is_code(text):
    """Tells whether a string is a program, a pattern or a list of names, not prose."""
    return re.search(r"^(?:import|from) \w|\(\?|^(?:\w{2,3} ){9}", text, re.MULTILINE) is not None


def comments(code):
    """Gives the comments; lines below each other are one."""
    found, last = [], None
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            if last == (row - 1, column):
                found[-1].append(token.string)
            else:
                found.append([token.string])
            last = row, column
    return ["\n".join(line.lstrip("# ") for line in lines) for lines in found]


def shell_comments(code):
    """Gives the comments of a shell script; lines below each other are one."""
    found = re.findall(r"(?:^ *# .*\n)+", code, re.MULTILINE)
    return [re.sub(r"^ *# ", "", lines, flags=re.MULTILINE) for lines in found]


def python_texts(code, with_strings=True):
    """Gives the texts of a Python file that people read, as pages."""
    tree = ast.parse(code)
    yield from (docstring_page(node.value) for node in docstrings(tree))
    yield from comments(code)
    for text in strings(tree) if with_strings else ():
        if len(text.split()) >= FEWEST_WORDS and not is_code(text):
            yield INDENTED.sub("", text)


RULES = (long_sentences, long_cells, long_lines, clumsy_words)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (long_sentences, f"Short. {'word ' * MOST_WORDS}word.\n"),
        (long_sentences, f"- An item\n- {'word ' * MOST_WORDS}\n  word\n"),
        (long_sentences, f"From $HOME {'word ' * MOST_WORDS} to $PATH.\n"),
        (long_cells, f"| a | b |\n|---|---|\n| one | {'word ' * MOST_WORDS}word |\n"),
        (long_lines, f"{'a' * MOST_CHARACTERS}b\n"),
        (clumsy_words, "We\nutilize it.\n"),
        (clumsy_words, "A mask is no tensor.\n"),
        (clumsy_words, "# A page\n\nTwo trainings, one of which ended.\n"),
    ],
)
def test_a_rule_finds_a_bad_text(rule, text):
    assert len(rule(text)) >= 1


def test_code_tables_formulas_and_short_sentences_are_fine():
    text = (
        f"# A {'long ' * 30}title\n\n| a | {'cell ' * 20}. {'Cell ' * 20}|\n\n"
        f"$$x = {'1 + ' * 30}2$$\n\nIt is $x = {'1 + ' * 13}2$\nor $x = {'1 + ' * 13}2$.\n\n"
        f"```bash\n{'a' * 80} {'of which ' * 9}\n```\n\nOne. Two `{'word ' * 9}`. [Three](4.md).\n"
    )
    assert [complaint for rule in RULES for complaint in rule(text)] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_written_plainly(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert [complaint for rule in RULES for complaint in rule(text)] == []


LONG = " ".join(["word"] * MOST_WORDS)
CODE = '''"""A module."""
# {comment}
# {more}

def add(first):
    """Adds.

    Args:
        first: {first}
            {rest}
        second: a number.

    >>> add("{example}")
    """
    raise ValueError(f"{message} {{first}}")
'''


@pytest.mark.parametrize("place", ["comment", "more", "first", "rest", "message", "example"])
def test_a_long_sentence_is_found_at_each_place_of_a_python_file(place):
    places = dict.fromkeys(("comment", "more", "first", "rest", "message", "example"), "a word")
    texts = python_texts(CODE.format(**{**places, place: LONG}))
    assert [bool(long_sentences(text)) for text in texts].count(True) == (place != "example")


@pytest.mark.parametrize("file", PYTHON)
def test_a_python_file_is_written_plainly(file):
    code = (REPOSITORY / file).read_text(encoding="utf-8")
    texts = list(python_texts(code, with_strings=not file.startswith("tests/")))
    rules = (long_sentences, clumsy_words)  # the linter measures the lines
    assert [complaint for text in texts for rule in rules for complaint in rule(text)] == []


def test_the_script_of_the_checks_is_written_plainly():
    texts = shell_comments((REPOSITORY / ".ci" / "run").read_text(encoding="utf-8"))
    assert len(texts) > 5
    assert [complaint for text in texts for rule in RULES for complaint in rule(text)] == []


def test_the_comments_of_a_shell_script_are_found():
    code = "#!/bin/sh\n# One,\n# and more.\nls  # not this\n    # Two.\necho '#'\n"
    assert shell_comments(code) == ["One,\nand more.\n", "Two.\n"]
