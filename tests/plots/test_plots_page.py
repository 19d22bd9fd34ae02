"""The page of pictures names every public name of `plots`; every picture there is has its page."""

import re
from pathlib import Path

from keras_transformer import plots

DOCS = Path(__file__).resolve().parents[2] / "docs"


def shown(path):
    pattern = r"!\[[^]]+\]\((?:\.\./|docs/)?pictures/(\w+\.(?:png|svg))\)"
    return re.findall(pattern, path.read_text(encoding="utf-8"))


def test_the_page_shows_every_function():
    page = DOCS / "plots.md"
    named = {name for name in plots.__all__ if f"`{name}`" in page.read_text(encoding="utf-8")}
    assert named == set(plots.__all__) - {"HeadStatistics"}
    assert len(shown(page)) >= 8


def test_every_picture_is_shown_and_every_shown_picture_is_there():
    pictures = {path.name for path in (DOCS / "pictures").iterdir()}
    pictures -= {"card.png"}  # which other sites show beside a link to this one
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    assert pictures == {name for page in pages for name in shown(page)}
