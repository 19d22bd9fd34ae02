"""Turns the formulas of a page into MathML while the site is built, so that no script draws them.

Formulas are written `$...$` and `$$...$$`, as GitHub reads them too. Browsers draw MathML by
themselves, without network, also when a page is opened from disk. A font for it, which not every
system has, is taken from the package ziamath and put beside the pages.
"""

import html
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=tag)>',
    re.DOTALL,
)
# Names of functions have a narrow space before them, and after them if no bracket follows.
NAME = "<mi>(?:ln|sin|cos|tanh)</mi>"
BEFORE = re.compile(f"(</m(?:i|n|sub)>)({NAME})")
AFTER = re.compile(f"({NAME})(?=<m(?:i|n|frac)>)")
# Bars of a norm, which would stretch to the line's height and lie over what they enclose.
BAR = re.compile("<mo>(&#x02016;|&#x0007C;|\\|)</mo>")
NARROW = '<mspace width="0.167em"/>'
FONT = "STIXTwoMath-Regular.ttf"


def mathml(latex, display):
    """Gives a formula as a MathML element; a command that is not understood raises."""
    element = convert(latex.strip(), display="block" if display else "inline")
    if "\\" in html.unescape(element):
        raise ValueError(f"a formula must be LaTeX that becomes MathML. Received: {latex}")
    element = BAR.sub(r'<mo stretchy="false" lspace="0.1em" rspace="0.1em">\1</mo>', element)
    return AFTER.sub(rf"\1{NARROW}", BEFORE.sub(rf"\1{NARROW}\2", element))


def on_page_content(content, **_):
    """Replaces each formula that the Markdown extension arithmatex has found."""
    return FORMULA.sub(
        lambda found: mathml(html.unescape(found["latex"]), found["open"] == "["), content
    )


def on_post_build(config):
    """Puts the font where site.css looks for it."""
    directory = Path(config.site_dir, "assets", "fonts")
    directory.mkdir(parents=True, exist_ok=True)
    [package] = find_spec("ziamath").submodule_search_locations  # not imported: it is not run
    shutil.copyfile(Path(package, "fonts", FONT), directory / FONT)
