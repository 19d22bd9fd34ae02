"""Draws the pictures of the guide: `python docs/guide/pictures.py [directory]`.

Each is drawn from the numbers of its page, in the colours of `keras_transformer.plots`, and the
same at every run.
"""

import sys
from pathlib import Path

import diagrams
import numpy as np
from keras import ops
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from keras_transformer import PositionalEncoding, WarmupSchedule, plots
from keras_transformer.masking import causal_mask, combine_masks, padding_mask
from keras_transformer.plots.drawing import COLORS

BLUE, ORANGE, GREEN, PURPLE = COLORS[:4]
GREY = "#555555"


def panels(width, height, columns):
    """A figure with a row of panels."""
    figure = Figure(figsize=(width, height), layout="constrained")
    row = figure.subplots(1, columns)
    for panel in row:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, row


def attention():
    figure, (scores, weights, context) = panels(8.4, 3.0, 3)
    names = ["$m_1$", "$m_2$", "$m_3$"]
    colors = [BLUE, ORANGE, GREEN]
    values = np.array([1, 2, 5]) / 8
    scores.bar(names, np.log([1, 2, 5]), color=colors)
    scores.set_title(r"scores  $q \cdot m_j$")
    weights.bar(names, values, color=colors)
    weights.set_ylim(0, 0.7)
    weights.set_title(r"weights  $\alpha_j$ (sum 1)")
    for number, text in enumerate(["1/8", "2/8", "5/8"]):
        weights.text(number, values[number] + 0.01, text, ha="center")
    below = 0.0
    for name, value, part, color in zip(names, values, (8, 4, 0), colors, strict=True):
        context.bar(["c"], [value * part], bottom=below, color=color, width=0.4)
        if part:
            text = f"{value:.3g} · {part} = {value * part:g}   ({name})"
            context.text(0.25, below + value * part / 2, text, va="center")
        below += value * part
    context.set(xlim=(-0.4, 1.6), title="context, second number")
    return figure


def scaling():
    figure, (spread, largest) = panels(8.4, 3.2, 2)
    x = np.linspace(-40, 40, 801)
    for width, color, style in ((4, BLUE, "-"), (64, ORANGE, "--"), (256, GREEN, ":")):
        density = np.exp(-(x**2) / (2 * width)) / np.sqrt(2 * np.pi * width)
        spread.plot(x, density, style, color=color, lw=2, label=f"$d_k$ = {width}")
    spread.set(xlabel="score without scaling", ylabel="density")
    spread.legend(frameon=False)
    random, widths = np.random.default_rng(0), 2 ** np.arange(11)
    for scaled, color, marker in ((False, ORANGE, "s"), (True, BLUE, "o")):
        means = [largest_weight(random, width, scaled) for width in widths]
        label = r"divided by $\sqrt{d_k}$" if scaled else "not scaled"
        largest.plot(widths, means, color=color, marker=marker, label=label)
    largest.set_xscale("log", base=2)
    largest.set(xlabel="$d_k$", ylabel="largest of 10 weights, mean", ylim=(0, 1.02))
    largest.legend(frameon=False)
    return figure


def largest_weight(random, width, scaled):
    """The mean over 1,000 queries of the largest weight among ten keys."""
    scores = np.einsum(
        "qd,qkd->qk", *(random.normal(size=(1000, *s)) for s in ((width,), (10, width)))
    )
    scores = np.exp(scores / np.sqrt(width) if scaled else scores)
    return (scores / scores.sum(-1, keepdims=True)).max(-1).mean()


def heads():
    tokens = ["the", "cat", "sat", "on", "a", "mat"]
    distance = np.arange(6)[:, None] - np.arange(6)
    scores = np.stack(
        [-((distance - 1) ** 2), -((distance + 1) ** 2), -(distance**2), 0 * distance]
    )
    weights = np.exp(2.0 * scores)
    return plots.attention_heads(weights / weights.sum(-1, keepdims=True), tokens, tokens)


def masks():
    figure, row = panels(8.4, 3.2, 3)
    padding = padding_mask(np.array([[7, 5, 9, 0]]))[:, None, :]
    both = combine_masks(causal_mask(4), padding)
    names = ["1", "2", "3", "pad"]
    grids = [ops.convert_to_numpy(grid) for grid in (padding, causal_mask(4), both)]
    grids[0] = np.repeat(grids[0], 4, axis=1)  # the same for each query
    titles = ("padding", "causal", "both")
    for panel, grid, title in zip(row, grids, titles, strict=True):
        panel.imshow(grid[0], cmap=ListedColormap(["#ffffff", BLUE]), vmin=0, vmax=1)
        panel.set_xticks(range(4), names)
        panel.set_yticks(range(4), names)
        panel.set(title=title, xlabel="key", ylabel="query")
        for (query, key), seen in np.ndenumerate(grid[0]):
            color = "white" if seen else GREY
            panel.text(key, query, "1" if seen else "0", ha="center", va="center", color=color)
    return figure


def positions():
    layer = PositionalEncoding()
    layer.build((None, None, 64))
    return plots.positional_encoding(layer.encoding(64))


def feed_forward():
    figure, (absolute, hat) = panels(8.4, 3.0, 2)
    x = np.linspace(-3, 3, 241)
    draw_sum(absolute, x, {"max(0, x)": x, "max(0, −x)": -x}, (1, 1))
    absolute.set_title("two units: |x|")
    inner = {"max(0, x + 1)": x + 1, "−2 max(0, x)": x, "max(0, x − 1)": x - 1}
    draw_sum(hat, x, inner, (1, -2, 1))
    hat.set_title("three units: a hat")
    return figure


def draw_sum(panel, x, inner, outer):
    """Draws each hidden unit with its weight, and their sum."""
    total, styles = 0.0, zip((BLUE, ORANGE, GREEN), ("--", ":", "-."), strict=True)
    for (label, line), weight, (color, style) in zip(inner.items(), outer, styles, strict=False):
        unit = weight * np.maximum(0, line)
        total = total + unit
        panel.plot(x, unit, style, color=color, lw=1.8, label=label)
    panel.plot(x, total, color="#bbbbbb", lw=6, zorder=1, label="sum")
    panel.set(xlabel="x", ylim=(-3.2, 3.4))
    panel.legend(frameon=False, fontsize=9)


def training():
    steps = (2000, 4000, 8000)
    return plots.schedule({f"warmup = {n:,}": WarmupSchedule(512, n) for n in steps}, 20000)


PICTURES = {
    "01-recurrent-bottleneck": diagrams.recurrent_bottleneck,
    "02-attention": attention,
    "03-query-key-value": diagrams.query_key_value,
    "04-scaling": scaling,
    "05-heads": heads,
    "06-masks": masks,
    "07-positions": positions,
    "08-residual-and-norm": diagrams.residual_and_norm,
    "09-feed-forward": feed_forward,
    "10-decoder": diagrams.decoder,
    "11-training": training,
    "12-search": diagrams.search,
}


def main(directory):
    """Writes every picture into `directory`, and says which."""
    for name, draw in PICTURES.items():
        path = directory / f"{name}.png"
        draw().savefig(path, dpi=110, metadata={"Software": None})
        print(f"{path.name}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
