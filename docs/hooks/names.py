"""Links the public names in the text of the pages to their entries of the API pages.

A name is a piece of code by itself, such as `Encoder`, `text.load_tokenizer` or `Translator(...)`.
"""

import ast
import html
import re
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ENTRY = re.compile(r"^::: ([\w.]+)", re.MULTILINE)
CODE = re.compile(r"<code>((?:\w+\.)*\w+)(\([^<]*\))?</code>")
# What is left alone: headings, links, blocks of code, and what mkdocstrings writes of signatures.
WHOLE = re.compile(r"<(h\d|a|pre|autoref|summary)\b.*?</\1>|<code>[^<]*</code>", re.DOTALL)
DASH = re.compile(r"(<li class=\"doc-section-item field-body\">)\s*–")


def parsed(module):
    """Gives the syntax tree of a module of the package."""
    path = REPOSITORY.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else None


def exported(module):
    """Gives the names in `__all__` of a module."""
    for node in parsed(module).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return []


@cache
def entries():
    """Gives the entries of the API pages, public name to identifier."""
    found = {}
    for page in sorted((REPOSITORY / "docs" / "api").glob("*.md")):
        for identifier in ENTRY.findall(page.read_text(encoding="utf-8")):
            if parsed(identifier) is None:  # a function of its own
                found[identifier.rpartition(".")[2]] = identifier
            else:
                found.update((name, f"{identifier}.{name}") for name in exported(identifier))
    return found


@cache
def arguments():
    """Gives the names of all arguments, which are not functions where they stand alone."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in package_files())
    return {node.arg for tree in trees for node in ast.walk(tree) if isinstance(node, ast.arg)}


def package_files():
    """Gives the Python files of the package."""
    return sorted((REPOSITORY / "keras_transformer").rglob("*.py"))


def find_identifier(name, call):
    """Gives the identifier that a piece of code names, and whether its entry is sure; or None."""
    room, _, last = name.rpartition(".")
    identifier = entries().get(last)
    # A short name alone may be an argument, a command or a method of Keras.
    is_clear = room or call or (last not in arguments() and ("_" in last or last[0].isupper()))
    if identifier is not None and is_clear:
        package = identifier.rpartition(".")[0]
        if not room or f".{room}." in f".{package}.":
            return identifier, True
    if room[:1].isupper() and room in entries():
        return f"{entries()[room]}.{last}", False  # a method; those of Keras have no entry
    return None


def linked(content):
    """Gives the HTML of a page with its names as references, which autorefs makes links."""

    def link(found):
        code = CODE.fullmatch(found[0])
        identifier = find_identifier(code[1], code[2]) if code else None
        if identifier is None:
            return found[0]
        optional = "" if identifier[1] else " optional"
        return f'<autoref identifier="{html.escape(identifier[0])}"{optional}>{found[0]}</autoref>'

    return WHOLE.sub(link, content)


def on_page_content(content, page, **_):
    """Links names, and takes away the dash before what is returned, which has no name."""
    return DASH.sub(r"\1", linked(content))
