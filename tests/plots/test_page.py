"""The page of pictures names every public name of `plots` and shows every picture there is."""

import re
from pathlib import Path

from keras_transformer import plots

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_shows_every_function_and_every_picture():
    page = (DOCS / "plots.md").read_text(encoding="utf-8")
    named = {name for name in plots.__all__ if f"`{name}`" in page}
    assert named == set(plots.__all__) - {"HeadStatistics"}
    shown = re.findall(r"!\[[^]]+\]\(pictures/(\w+\.png)\)", page)
    assert sorted(shown) == sorted(path.name for path in (DOCS / "pictures").iterdir())
