"""Where in the sentence each head looks: entropy, distance and offset, and their picture."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from keras import ops

from keras_transformer.arguments import Tensor
from keras_transformer.plots.drawing import add_title, check_weights, figure_class

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class HeadStatistics(NamedTuple):
    """Where the heads of a layer look, each field a float64 array (heads,); see `head_statistics`.

    Attributes:
        entropy: mean entropy of the queries' weights, in bits.
        distance: mean distance from the query to what it attends to, in tokens.
        offset: the same with its sign, below 0 where the key is before the query.

    Example:

    >>> head_statistics([[[0.0, 1.0], [1.0, 0.0]]]).offset
    array([0.])
    """

    entropy: np.ndarray
    distance: np.ndarray
    offset: np.ndarray


def head_statistics(weights: Tensor, query_mask: Tensor | None = None) -> HeadStatistics:
    """Measures how widely and how far each head looks, on average over the queries.

    With the weight p(q, k) of key k for query q, positions counted from 0:

        entropy  = mean over q of -Σ_k p(q, k) log2 p(q, k)    in bits
        distance = mean over q of  Σ_k p(q, k) |k - q|         in tokens
        offset   = mean over q of  Σ_k p(q, k) (k - q)         in tokens

    Entropy 0 is one token alone, entropy log2(n) an even spread over n tokens. Distance 1 and
    offset -1 is a head that reads the token before. Between two sentences, in attention of a
    decoder to its memory, a distance compares a place in one with the same place in the other.

    Queries that attend to nothing do not count. Padding among the keys has the weight 0 and changes
    nothing; padding among the queries is left out by `query_mask`.

    Args:
        weights: array of attention weights after the softmax, of one sentence or of a batch.
        query_mask: boolean or integer array, True at queries that count; by default all do.

    Shapes: `weights` is (heads, query, key) or (batch, heads, query, key), `query_mask` is (query)
    or (batch, query); each field of the result is (heads,).

    Returns: a `HeadStatistics`.

    Raises:
        ValueError: when a shape is another one, or the mask holds floats. When a row of weights
            neither sums to 1 nor is 0, or a head has no query that counts.

    Example:

    >>> before = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]  # reads the token before
    >>> even = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]  # looks at two tokens alike
    >>> statistics = head_statistics([before, even])
    >>> statistics.entropy.tolist(), statistics.distance.tolist(), statistics.offset.tolist()
    ([0.0, 1.0], [1.0, 0.8333333333333334], [-1.0, -0.5])
    """
    weights = _weights(weights)  # -> (batch, heads, query, key)
    counted = weights.sum(axis=-1) > 0  # -> (batch, heads, query)
    counted &= _query_mask(query_mask, weights.shape)[:, None]
    if not counted.any(axis=(0, 2)).all():
        raise ValueError(
            "`weights` must have, for every head, a query that attends to something and that "
            f"`query_mask` keeps. Received: queries that count by head "
            f"{counted.sum(axis=(0, 2)).tolist()}"
        )

    def mean(values: np.ndarray) -> np.ndarray:  # (batch, heads, query) -> (heads,)
        return np.where(counted, values, 0.0).sum(axis=(0, 2)) / counted.sum(axis=(0, 2))

    num_queries, num_keys = weights.shape[-2:]
    offsets = np.arange(num_keys) - np.arange(num_queries)[:, None]  # -> (query, key)
    bits = 0.0 - np.log2(np.where(weights > 0, weights, 1.0))  # never -0.0
    return HeadStatistics(
        *(mean((weights * each).sum(axis=-1)) for each in (bits, np.abs(offsets), offsets))
    )


def head_focus(
    statistics: HeadStatistics | Iterable[HeadStatistics], title: str | None = None
) -> "Figure":
    """Draws where each head looks: entropy, distance and offset, a row a layer, a column a head.

    Args:
        statistics: what `head_statistics` gives for one layer, or a list of it, one a layer.
        title: text above the panels.

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when there is no layer, one is not a `HeadStatistics`, or they differ in their
            number of heads.
        ImportError: when matplotlib is not installed.

    Reference: Clark et al. 2019, "What Does BERT Look At?", sections 3 and 4.

    Example:

    >>> layers = [head_statistics([[[0.9, 0.1], [0.4, 0.6]]]) for _ in range(2)]
    >>> [panel.get_title(loc="left") for panel in head_focus(layers).axes[:3]]
    ['entropy in bits', 'distance in tokens', 'offset in tokens, below 0: to the tokens before']
    """
    new_figure = figure_class()
    is_one = isinstance(statistics, HeadStatistics) or not isinstance(statistics, Iterable)
    layers: list[Any] = [statistics] if is_one else list(statistics)
    if not all(isinstance(layer, HeadStatistics) for layer in layers):
        raise ValueError(
            "`statistics` must be what `head_statistics` gives for one layer, or a list of it, one "
            f"a layer. Received: statistics={statistics!r}"
        )
    sizes = [len(layer.entropy) for layer in layers]
    if len(set(sizes)) != 1:
        raise ValueError(
            "`statistics` must be of one layer or more, all with the same number of heads. "
            f"Received: numbers of heads {sizes}"
        )
    width, height = max(4.5, 0.52 * sizes[0] + 1.5), 0.34 * len(layers) + 0.85
    figure = new_figure(figsize=(width, 3 * height), layout="constrained")
    entropy, distance, offset = (np.stack(values) for values in zip(*layers, strict=True))
    farthest = np.abs(offset).max() or 1.0
    panels = figure.subplots(3, 1)
    _draw_table(panels[0], entropy, "entropy in bits", 0.0, entropy.max() or 1.0)
    _draw_table(panels[1], distance, "distance in tokens", 0.0, distance.max() or 1.0)
    text = "offset in tokens, below 0: to the tokens before"
    _draw_table(panels[2], offset, text, -farthest, farthest)
    panels[2].set_xlabel("head")
    add_title(figure, title)
    return figure


def _weights(weights: Tensor) -> np.ndarray:
    """Gives weights (batch, heads, query, key) in float64, each row 0 or with the sum 1."""
    weights = np.asarray(ops.convert_to_numpy(weights), dtype="float64")
    if weights.ndim not in (3, 4) or 0 in weights.shape:
        raise ValueError(
            "`weights` must be (heads, query, key) or (batch, heads, query, key), with no empty "
            f"axis. Received: shape {weights.shape}"
        )
    weights = weights if weights.ndim == 4 else weights[None]
    check_weights(weights, whole=True)
    return weights


def _query_mask(query_mask: Tensor | None, shape: tuple[int, ...]) -> np.ndarray:
    """Gives the mask as (batch, query), True everywhere when there is none."""
    batch, _, num_queries, _ = shape
    if query_mask is None:
        return np.ones((batch, num_queries), dtype="bool")
    mask = np.asarray(ops.convert_to_numpy(query_mask))
    if mask.dtype.kind not in "biu" or mask.shape not in {(batch, num_queries), (num_queries,)}:
        raise ValueError(
            f"`query_mask` must be boolean or integers, (batch, query) or (query). Received: "
            f"{mask.dtype} of shape {mask.shape}, with weights of shape {shape}"
        )
    return np.broadcast_to(mask != 0, (batch, num_queries))


def _draw_table(panel: "Axes", values: np.ndarray, text: str, low: float, high: float) -> None:
    """Draws numbers (layer, head) as colours, and writes each into its place."""
    signed = low < 0
    panel.imshow(values, cmap="PuOr" if signed else "viridis", vmin=low, vmax=high, aspect="auto")
    for (layer, head), value in np.ndenumerate(values):
        place = (value - low) / (high - low)
        dark = abs(place - 0.5) > 0.3 if signed else place < 0.6
        panel.text(
            head, layer, f"{round(value, 1) + 0.0:.1f}", ha="center", va="center", fontsize=9,
            color="white" if dark else "black",
        )  # fmt: skip
    num_layers, num_heads = values.shape
    panel.set_xticks(range(num_heads), [str(head + 1) for head in range(num_heads)])
    panel.set_yticks(range(num_layers), [str(layer + 1) for layer in range(num_layers)])
    panel.tick_params(length=0)
    panel.set_ylabel("layer")
    panel.set_title(text, fontsize=10, loc="left")
