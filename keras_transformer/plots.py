"""Figures to look at: attention heads, learning curves, positional encodings, schedules.

Each function returns a `matplotlib.figure.Figure` and touches no global state: save it with
`figure.savefig("name.png")`, or leave it as the last line of a notebook cell to see it.
"""

import csv
import math
import os
from collections.abc import Mapping

import numpy as np
from keras import ops

from keras_transformer.glyphs import drawable

__all__ = ["attention_heads", "learning_curve", "positional_encoding", "schedule"]

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"  # told apart by all eyes
METRICS = ("loss", "perplexity", "accuracy", "exact_match", "bleu", "chrf")
RATES = ("learning_rate", "lr")


def attention_heads(weights, query_tokens, key_tokens, title=None):
    """Draws the attention weights of one sentence, one panel a head, tokens on the axes.

    Row q of a panel is the query token q: how it spreads its attention over the key tokens. All
    panels share one colour scale. Tokens that no installed font can draw are written as code
    points, `U+AC00`, and spaces as `␣`.

    Args:
        weights: array of attention weights of one sentence.
        query_tokens: strings, one a query.
        key_tokens: strings, one a key.
        title: text above the panels.

    Shapes: `weights` is (heads, query, key).

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when `weights` has another shape than the tokens say.
        ImportError: when matplotlib is not installed.

    Example:

    >>> figure = attention_heads([[[0.9, 0.1], [0.4, 0.6]]], ["le", "chat"], ["the", "cat"])
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['the', 'cat']
    """
    figure_class = _figure_class()
    weights = _array("weights", weights, ("heads", "query", "key"))
    num_heads, num_queries, num_keys = weights.shape
    for name, tokens, count in [
        ("query_tokens", query_tokens, num_queries),
        ("key_tokens", key_tokens, num_keys),
    ]:
        if isinstance(tokens, (str, bytes)) or len(tokens) != count:
            raise ValueError(
                f"`{name}` must be a list of {count} strings, as `weights` (heads, query, key) has "
                f"shape {weights.shape}. Received: {name}={tokens!r}"
            )
    labels, families = drawable([*query_tokens, *key_tokens])
    labels = [label.replace(" ", "␣") if "U+" not in label else label for label in labels]
    query_labels, key_labels = labels[:num_queries], labels[num_queries:]

    cell = min(0.3, 5.5 / max(num_queries, num_keys))  # inches a token
    width, height = max(1.3, cell * num_keys), max(1.3, cell * num_queries)
    rows, columns = _grid(num_heads, height / width)
    figure = figure_class(
        figsize=(columns * (width + 0.15) + 2.2, rows * (height + 0.35) + 1.6), layout="constrained"
    )
    panels = figure.subplots(rows, columns, squeeze=False)
    points = min(10.0, 72 * min(width / num_keys, height / num_queries) * 0.85)
    text = {"fontfamily": families, "fontsize": points, "parse_math": False}
    for head, panel in enumerate(panels.flat):
        if head >= num_heads:
            panel.set_axis_off()
            continue
        image = panel.imshow(
            weights[head], cmap="viridis", vmin=0.0, vmax=weights.max() or 1.0, aspect="auto"
        )
        panel.set_title(f"head {head + 1}", fontsize=10)
        panel.tick_params(length=2 if points > 5 else 0)
        is_left, is_lowest = head % columns == 0, head + columns >= num_heads
        panel.set_yticks(
            range(num_queries), query_labels if is_left else [""] * num_queries, **text
        )
        panel.set_xticks(range(num_keys), key_labels if is_lowest else [""] * num_keys, **text)
        panel.tick_params(axis="x", rotation=90)
    figure.colorbar(image, ax=panels, label="attention weight", shrink=0.8, aspect=30, pad=0.02)
    figure.supxlabel("key", fontsize=11)
    figure.supylabel("query", fontsize=11)
    if title:
        (title,), families = drawable([title], longest=100)
        figure.suptitle(title, fontfamily=families, fontsize=12, parse_math=False)
    return figure


def learning_curve(history):
    """Draws loss, perplexity, accuracy and learning rate over the epochs, one below the other.

    Args:
        history: what `fit` returned, its `history` dict of lists, a list of one dict an epoch, or
            the path of a CSV file with one line an epoch, such as `keras.callbacks.CSVLogger`
            writes. Validation columns start with `val_`.

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when there is no `loss`, no epoch, or a value is no number.
        ImportError: when matplotlib is not installed.

    Example:

    >>> figure = learning_curve({"loss": [3.0, 2.0], "val_loss": [2.5, 2.2], "lr": [0.1, 0.05]})
    >>> [panel.get_ylabel() for panel in figure.axes]
    ['loss', 'learning rate']
    """
    figure_class = _figure_class()
    columns = _history_columns(history)
    epochs = columns.pop("epoch", np.arange(len(columns["loss"])))
    epochs = epochs + 1 if np.nanmin(epochs) == 0 else epochs  # people count from 1
    names = dict.fromkeys(name.removeprefix("val_") for name in columns)
    shown = [n for n in names if any(metric in n for metric in METRICS)]
    shown.sort(key=lambda n: [metric in n for metric in METRICS].index(True))
    shown += [name for name in RATES if name in columns]

    figure = figure_class(figsize=(7.0, 0.8 + 2.1 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for panel, name in zip(panels, shown, strict=True):
        if name in RATES:
            panel.plot(epochs, columns[name], color=GREEN, marker=".")
        for key, label, color in [(name, "training", BLUE), (f"val_{name}", "validation", ORANGE)]:
            if key in columns and name not in RATES:
                best = np.nanmin if name in ("loss", "perplexity") else np.nanmax
                label += f" (best {best(columns[key]):.4g})"
                panel.plot(epochs, columns[key], color=color, marker=".", label=label)
        if name not in RATES:
            panel.legend(frameon=False)
        low, high = panel.dataLim.intervaly
        if "perplexity" in name and low > 0 and high > 10 * low:
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter("{x:g}")
        panel.set_ylabel("learning rate" if name in RATES else name.replace("_", " "))
        _tidy(panel)
    panels[-1].set_xlabel("epoch")
    panels[-1].xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    return figure


def positional_encoding(encoding):
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
    figure_class = _figure_class()
    encoding = _array("encoding", encoding, ("position", "d_model"))
    limit = np.abs(encoding).max() or 1.0
    figure = figure_class(figsize=(7.5, 4.5), layout="constrained")
    panel = figure.subplots()
    image = panel.imshow(encoding, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
    for axis in (panel.xaxis, panel.yaxis):
        axis.get_major_locator().set_params(integer=True)
    panel.set_xlabel("dimension")
    panel.set_ylabel("position")
    figure.colorbar(image, ax=panel, label="value")
    return figure


def schedule(schedules, num_steps=None):
    """Draws the learning rate of one schedule, or of several to compare, over the updates.

    Args:
        schedules: a callable from step to rate, such as `WarmupSchedule`, or a dict of label to
            callable.
        num_steps: last step drawn; by default five times the longest warm-up, or 20,000.

    Returns: a `matplotlib.figure.Figure`.

    Raises:
        ValueError: when there is no schedule, or `num_steps` is not a positive integer.
        ImportError: when matplotlib is not installed.

    Example:

    >>> figure = schedule({"constant": lambda step: 0.1, "halved": lambda step: 0.05}, 100)
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['constant', 'halved']
    """
    figure_class = _figure_class()
    schedules = schedules if isinstance(schedules, Mapping) else {"": schedules}
    if not schedules or not all(callable(value) for value in schedules.values()):
        raise ValueError(
            "`schedules` must be a callable from step to rate, or a dict of label to callable. "
            f"Received: schedules={schedules!r}"
        )
    longest = max(getattr(value, "warmup_steps", 4000) for value in schedules.values())
    num_steps = 5 * longest if num_steps is None else num_steps
    if isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1:
        raise ValueError(f"`num_steps` must be a positive integer. Received: num_steps={num_steps}")
    steps = np.unique(np.linspace(0, num_steps, 501).astype("int64"))
    figure = figure_class(figsize=(7.0, 3.8), layout="constrained")
    panel = figure.subplots()
    panel.set_prop_cycle(color=[BLUE, ORANGE, GREEN, PURPLE])
    for label, function in schedules.items():
        panel.plot(steps, [float(function(int(step))) for step in steps], label=label)
    if any(schedules):
        panel.legend(frameon=False)
    panel.set_xlabel("update")
    panel.set_ylabel("learning rate")
    panel.xaxis.set_major_formatter("{x:,.0f}")
    _tidy(panel)
    return figure


def _figure_class():
    """Imports matplotlib, now that a figure is asked for, and gives its `Figure`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Figures need matplotlib: pip install "keras-transformer-components[plots]"'
        ) from error
    return Figure


def _array(name, values, axes):
    """Gives `values` as a float32 array with the named axes, none of them empty."""
    array = np.asarray(ops.convert_to_numpy(values), dtype="float32")
    if array.ndim != len(axes) or 0 in array.shape:
        raise ValueError(
            f"`{name}` must be ({', '.join(axes)}), with no empty axis; take one sentence of a "
            f"batch with {name}[0]. Received: shape {array.shape}"
        )
    return array


def _grid(count, height_to_width):
    """Gives rows and columns for panels of one shape: near a 4:3 page, with few empty places."""
    ideal = math.sqrt(count * height_to_width * 4 / 3)

    def cost(columns):
        empty = -count % columns
        return abs(math.log(columns / ideal)) + empty / columns

    columns = min(range(1, count + 1), key=cost)
    return math.ceil(count / columns), columns


def _tidy(panel):
    """Takes the clutter from a panel of curves."""
    panel.grid(True, color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _history_columns(history):
    """Gives the columns of a training history as float arrays, "loss" among them."""
    history = getattr(history, "history", history)
    if isinstance(history, (str, os.PathLike)):
        with open(history, newline="", encoding="utf-8") as file:
            history = list(csv.DictReader(file))
    if not isinstance(history, Mapping):
        names = dict.fromkeys(name for row in history for name in row)
        history = {name: [row.get(name) for row in history] for name in names}
    columns = {name: np.array([_number(name, v) for v in vs]) for name, vs in history.items()}
    columns = {name: vs for name, vs in columns.items() if not np.isnan(vs).all()}
    sizes = {name: len(values) for name, values in columns.items()}
    if "loss" not in columns or len(set(sizes.values())) > 1:
        raise ValueError(
            "`history` must have a column loss, a value an epoch and columns of equal length. "
            f"Received: {sizes}"
        )
    return columns


def _number(name, value):
    """Reads one value of a history; what was not measured in an epoch is NaN."""
    try:
        return math.nan if value in (None, "", "NA") else float(value)
    except ValueError as error:
        raise ValueError(f"`history` must hold numbers. Received: {name}={value!r}") from error
