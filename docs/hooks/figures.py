"""Puts figures with links into the page itself, where a browser follows their links.

A page names such a figure as any picture, which is what GitHub shows. Links inside lead from the
figure's file to files of the repository, and in the site to the pages of those files.
"""

import importlib.util
import posixpath
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
IMAGE = re.compile(r'<img [^>]*?src="(?P<target>[^":]+\.svg)"[^>]*>')
LINK = re.compile(r"<a href='(?P<target>[^':]+)'")


def site_uri(path):
    """Gives the place of a file of the repository in the site, as the hook of links has it."""
    spec = importlib.util.spec_from_file_location("links", DOCS / "hooks" / "links.py")
    links = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(links)
    return re.sub(r"\.md$", ".html", links.site_uri(path))


def inside(figure, page):
    """Gives the text of a figure, a path in docs/, with its links as seen from a page's address."""
    text = (DOCS / figure).read_text(encoding="utf-8")

    def moved(link):
        target = posixpath.normpath(
            posixpath.join("docs", posixpath.dirname(figure), link["target"])
        )
        return f"<a href='{posixpath.relpath(site_uri(target), posixpath.dirname(page) or '.')}'"

    return LINK.sub(moved, text)


def on_page_content(content, page, **_):
    """Replaces each picture whose file has links by the figure itself."""

    def replaced(image):
        figure = posixpath.normpath(
            posixpath.join(posixpath.dirname(page.file.src_uri), image["target"])
        )
        path = DOCS / figure
        if not path.is_file() or "<a href=" not in path.read_text(encoding="utf-8"):
            return image[0]
        return f'<span class="figure">{inside(figure, page.file.url)}</span>'

    return IMAGE.sub(replaced, content)
