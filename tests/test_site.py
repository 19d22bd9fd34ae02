"""The site is whole: formulas are drawn, links lead to pages, and nothing is fetched."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.backends import on_tensorflow

pytest.importorskip("mkdocs", reason='needs pip install -e ".[docs]"')
pytestmark = on_tensorflow  # the site is the same whatever the backend

REPOSITORY = Path(__file__).resolve().parents[1]
FETCHED = re.compile(r'<(?:script|img|link|iframe)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"')


def hook(name):
    path = REPOSITORY / "docs" / "hooks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"hook_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Builds the site once, as `mkdocs build --strict` does."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    directory = tmp_path_factory.mktemp("site")
    path, sys.path = sys.path, list(sys.path)
    try:
        config = load_config(str(REPOSITORY / "mkdocs.yml"), site_dir=str(directory), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    finally:
        sys.path = path
    return directory


def html_pages(site):
    return {page.relative_to(site).as_posix(): page for page in sorted(site.rglob("*.html"))}


def test_a_formula_becomes_mathml():
    formulas = hook("formulas")
    content = r'<p><span class="arithmatex">\(x_1 &lt; \ln 2\)</span></p>'
    found = formulas.on_page_content(content)
    assert found.startswith("<p><math ")
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in found
    assert '<mi>ln</mi><mspace width="0.167em"/><mn>2</mn>' in found
    assert "arithmatex" not in found


def test_a_formula_that_is_not_understood_raises():
    with pytest.raises(ValueError, match=r"a formula must be .* Received: \\nonsense x"):
        hook("formulas").mathml(r"\nonsense x", display=False)


@pytest.mark.parametrize(
    ("path", "link", "new"),
    [
        ("README.md", "docs/attention.md", "attention.md"),
        ("README.md", "examples/README.md", "examples/README.md"),
        ("README.md", "keras_transformer/losses.py", "source/keras_transformer/losses.py.md"),
        ("docs/results.md", "../examples/README.md#x", "examples/README.md#x"),
        ("docs/guide/ko/11-training.md", "../../training.md", "../../training.md"),
        ("docs/how-to/onnx.md", "../serving.md#files", "../serving.md#files"),
        ("examples/README.md", "../docs/results.md", "../results.md"),
        ("examples/README.md", "../README.md", "../index.md"),
        ("docs/results.md", "../examples/no_such_file.md", "../examples/no_such_file.md"),
        ("docs/results.md", "https://keras.io/", "https://keras.io/"),
    ],
)
def test_a_link_leads_where_the_site_has_the_file(path, link, new):
    assert hook("links").rewrite(path, f"[text]({link}).") == f"[text]({new})."


def test_a_page_in_korean_says_so():
    class Page:
        class file:
            src_uri = "guide/ko/index.md"

    languages = hook("languages")
    assert languages.on_post_page('<html lang="en">', Page) == '<html lang="ko">'
    with pytest.raises(ValueError, match="Received: another"):
        languages.on_post_page("<html>", Page)
    Page.file.src_uri = "guide/index.md"
    assert languages.on_post_page('<html lang="en">', Page) == '<html lang="en">'


def test_every_formula_is_drawn(site):
    pages = html_pages(site)
    assert len(pages) > 40
    for name, page in pages.items():
        text = page.read_text(encoding="utf-8")
        assert "arithmatex" not in text, name
        if re.fullmatch(r"guide/(ko/)?\d\d-.*", name):
            assert "<math " in text, name
    assert (site / "assets/fonts/STIXTwoMath-Regular.ttf").is_file()


def test_the_links_of_a_figure_lead_to_pages(site):
    page = (site / "architecture.html").read_text(encoding="utf-8")
    links = re.findall(r"<a href='([^']+)'", page)
    assert len(links) > 20
    assert [link for link in links if not (site / link).is_file()] == []


def test_a_picture_without_links_stays_a_picture():
    class Page:
        class file:
            src_uri, url = "how-to/look-inside.md", "how-to/look-inside.html"

    for name in ("dates.svg", "alignment_korean.png"):
        content = f'<p><img alt="a" src="../pictures/{name}"></p>'
        assert hook("figures").on_page_content(content, Page) == content
    found = hook("figures").on_page_content('<img src="../pictures/architecture.svg">', Page)
    assert "<a href='../source/keras_transformer/losses.py.html'>" in found


def test_nothing_is_fetched_from_elsewhere(site):
    assert FETCHED.search('<script async src="https://example.org/x.js">')
    assert FETCHED.search('<link rel="stylesheet" href="//example.org/x.css">')
    for name, page in html_pages(site).items():
        assert not FETCHED.search(page.read_text(encoding="utf-8")), name


def test_api_pages_show_examples_and_every_public_layer(site):
    from keras_transformer import layers

    text = (site / "api/layers.html").read_text(encoding="utf-8")
    assert all(f'id="keras_transformer.layers.{name}"' in text for name in layers.__all__)
    assert text.count('class="gp">&gt;&gt;&gt; ') > len(layers.__all__)
    assert "keras_transformer.layers.FeedForward.get_config" not in text
