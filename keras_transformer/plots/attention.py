"""Attention weights with tokens on the axes: the heads of a layer, or one alignment."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_transformer.arguments import Tensor
from keras_transformer.plots.drawing import add_title, array, check_weights, figure_class
from keras_transformer.plots.glyphs import drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Tokens: TypeAlias = Sequence[str | bytes]
"""The texts of the pieces of one sentence, as str or UTF-8."""


def attention_heads(
    weights: Tensor, query_tokens: Tokens, key_tokens: Tokens, title: str | None = None
) -> "Figure":
    """Draws the attention weights of one sentence, one panel a head, tokens on the axes.

    Row q of a panel is the query token q: how it spreads its attention over the key tokens. All
    panels share one colour scale. Tokens stand in the order of their positions, from the left and
    from the top, in every script. A character that no installed font can draw is written as its
    code point, `U+AC00`, with a `UserWarning`. So is a character that nobody could see, without a
    warning. Spaces are written as `␣`.

    Args:
        weights: array of attention weights of one sentence in one layer, any layer: what
            `MultiHeadAttention` gives with `return_attention_scores=True`, or
            `Transformer.attention_weights(...)[layer][sentence]`.
        query_tokens: strings, one a query.
        key_tokens: strings, one a key.
        title: text above the panels.

    Shapes: `weights` is (heads, query, key).

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when `weights` has another shape than the tokens say, a number below 0 or not
            finite, or a row with a sum above 1.
        ImportError: when matplotlib is not installed.

    Example:

    >>> figure = attention_heads([[[0.9, 0.1], [0.4, 0.6]]], ["le", "chat"], ["the", "cat"])
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['the', 'cat']
    """
    new_figure = figure_class()
    weights = array("weights", weights, ("heads", "query", "key"))
    check_weights(weights, whole=False)
    num_heads, *counts = weights.shape  # the queries and the keys
    tokens = {"query_tokens": query_tokens, "key_tokens": key_tokens}
    query_labels, key_labels, families = _labels(tokens, counts, "(heads, query, key)", weights)

    width, height, points = _panel_size(counts[0], counts[1], largest=0.3, whole=5.5)
    rows, columns = _grid(num_heads, height / width)
    figure = new_figure(
        figsize=(columns * (width + 0.15) + 2.2, rows * (height + 0.35) + 1.6), layout="constrained"
    )
    panels = figure.subplots(rows, columns, squeeze=False)
    highest = weights.max() or 1.0
    for head, panel in enumerate(panels.flat):
        if head >= num_heads:
            panel.set_axis_off()
            continue
        image = panel.imshow(weights[head], cmap="viridis", vmin=0.0, vmax=highest, aspect="auto")
        panel.set_title(f"head {head + 1}", fontsize=10)
        is_left, is_lowest = head % columns == 0, head + columns >= num_heads
        left = query_labels if is_left else [""] * len(query_labels)
        _write_tokens(panel, left, key_labels if is_lowest else [""] * counts[1], families, points)
    figure.colorbar(image, ax=panels, label="attention weight", shrink=0.8, aspect=30, pad=0.02)
    figure.supxlabel("key", fontsize=11)
    figure.supylabel("query", fontsize=11)
    add_title(figure, title)
    return figure


def alignment(
    weights: Tensor, target_tokens: Tokens, source_tokens: Tokens, title: str | None = None
) -> "Figure":
    """Draws which source tokens each target token comes from, a dot at the strongest of a row.

    A row without any weight gets no dot. Tokens are written as in `attention_heads`.

    Args:
        weights: array of one sentence pair, such as `DecodeResult.alignments[sentence, hypothesis]`
            or the mean of a layer's heads, cut to the tokens.
        target_tokens: strings, one a row.
        source_tokens: strings, one a column.
        title: text above the picture.

    Shapes: `weights` is (target, source).

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when `weights` has another shape than the tokens say, a number below 0 or not
            finite, or a row with a sum above 1.
        ImportError: when matplotlib is not installed.

    Reference: Bahdanau et al. 2015, figure 3.

    Example:

    >>> figure = alignment([[0.1, 0.9], [0.8, 0.2]], ["chat", "noir"], ["black", "cat"])
    >>> figure.axes[0].collections[0].get_offsets().tolist()  # column, row
    [[1.0, 0.0], [0.0, 1.0]]
    """
    new_figure = figure_class()
    weights = array("weights", weights, ("target", "source"))
    check_weights(weights, whole=False)
    tokens = {"target_tokens": target_tokens, "source_tokens": source_tokens}
    rows, columns, families = _labels(tokens, weights.shape, "(target, source)", weights)

    width, height, points = _panel_size(len(rows), len(columns), largest=0.34, whole=7.0)
    figure = new_figure(figsize=(width + 2.6, height + 1.6), layout="constrained")
    panel = figure.subplots()
    image = panel.imshow(
        weights, cmap="viridis", vmin=0.0, vmax=weights.max() or 1.0, aspect="auto"
    )
    _write_tokens(panel, rows, columns, families, points)
    panel.xaxis.set_label_position("top")
    panel.tick_params(axis="x", top=True, bottom=False, labeltop=True, labelbottom=False)
    seen = weights.max(axis=1).nonzero()[0]
    panel.scatter(weights.argmax(axis=1)[seen], seen, s=14, c="black", edgecolors="white")
    panel.set_xlabel("source")
    panel.set_ylabel("target")
    figure.colorbar(image, ax=panel, label="attention weight", shrink=0.8, aspect=30, pad=0.02)
    add_title(figure, title)
    return figure


def _labels(
    tokens: Mapping[str, Tokens], counts: Sequence[int], axes: str, weights: np.ndarray
) -> tuple[list[str], list[str], list[str]]:
    """Gives the labels of the rows, those of the columns, and the font families for both."""
    for (name, values), count in zip(tokens.items(), counts, strict=True):
        if isinstance(values, (str, bytes)) or len(values) != count:
            raise ValueError(
                f"`{name}` must be a list of {count} strings, as `weights` {axes} has "
                f"shape {weights.shape}. Received: {name}={values!r}"
            )
    rows, columns = tokens.values()
    labels, families = drawable([*rows, *columns], show_spaces=True)
    return labels[: counts[0]], labels[counts[0] :], families


def _panel_size(
    num_rows: int, num_columns: int, largest: float, whole: float
) -> tuple[float, float, float]:
    """Gives width and height in inches of a panel with square cells, and the size of its text.

    A cell is `largest` wide, or less where the longer side would be over `whole`.
    """
    cell = min(largest, whole / max(num_rows, num_columns))
    width, height = max(1.3, cell * num_columns), max(1.3, cell * num_rows)
    return width, height, min(10.0, 72 * min(width / num_columns, height / num_rows) * 0.85)


def _write_tokens(
    panel: "Axes", rows: list[str], columns: list[str], families: list[str], points: float
) -> None:
    """Writes the labels at a panel's rows and columns."""
    text: dict[str, Any] = {"fontfamily": families, "fontsize": points, "parse_math": False}
    panel.set_yticks(range(len(rows)), rows, **text)
    panel.set_xticks(range(len(columns)), columns, **text)
    panel.tick_params(length=2 if points > 5 else 0)
    panel.tick_params(axis="x", rotation=90)


def _grid(count: int, height_to_width: float) -> tuple[int, int]:
    """Gives rows and columns for panels of one shape: near a 4:3 page, with few empty places."""
    ideal = math.sqrt(count * height_to_width * 4 / 3)

    def cost(columns: int) -> float:
        empty = -count % columns
        return abs(math.log(columns / ideal)) + empty / columns

    columns = min(range(1, count + 1), key=cost)
    return math.ceil(count / columns), columns
