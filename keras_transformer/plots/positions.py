"""Positional encodings: the table itself, and its dot products over the distance."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.arguments import Tensor
from keras_transformer.plots.drawing import (
    add_legend,
    array,
    count_whole,
    curve_style,
    figure_class,
    labelled,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def positional_encoding(encoding: Tensor) -> "Figure":
    """Draws a positional encoding: a row a position, a column a dimension of the model.

    Args:
        encoding: array of the encoding of each position.

    Shapes: `encoding` is (position, d_model).

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when `encoding` has another number of axes.
        ImportError: when matplotlib is not installed.

    Example:

    >>> figure = positional_encoding([[0.0, 1.0], [0.84, 0.54]])
    >>> figure.axes[0].get_ylabel()
    'position'
    """
    new_figure = figure_class()
    encoding = array("encoding", encoding, ("position", "d_model"))
    limit = np.abs(encoding).max() or 1.0
    figure = new_figure(figsize=(7.5, 4.5), layout="constrained")
    panel = figure.subplots()
    image = panel.imshow(encoding, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
    for axis in (panel.xaxis, panel.yaxis):
        count_whole(axis)
    panel.set_xlabel("dimension")
    panel.set_ylabel("position")
    figure.colorbar(image, ax=panel, label="value")
    return figure


def dot_product_by_distance(encodings: Tensor | Mapping[str, Tensor]) -> "Figure":
    """Draws the dot product of two positions over the distance between them.

    The curve at distance k is the mean over all positions p of `e[p] · e[p + k]`. A band reaches
    from the smallest to the largest of them. For sines and cosines there is no band: their product
    `Σ_i cos(k w_i)` depends on the distance alone.

    Args:
        encodings: array of the encoding of each position, or a dict of label to array, to compare
            several.

    Shapes: an encoding is (position, d_model).

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when there is no encoding, or one has another number of axes.
        ImportError: when matplotlib is not installed.

    Reference: Vaswani et al. 2017, section 3.5.

    Example:

    >>> figure = dot_product_by_distance([[3.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    >>> [round(float(y), 3) for y in figure.axes[0].lines[0].get_ydata()]  # (9 + 1 + 4) / 3, 0, 6
    [4.667, 0.0, 6.0]
    """
    new_figure = figure_class()
    encodings = labelled(encodings)
    if not encodings:
        raise ValueError(
            "`encodings` must be an array (position, d_model), or a dict of label to array. "
            "Received: encodings={}"
        )
    figure = new_figure(figsize=(7.0, 3.8), layout="constrained")
    panel, curves = figure.subplots(), []
    for number, (label, encoding) in enumerate(encodings.items()):
        encoding = array("encodings", encoding, ("position", "d_model"))
        mean, low, high = _products(encoding)
        style, distances = curve_style(number), range(len(mean))
        (line,) = panel.plot(distances, mean, label=label, **style)
        curves.append((label, line))
        if np.max(high - low) > 1e-3 * np.abs(mean).max():  # more than rounding
            panel.fill_between(distances, low, high, color=style["color"], alpha=0.2, linewidth=0)
    if any(encodings):
        add_legend(panel, curves)
    panel.axhline(0.0, color="black", linewidth=0.6)
    panel.set_xlabel("distance between the positions")
    panel.set_ylabel("dot product")
    count_whole(panel.xaxis, min_n_ticks=1)
    tidy(panel)
    return figure


def _products(encoding: np.ndarray) -> list[np.ndarray]:
    """Gives mean, smallest and largest dot product of the positions at each distance from 0."""
    encoding = encoding.astype("float64")
    products = encoding @ encoding.T  # -> (position, position)
    at_distance = [np.diagonal(products, distance) for distance in range(len(products))]
    return [np.array([of(values) for values in at_distance]) for of in (np.mean, np.min, np.max)]
