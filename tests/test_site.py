"""The site is whole: formulas are drawn, links lead to pages, and nothing is fetched."""

import ast
import dataclasses
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.backends import on_tensorflow
from tests.scripts import load_script

pytest.importorskip("mkdocs", reason='needs pip install -e ".[docs]"')
pytestmark = on_tensorflow  # the site is the same whatever the backend

REPOSITORY = Path(__file__).resolve().parents[1]
FETCHED = re.compile(r'<(?:script|img|link|iframe)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"')


def hook(name):
    return load_script(REPOSITORY / "docs" / "hooks" / f"{name}.py")


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


def test_the_bars_of_a_norm_do_not_stretch():
    found = hook("formulas").mathml(r"\lVert q \rVert", display=False)
    assert found.count('<mo stretchy="false" lspace="0.1em" rspace="0.1em">&#x02016;</mo>') == 2


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


def test_the_api_pages_show_defaults_and_no_empty_words(site):
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html")}
    texts = {name: re.sub(r"<[^>]+>", "", page) for name, page in pages.items()}
    assert "vocab_size: int = 8000" in texts["recipes"]
    artefact = re.compile(
        r"\boption\(|dataclasses\.field|^ *None\. *$|(\w+)\s+–\s+An? \1\.$", re.MULTILINE
    )
    assert [name for name, text in texts.items() if artefact.search(text)] == []


def test_the_api_shows_every_setting(site):
    from keras_transformer.recipes import Settings

    page = re.sub(r"<[^>]+>", "", (site / "api/recipes.html").read_text(encoding="utf-8"))
    signature = page.partition("Settings(\n")[2].partition("\n)")[0]
    names = re.findall(r"^ +(\w+):", signature, re.MULTILINE)
    assert names == [field.name for field in dataclasses.fields(Settings)]


def test_every_formula_is_drawn(site):
    pages = html_pages(site)
    assert len(pages) > 40
    for name, page in pages.items():
        text = page.read_text(encoding="utf-8")
        assert "arithmatex" not in text, name
        if re.fullmatch(r"guide/(ko/)?\d\d-.*", name):
            assert "<math " in text, name
    assert (site / "assets/fonts/STIXTwoMath-Regular.ttf").is_file()


def test_every_link_leads_to_a_file_of_the_site(site):
    links = set()
    for name, page in html_pages(site).items():
        if name != "404.html":  # a server's page, whose links begin at its root
            text = page.read_text(encoding="utf-8")
            found = re.findall(r"<a [^>]*href=[\"']([^\"'#:]+)(?=[#\"'])", text)
            links.update((name, link) for link in found)
    assert len(links) > 1000
    assert ("interop.html", "source/keras_transformer/interop/marian.py.html") in links
    assert [
        (name, link)
        for name, link in sorted(links)
        if not (site / name).parent.joinpath(link).exists()
    ] == []


def test_a_picture_without_links_stays_a_picture():
    class Page:
        class file:
            src_uri, url = "how-to/look-inside.md", "how-to/look-inside.html"

    for name in ("dates.svg", "alignment_korean.png"):
        content = f'<p><img alt="a" src="../pictures/{name}"></p>'
        assert hook("figures").on_page_content(content, Page) == content
    found = hook("figures").on_page_content('<img src="../pictures/architecture.svg">', Page)
    assert "<a href='../source/keras_transformer/losses.py.html'>" in found


@pytest.mark.parametrize(
    ("code", "identifier"),
    [
        ("Encoder", "layers.Encoder"),
        ("LoRA", None),
        ("serving.Translator(...)", "serving.Translator"),
        ("keras_transformer.Transformer", "models.Transformer"),
        ("Translator.export", "serving.Translator.export"),
        ("load_marian(path)", "interop.load_marian"),
        ("load_marian", "interop.load_marian"),
        ("recipes.evaluate", "recipes.evaluate"),
        ("evaluate", None),  # the command, or the method of a Keras model
        ("padding_mask", None),  # the argument
        ("padding_mask(ids)", "masking.padding_mask"),
        ("date_pairs", "recipes.dates.date_pairs"),
        ("keras.layers.MultiHeadAttention", None),
        ("fit", None),
    ],
)
def test_a_public_name_leads_to_its_entry(code, identifier):
    names = hook("names")
    found = names.linked(f"<p>See <code>{code}</code>.</p>")
    if identifier is None:
        assert found == f"<p>See <code>{code}</code>.</p>"
    else:
        assert f'identifier="keras_transformer.{identifier}"' in found
    for whole in (f"<h2>{code}</h2>", f'<a href="x"><code>{code}</code></a>', f"<pre>{code}</pre>"):
        assert names.linked(whole) == whole


def test_every_public_name_has_an_entry(site):
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(site.glob("api/*.html")))
    identifiers = hook("names").entries().values()
    assert len(identifiers) > 100
    assert [name for name in identifiers if f'id="{name}"' not in text] == []


def test_pages_link_names_and_signatures_link_tensors(site):
    links = re.compile(r'<a class="autorefs[^>]*href="([^"#]*)#[^"]*"[^>]*>')
    found = {
        name: links.findall(page.read_text(encoding="utf-8"))
        for name, page in html_pages(site).items()
    }
    outside = [name for name, pages in found.items() if pages and not name.startswith("api/")]
    assert len(outside) > 15
    assert sum(len(found[name]) for name in outside) > 200
    assert found["api/layers.html"].count("tensors.html") > 100


def test_every_name_of_a_tensor_is_explained(site):
    from keras_transformer import arguments

    tree = ast.parse(Path(arguments.__file__).read_text(encoding="utf-8"))
    names = [node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)]
    text = (site / "api/tensors.html").read_text(encoding="utf-8")
    found = re.findall(r'<h\d id="keras_transformer\.arguments\.(\w+)"', text)
    assert found == names


def test_api_pages_show_constructors_and_no_artefacts(site):
    text = (site / "api/layers.html").read_text(encoding="utf-8")
    plain = re.sub(r"<[^>]*>", "", text)
    assert re.search(r"Encoder\(\s*num_layers: int,\s*num_heads: int,", plain)
    for page in sorted(site.glob("api/*.html")):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'field-body">\s*–', text), (
            page.name
        )  # a dash without a name before it
        assert ">Shapes<" not in text, page.name  # the title of a box


def test_nothing_is_fetched_from_elsewhere(site):
    assert FETCHED.search('<script async src="https://example.org/x.js">')
    assert FETCHED.search('<link rel="stylesheet" href="//example.org/x.css">')
    for name, page in html_pages(site).items():
        assert not FETCHED.search(page.read_text(encoding="utf-8")), name


def test_a_link_to_the_site_has_a_card(site):
    for name in ("index.html", "how-to/onnx.html"):
        text = (site / name).read_text(encoding="utf-8")
        [image] = re.findall(r'<meta property="og:image" content="([^"]+)">', text)
        card = (site / name).parent / image
        header = card.read_bytes()[:24]
        assert header.startswith(b"\x89PNG")
        sizes = int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:], "big")
        assert sizes == (1200, 630)


@pytest.fixture
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs pip install selenium")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for option in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{option}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(programs[1]))
    yield driver
    driver.quit()


# What a page has that leads beyond the window, where nothing around it scrolls; blank pictures.
CUT_OFF = """
const scrolls = element => element && element !== document.body
    && (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
const isCutOff = element => element.getBoundingClientRect().right > innerWidth + 1
    && !scrolls(element.parentElement);
const all = [...document.querySelectorAll(".md-content *")];
const blank = [...document.images].filter(image => !image.naturalWidth);
const beyond = Math.max(0, document.documentElement.scrollWidth - innerWidth);
return [beyond, all.filter(isCutOff).length, blank.length];
"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_scrolls_sideways(site, browser, width, scheme):
    sizes = dict(width=width, height=844, deviceScaleFactor=1, mobile=width < 500)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get("data:text/html,<body><div class=md-content><p style='width:2000px'>a</p></div>")
    assert browser.execute_script(CUT_OFF)[1] == 1
    for name, page in html_pages(site).items():
        if not name.startswith("source/") and name != "404.html":  # its links are a server's
            browser.get(page.as_uri())
            assert browser.execute_script(CUT_OFF) == [0, 0, 0], name
            found = browser.execute_script("return document.body.dataset.mdColorScheme")
            assert found == {"light": "default", "dark": "slate"}[scheme]


def test_api_pages_show_examples_and_every_public_layer(site):
    from keras_transformer import layers

    text = (site / "api/layers.html").read_text(encoding="utf-8")
    assert all(f'id="keras_transformer.layers.{name}"' in text for name in layers.__all__)
    assert text.count('class="gp">&gt;&gt;&gt; ') > len(layers.__all__)
    assert "keras_transformer.layers.FeedForward.get_config" not in text
