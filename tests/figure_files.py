"""Saves figures and opens the files again, for the tests of pictures."""

import io
from xml.etree import ElementTree

import numpy as np

SVG = "{http://www.w3.org/2000/svg}"


def saved_png(figure, path=None):
    """Saves a PNG and gives its pixels, (height, width, 4) from 0 to 1: not all of one colour."""
    from matplotlib import image

    file = io.BytesIO() if path is None else path
    figure.savefig(file, format="png")  # warnings are errors: no glyph may be missing
    pixels = image.imread(io.BytesIO(file.getvalue()) if path is None else path)
    assert np.ptp(pixels[..., :3]) > 0.5
    return pixels


def saved_svg(figure, path):
    """Saves an SVG; gives its root element and its texts, which are drawn as outlines."""
    figure.savefig(path)
    builder = ElementTree.TreeBuilder(insert_comments=True)
    root = ElementTree.parse(path, ElementTree.XMLParser(target=builder)).getroot()
    assert root.tag == f"{SVG}svg"
    texts = [element.text.strip() for element in root.iter(ElementTree.Comment)]
    return root, texts


def texts_of(labels):
    """Gives the strings of matplotlib's text objects."""
    return [label.get_text() for label in labels]


def weights_of(*shape):
    """Gives rows of weights that sum to 1, all different."""
    values = np.arange(1.0, np.prod(shape) + 1).reshape(shape)
    return values / values.sum(-1, keepdims=True)
