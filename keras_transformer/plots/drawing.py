"""What the figures share: matplotlib's `Figure`, colours for all eyes, text in any script."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from keras import ops

from keras_transformer.arguments import Tensor
from keras_transformer.plots.glyphs import drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # told apart by all eyes
COLORS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
LINES, MARKERS = ("-", "--", ":", "-."), ("o", "s", "^", "D")  # one for each round of the colours
GREY = "#777777"
ROUNDING = 0.01  # of a row's sum: weights may come from 16 bits


def figure_class() -> "type[Figure]":
    """Imports matplotlib, now that a figure is asked for, and gives its `Figure`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Figures need matplotlib: pip install "keras-transformer-components[plots]"'
        ) from error
    return Figure


def array(name: str, values: Tensor, axes: Sequence[str]) -> np.ndarray:
    """Gives `values` as a float32 array with the named axes, none of them empty."""
    array = np.asarray(ops.convert_to_numpy(values), dtype="float32")
    if array.ndim != len(axes) or 0 in array.shape:
        raise ValueError(
            f"`{name}` must be ({', '.join(axes)}), with no empty axis; take one sentence of a "
            f"batch with {name}[0]. Received: shape {array.shape}"
        )
    return array


def check_weights(weights: np.ndarray, whole: bool) -> None:
    """Raises `ValueError` where a row of `weights` is not of a softmax: `whole`, or cut or 0."""
    sums = weights.sum(axis=-1)
    right = sums <= 1 + ROUNDING  # False for NaN
    if whole:
        right &= (sums >= 1 - ROUNDING) | (sums == 0)
    wrong = ~right | (weights < 0).any(axis=-1)
    if wrong.any():
        row, rule = weights[wrong][0], "1, or 0 throughout" if whole else "at most 1"
        raise ValueError(
            "`weights` must be what a softmax gives: rows without numbers below 0 that sum to "
            f"{rule}. Received: a row from {row.min():g} to {row.max():g} that sums to "
            f"{row.sum():g}"
        )


def labelled(values: Any) -> dict[str, Any]:
    """Gives a dict of label to value: `values` itself, or the one value under no label."""
    return dict(values) if isinstance(values, Mapping) else {"": values}


def tidy(panel: "Axes") -> None:
    """Takes the clutter from a panel of curves."""
    panel.grid(True, color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def count_whole(axis: "Axis", **options: Any) -> None:
    """Puts the ticks of an axis at whole numbers."""
    locator: Any = axis.get_major_locator()
    locator.set_params(integer=True, **options)


def curve_style(number: int) -> dict[str, Any]:
    """Gives colour and dashes of curve `number`, from 0: 24 that differ."""
    rounds, color = divmod(number, len(COLORS))
    return {"color": COLORS[color], "linestyle": LINES[rounds % len(LINES)]}


def marker_style(number: int) -> dict[str, Any]:
    """Gives colour and marker of curve `number`, where dashes have another meaning."""
    rounds, color = divmod(number, len(COLORS))
    return {"color": COLORS[color], "marker": MARKERS[rounds % len(MARKERS)]}


def add_legend(
    panel: "Axes", curves: Iterable[tuple[str, "Line2D"]], longest: int = 40, **options: Any
) -> "Legend":
    """Adds the legend of a panel, its labels drawn as they are, in whatever script.

    `curves` is a list of (label, line); a curve without a label is left out.
    """
    curves = [(label, line) for label, line in curves if label != ""]
    texts, families = drawable([label for label, _ in curves], longest)
    # Labels are set later: matplotlib leaves out a line whose label begins with "_".
    lines, places = [line for _, line in curves], ["?"] * len(curves)
    legend = panel.legend(lines, places, frameon=False, **options)
    for label, text in zip(legend.get_texts(), texts, strict=True):
        label.set(text=text, fontfamily=families, parse_math=False)
    return legend


def add_title(figure: "Figure", title: str | None) -> None:
    """Writes the title above all panels, drawn as it is; `None` or "" leaves no room for one."""
    if title:
        (text,), families = drawable([title], longest=100)
        figure.suptitle(text, fontfamily=families, fontsize=12, parse_math=False)
