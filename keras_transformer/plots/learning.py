"""Learning curves of a training run, or of several to compare, over the epochs."""

import csv
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_transformer.plots.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    add_legend,
    count_whole,
    figure_class,
    marker_style,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

History: TypeAlias = Any
"""What `fit` returned, its `history` dict of lists, a list of dicts, or the path of a CSV file."""

Columns: TypeAlias = dict[str, np.ndarray]  # a value an epoch, NaN where none was measured

METRICS = ("loss", "perplexity", "accuracy", "exact_match", "word_error_rate", "bleu", "chrf")
LOWER_IS_BETTER = ("loss", "perplexity", "word_error_rate")
RATES = ("learning_rate", "lr")


def learning_curve(history: History) -> "Figure":
    """Draws loss, perplexity, accuracy and learning rate over the epochs, one below the other.

    Epochs count from 1. What `fit` returned knows its epochs, also after `initial_epoch=5`. In the
    other forms a column `epoch` tells them; where it starts at 0, 1 is added. Without it the first
    is 1.

    A line joins the measured epochs. Empty and NaN mean not measured. A column `NAME_epoch`, as
    `TranslationQuality` logs it, tells the epoch in which the value of `NAME` was measured.

    Args:
        history: what `fit` returned, its `history` dict of lists, or a list of one dict an epoch.
            Or the path of a CSV file with one line an epoch, as `keras.callbacks.CSVLogger`
            writes it. Validation columns start with `val_`.

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when `history` is none of these, there is no `loss`, no epoch, or a value is not
            a number.
        ImportError: when matplotlib is not installed.

    Example:

    >>> figure = learning_curve({"loss": [3.0, 2.0], "val_loss": [2.5, 2.2], "lr": [0.1, 0.05]})
    >>> [panel.get_ylabel() for panel in figure.axes]
    ['loss', 'learning rate']
    """
    new_figure = figure_class()
    epochs, columns = _read(history, "history")
    figure, panels = _panels(new_figure, _shown(columns), width=7.0)
    for name, panel in panels.items():
        if name in RATES:
            panel.plot(epochs, columns[name], color=GREEN, marker=".")
        for key, label, color in [(name, "training", BLUE), (f"val_{name}", "validation", ORANGE)]:
            if key in columns and name not in RATES:
                label += f" (best {_best(name, columns[key]):.4g})"
                panel.plot(*measured(epochs, columns, key), color=color, marker=".", label=label)
        if name not in RATES:
            panel.legend(frameon=False)
    _finish(panels)
    return figure


def learning_curves(histories: Mapping[str, History]) -> "Figure":
    """Draws the learning curves of several runs, a panel a metric, a colour a run.

    Validation is drawn in full, training dashed and thin. The legend of a panel gives the best
    value of each run, of the validation where there is one. Runs may differ in their epochs and in
    what they measured.

    Args:
        histories: dict of name to history, each in any form that `learning_curve` takes.

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when `histories` is not a dict of at least one, or a history cannot be drawn.
        ImportError: when matplotlib is not installed.

    Example:

    >>> runs = {"small": {"loss": [3.0, 2.0]}, "large": {"loss": [2.5, 1.5, 1.2]}}
    >>> [text.get_text() for text in learning_curves(runs).axes[0].get_legend().get_texts()]
    ['small: 2', 'large: 1.2']
    """
    new_figure = figure_class()
    if not isinstance(histories, Mapping) or not histories:
        raise ValueError(
            "`histories` must be a dict of name to history, with one at least. "
            f"Received: histories={histories!r}"
        )
    runs = {name: _read(value, f"histories[{name!r}]") for name, value in histories.items()}
    shown = _shown(dict.fromkeys(key for _, columns in runs.values() for key in columns))
    figure, panels = _panels(new_figure, shown, width=8.5)
    curves: dict[str, list[tuple[str, Line2D]]] = {name: [] for name in panels}
    for name, panel in panels.items():
        for number, (run, (epochs, columns)) in enumerate(runs.items()):
            style = marker_style(number)
            curves[name] += _draw_run(panel, name, epochs, columns, label=run, style=style)
    _finish(panels)
    for name, panel in panels.items():
        heading = None if name in RATES else "best"
        place = (1.0, 1.0)
        add_legend(panel, curves[name], title=heading, loc="upper left", bbox_to_anchor=place)
    if any(line.get_linestyle() == "--" for panel in panels.values() for line in panel.lines):
        _explain_lines(figure)
    return figure


def _draw_run(
    panel: "Axes",
    name: str,
    epochs: np.ndarray,
    columns: Columns,
    *,
    label: str,
    style: dict[str, Any],
) -> list[tuple[str, "Line2D"]]:
    """Draws one metric of one run, if it has it; gives the (label, line) for the legend."""
    training, validation = columns.get(name), columns.get(f"val_{name}")
    best = training if validation is None else validation
    if best is None:
        return []
    style = {**style, "markersize": 4}
    if name in RATES:
        if training is None:
            return []
        style["markevery"] = math.ceil(len(epochs) / 12)
        (line,) = panel.plot(epochs, training, label=label, **style)
        return [(label, line)]
    if training is not None:
        thin = style | {"marker": "", "linestyle": "--", "linewidth": 1.0}
        (line,) = panel.plot(*measured(epochs, columns, name), **thin)
    if validation is not None:
        points = measured(epochs, columns, f"val_{name}")
        dots = math.ceil(len(points[0]) / 12)
        (line,) = panel.plot(*points, linewidth=1.8, markevery=dots, **style)
    label = f"{label}: {_best(name, best):.4g}"
    line.set_label(label)
    return [(label, line)]


def measured(epochs: np.ndarray, columns: Columns, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Gives the epochs that were measured and their values: a line joins them."""
    values = columns[name]
    found = ~np.isnan(values)
    if f"{name}_epoch" not in columns:
        return epochs[found], values[found]
    told = columns[f"{name}_epoch"]  # repeated until the next measurement
    epochs = np.where(np.isnan(told), epochs, told)[found]
    epochs, first = np.unique(epochs, return_index=True)
    return epochs, values[found][first]


def _explain_lines(figure: "Figure") -> None:
    """Says above the panels which line is full and which dashed."""
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=GREY, marker="o", markersize=4, linewidth=1.8, label="validation"),
        Line2D([], [], color=GREY, linestyle="--", linewidth=1.0, label="training"),
    ]
    figure.legend(handles=lines, loc="outside upper center", ncols=2, frameon=False)


def _shown(columns: Iterable[str]) -> list[str]:
    """Gives the metrics to draw, in the order of `METRICS`, then the learning rate."""
    epochs = {f"{name}_epoch" for name in columns}
    names = dict.fromkeys(name.removeprefix("val_") for name in columns if name not in epochs)
    shown = [n for n in names if any(metric in n for metric in METRICS)]
    shown.sort(key=lambda n: [metric in n for metric in METRICS].index(True))
    return shown + [name for name in RATES if name in columns]


def _panels(
    new_figure: "type[Figure]", names: Sequence[str], width: float
) -> tuple["Figure", dict[str, "Axes"]]:
    """Gives a figure with a panel for each name, one below the other, and the dict of panels."""
    figure = new_figure(figsize=(width, 0.8 + 2.1 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    return figure, dict(zip(names, panels, strict=True))


def _finish(panels: dict[str, "Axes"]) -> None:
    """Labels the axes of all panels, whose curves are drawn."""
    for name, panel in panels.items():
        low, high = panel.dataLim.intervaly
        if "perplexity" in name and low > 0 and high > 10 * low:
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter("{x:g}")
        panel.set_ylabel("learning rate" if name in RATES else name.replace("_", " "))
        tidy(panel)
    panel.set_xlabel("epoch")
    count_whole(panel.xaxis, min_n_ticks=1)


def _best(name: str, values: np.ndarray) -> float:
    """Gives the best of a metric's values."""
    lower = any(metric in name for metric in LOWER_IS_BETTER)
    return np.nanmin(values) if lower else np.nanmax(values)


def _read(history: History, argument: str) -> tuple[np.ndarray, Columns]:
    """Gives the epochs, counted from 1, and the other columns of a training history."""
    columns = _history_columns(history, argument)
    size = len(columns["loss"])
    epochs = columns.pop("epoch", np.arange(size))
    epochs = epochs + 1 if np.nanmin(epochs) == 0 else epochs
    # A `History` that served several calls of `fit` knows the epochs of the last alone.
    known = getattr(history, "epoch", [])
    return (np.array(known) + 1 if len(known) == size else epochs), columns


def _history_columns(history: History, argument: str) -> Columns:
    """Gives the columns of a training history as float arrays, "loss" among them."""
    history = getattr(history, "history", history)
    if isinstance(history, (str, os.PathLike)):
        with open(history, newline="", encoding="utf-8") as file:
            history = list(csv.DictReader(file))
    if not isinstance(history, Mapping):
        rows = history if isinstance(history, (list, tuple)) else [history]
        if not all(isinstance(row, Mapping) for row in rows):
            raise ValueError(
                f"`{argument}` must be what `fit` returned, a dict of lists, a list of dicts or "
                f"the path of a CSV file. Received: {argument}={history!r}"
            )
        names = dict.fromkeys(name for row in history for name in row)
        history = {name: [row.get(name) for row in history] for name in names}
    columns = {name: _column(argument, name, values) for name, values in history.items()}
    columns = {name: vs for name, vs in columns.items() if not np.isnan(vs).all()}
    sizes = {name: len(values) for name, values in columns.items()}
    if "loss" not in columns or len(set(sizes.values())) > 1:
        raise ValueError(
            f"`{argument}` must have a column loss, a value an epoch and columns of equal length. "
            f"Received: {sizes}"
        )
    return columns


def _column(argument: str, name: str, values: Any) -> np.ndarray:
    """Reads all values of a name in a history."""
    if np.ndim(np.asarray(values, dtype=object)) == 0:
        raise ValueError(
            f"`{argument}` must hold a list of numbers for each name. Received: {name}={values!r}"
        )
    return np.array([_number(argument, name, value) for value in values])


def _number(argument: str, name: str, value: Any) -> float:
    """Reads one value of a history; what was not measured in an epoch is NaN."""
    try:
        return math.nan if value in (None, "", "NA") else float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{argument}` must hold numbers. Received: {name}={value!r}") from error
