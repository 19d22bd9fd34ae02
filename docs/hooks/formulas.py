"""Turns the formulas of a page into MathML while the site is built, so that no script draws them.

Formulas are written `$...$` and `$$...$$`, as GitHub reads them too. Browsers draw MathML by
themselves, without network, also when a page is opened from disk.
"""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=tag)>',
    re.DOTALL,
)


def mathml(latex, display):
    """Gives a formula as a MathML element; a command that is not understood raises."""
    element = convert(latex.strip(), display="block" if display else "inline")
    if "\\" in html.unescape(element):
        raise ValueError(f"a formula must be LaTeX that becomes MathML. Received: {latex}")
    return element


def on_page_content(content, **_):
    """Replaces each formula that the Markdown extension arithmatex has found."""
    return FORMULA.sub(
        lambda found: mathml(html.unescape(found["latex"]), found["open"] == "["), content
    )
