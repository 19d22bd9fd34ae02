"""The guide keeps its word: each block of code gives what it shows, in both editions."""

import doctest
import functools
import re
from pathlib import Path

import pytest

from tests.scripts import load_script

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "guide"
EDITIONS = {"English": GUIDE, "Korean": GUIDE / "ko"}
PAGES = sorted(path.name for path in GUIDE.glob("[0-9]*.md"))
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$\$.+?\$\$|\$[^$\n]+?\$", re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]+\]\((?:\.\./)?([\w-]+\.png)\)")
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def text_of(edition, page):
    return (EDITIONS[edition] / page).read_text(encoding="utf-8")


def blocks_of(text):
    return [(found["language"], found["body"]) for found in FENCE.finditer(text)]


def failures_of(text):
    """Runs the examples of a page from the top, and gives what doctest says of those that fail."""
    return failures_of_code("\n".join(body for _, body in blocks_of(text)))


@functools.cache  # code that both editions have runs once
def failures_of_code(source):
    test = doctest.DocTestParser().get_doctest(source, {"__name__": "page"}, "page", None, 0)
    report = []
    # Not verbose: doctest looks for "-v" among the arguments of pytest.
    doctest.DocTestRunner(verbose=False, optionflags=OPTIONS).run(test, out=report.append)
    return "".join(report)


def test_a_wrong_number_is_found():
    page = "Text.\n\n```pycon\n>>> 1 + 1\n3\n```\n"
    assert "Expected:\n    3\nGot:\n    2" in failures_of(page)
    assert failures_of(page.replace("3", "2")) == ""


def test_there_are_twelve_steps_in_both_editions():
    assert [page[:2] for page in PAGES] == [f"{number:02d}" for number in range(1, 13)]
    for folder in EDITIONS.values():
        assert sorted(path.name for path in folder.glob("*.md")) == [*PAGES, "index.md"]


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize(
    "page",
    # The pages on the decoder, training and search take three times as long as all others.
    [pytest.param(p, marks=pytest.mark.slow if p[:2] in ("10", "11", "12") else ()) for p in PAGES],
)
def test_code_gives_what_it_shows(page, edition):
    text = text_of(edition, page)
    assert {language for language, _ in blocks_of(text)} == {"pycon"}
    assert failures_of(text) == ""


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_a_formula_a_picture_and_exercises_with_answers(page, edition):
    text = text_of(edition, page)
    assert FORMULA.search(text)
    assert PICTURE.search(text)
    answers = re.findall(r"<details markdown=\"1\">.*?</details>", text, re.DOTALL)
    assert len(answers) >= 2
    assert len(re.findall(r"^\*\*\d\.", text, re.MULTILINE)) == len(answers)
    assert all(">>> " in answer for answer in answers)


@pytest.mark.parametrize("page", PAGES)
def test_both_editions_have_the_same_code_formulas_and_pictures(page):
    english, korean = (text_of(edition, page) for edition in EDITIONS)
    assert blocks_of(english) == blocks_of(korean)
    assert PICTURE.findall(english) == PICTURE.findall(korean)
    # Formulas stand where each language wants them.
    without_code = [FENCE.sub("", text) for text in (english, korean)]
    assert sorted(FORMULA.findall(without_code[0])) == sorted(FORMULA.findall(without_code[1]))


@pytest.mark.parametrize("page", PAGES)
def test_pictures_of_a_page_are_there_and_small(page):
    for name in PICTURE.findall(text_of("English", page)):
        assert (GUIDE / name).stat().st_size < 150_000


@pytest.mark.slow
def test_the_script_draws_the_pictures_that_the_pages_show(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    load_script(GUIDE / "pictures.py").main(tmp_path)
    shown = {name for page in PAGES for name in PICTURE.findall(text_of("English", page))}
    assert {path.name for path in tmp_path.iterdir()} == shown
    assert {path.name for path in GUIDE.glob("*.png")} == shown
    assert {line.split(":")[0] for line in capsys.readouterr().out.splitlines()} == shown
    assert sum((GUIDE / name).stat().st_size for name in shown) < 1_500_000
