"""Makes links between files of the repository links between pages of the site.

On GitHub a link such as `../examples/README.md` leads to the file. The site has a page for each
such file too. A Markdown file becomes a page, and README.md the first one. The text of any other
file is below `source/`.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).resolve().parents[2]
OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")
LINK = re.compile(r"\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
IN_FIGURE = re.compile(r"<a href='(?P<target>[^':]+)'")
LANGUAGES = {".py": "python", ".css": "css"}


def site_uri(path):
    """Gives the place in the site of a file of the repository."""
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    return path if path.endswith(".md") else f"source/{path.lstrip('.')}.md"


def linked_files(path, text):
    """Gives (what is written, the file of the repository) of each link that leads to one."""
    found = []
    for link in LINK.finditer(text):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link["target"]))
        if (REPOSITORY / target).is_file():
            found.append((link, target))
    return found


def rewrite(path, text):
    """Gives the text of a file with its links as the site has them."""
    here = posixpath.dirname(site_uri(path))
    for link, target in reversed(linked_files(path, text)):
        new = posixpath.relpath(site_uri(target), here or ".")
        text = text[: link.start()] + f"]({new}{link['anchor'] or ''})" + text[link.end() :]
    return text


def source_page(path):
    """Gives a page that shows the text of a file, and that the search leaves out."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n````{language}\n{text}````\n"


def on_files(files, config):
    """Adds the pages of files outside docs/: those of `OUTSIDE`, and what pages link to."""
    inside = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    texts = {path: (REPOSITORY / path).read_text(encoding="utf-8") for path in (*inside, *OUTSIDE)}
    for path in OUTSIDE:
        content = rewrite(path, texts[path])
        files.append(File.generated(config, site_uri(path), content=content))
    targets = {target for path, text in texts.items() for _, target in linked_files(path, text)}
    for figure in (REPOSITORY / "docs" / "pictures").glob("*.svg"):
        for link in IN_FIGURE.finditer(figure.read_text(encoding="utf-8")):
            targets.add(posixpath.normpath(posixpath.join("docs/pictures", link["target"])))
    for path in sorted(targets):
        if site_uri(path).startswith("source/"):
            files.append(File.generated(config, site_uri(path), content=source_page(path)))
    return files


def on_page_markdown(markdown, page, **_):
    """Rewrites the links of a page of docs/; generated pages have theirs already."""
    if page.file.generated_by:
        return markdown
    return rewrite(f"docs/{page.file.src_uri}", markdown)
