"""Diagrams of the guide, boxes and arrows measured in inches; `pictures.py` draws them."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from keras_transformer.plots.drawing import COLORS

BLUE, ORANGE, GREEN, PURPLE = COLORS[:4]
GREY, PALE = "#555555", "#eef3f8"


def canvas(width, height):
    """A figure with one panel without axes, measured in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    panel = figure.subplots()
    panel.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    panel.set_axis_off()
    return figure, panel


def box(panel, x, y, text, width=1.1, height=0.5, color=BLUE, fill=PALE):
    """A rounded box around the point (x, y)."""
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0,rounding_size=0.08"
    panel.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=style, ec=color, fc=fill, lw=1.5)
    )
    panel.text(x, y, text, ha="center", va="center", fontsize=10)


def arrow(panel, start, end, color=GREY, bend=0.0, **style):
    """An arrow between two points, bent on request."""
    settings = {"arrowstyle": "-|>", "color": color, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
    settings["connectionstyle"] = f"arc3,rad={bend}"
    panel.annotate("", end, start, arrowprops={**settings, **style})


def recurrent_bottleneck():
    figure = Figure(figsize=(8.4, 4.6), layout="constrained")
    chain, fading = figure.subplots(2, 1, height_ratios=(1, 1.25))
    chain.set(xlim=(0, 8.4), ylim=(0, 1.7), aspect="equal")
    chain.set_axis_off()
    for number in range(4):
        box(chain, 0.6 + number, 1.1, f"$s_{number + 1}$", 0.6)
        chain.text(0.6 + number, 0.2, f"$x_{number + 1}$", ha="center", va="center")
        arrow(chain, (0.6 + number, 0.4), (0.6 + number, 0.85))
        arrow(chain, (0.9 + number, 1.1), (1.3 + number, 1.1))
        box(chain, 5.0 + number, 1.1, "decoder" if number == 0 else "", 0.7, color=GREEN)
        chain.text(5.0 + number, 0.2, f"$y_{number + 1}$", ha="center", va="center")
        arrow(chain, (5.0 + number, 0.85), (5.0 + number, 0.4))
    for number in range(3):
        arrow(chain, (5.35 + number, 1.1), (5.65 + number, 1.1))
    chain.plot([4.3], [1.1], "o", ms=9, color=ORANGE)
    arrow(chain, (4.38, 1.1), (4.65, 1.1), ORANGE)
    chain.text(4.3, 1.5, "all that is known of the source", ha="center", color=ORANGE)
    steps = np.arange(1, 31)
    for factor, color, marker in ((0.9, BLUE, "o"), (0.5, ORANGE, "s")):
        fading.plot(steps, factor ** (steps - 1), color=color, marker=marker, ms=4)
        fading.text(6.2, factor**5.2 + 0.03, f"factor {factor}", color=color)
    fading.set(xlabel="words read", ylabel="left of the first word", ylim=(0, 1.05))
    fading.spines[["top", "right"]].set_visible(False)
    return figure


def query_key_value():
    figure, panel = canvas(8.4, 3.7)
    columns = ((1.0, "word"), (2.5, "query"), (3.8, "key"), (5.1, "value"), (7.5, "output"))
    for x, text in columns:
        panel.text(x, 3.45, text, ha="center", color=GREY)
    rows = (
        (2.7, "$x_1$ = (1, 0)", "1", "0", "(4, 0)", "(1, 6)"),
        (0.9, "$x_2$ = (0, 1)", "0", "ln 3", "(0, 8)", "(2, 4)"),
    )
    colors = (GREY, BLUE, ORANGE, GREEN, PURPLE)
    for y, *texts in rows:
        for (x, _), text, color in zip(columns, texts, colors, strict=True):
            box(panel, x, y, text, 1.3 if x == 1.0 else 0.9, color=color)
        arrow(panel, (1.65, y), (2.05, y))
    ways = (((2.7, 2.7), "1/4"), ((0.9, 2.7), "3/4"), ((2.7, 0.9), "1/2"), ((0.9, 0.9), "1/2"))
    for (start, end), text in ways:
        share = {"1/4": 1.2, "1/2": 2.4, "3/4": 3.6}[text]
        arrow(panel, (5.55, start), (7.05, end), GREEN, lw=share)
        x = 6.0 if start != end else 6.3
        y = start + (end - start) * (x - 5.55) / 1.5
        panel.text(
            x, y, text, ha="center", va="center", bbox={"fc": "white", "ec": "none", "pad": 1}
        )
    panel.text(4.2, 0.2, "output = weights times values", ha="center", color=GREEN)
    return figure


def residual_and_norm():
    figure, panel = canvas(8.4, 2.9)
    orders = (("post-norm (the paper)", 2.2, False), ("pre-norm", 0.75, True))
    for title, y, norm_first in orders:
        panel.text(0.1, y + 0.55, title, color=GREY)
        places = {"LayerNorm": 2.0 if norm_first else 6.3, "sub-layer": 3.9}
        for text, x in places.items():
            box(panel, x, y, text, 1.3, color=ORANGE if text == "LayerNorm" else BLUE)
        plus = 5.2
        panel.text(0.3, y, "x", ha="center", va="center", fontsize=12)
        panel.text(8.05, y, "output", ha="center", va="center")
        box(panel, plus, y, "+", 0.4, 0.4, color=GREEN)
        stops = sorted([(0.45, 0.45), *((x - 0.65, x + 0.65) for x in places.values())])
        stops = sorted([*stops, (plus - 0.2, plus + 0.2), (7.7, 7.7)])
        for (_, end), (start, _) in zip(stops, stops[1:], strict=False):
            arrow(panel, (end, y), (start, y))
        panel.plot([0.8, 0.8, plus], [y, y - 0.5, y - 0.5], color=GREEN, lw=2)
        arrow(panel, (plus, y - 0.52), (plus, y - 0.2), GREEN, lw=2)
        panel.text(3.0, y - 0.46, "x as it is", ha="center", va="bottom", color=GREEN)
    return figure


def decoder():
    figure, panel = canvas(8.4, 5.4)
    encoder = ((1.0, "embedding + positions"), (2.1, "self-attention"), (3.2, "feed-forward"))
    stack(panel, 1.9, encoder, "source words", "encoder, N layers", 3.7)
    rows = ((1.0, "embedding + positions"), (2.1, "causal self-attention"))
    rows += ((3.0, "cross-attention"), (3.9, "feed-forward"), (4.8, "next word (softmax)"))
    stack(panel, 6.0, rows, "words so far", "decoder, N layers", 4.35)
    panel.plot([1.9, 1.9, 3.9], [3.45, 4.2, 4.2], color=ORANGE, lw=2)
    panel.plot([3.9, 3.9], [4.2, 3.0], color=ORANGE, lw=2)
    arrow(panel, (3.88, 3.0), (4.9, 3.0), ORANGE, lw=2)
    panel.text(2.9, 4.28, "memory: keys and values", ha="center", color=ORANGE)
    return figure


def stack(panel, x, rows, source, title, top):
    """A column of boxes with arrows between them; those inside the frame are repeated."""
    panel.text(x, 0.2, source, ha="center", va="center")
    arrow(panel, (x, 0.35), (x, 0.75))
    for (low, _), (high, _) in zip(rows, rows[1:], strict=False):
        arrow(panel, (x, low + 0.25), (x, high - 0.25))
    for y, text in rows:
        color = {"feed-forward": GREEN, "cross-attention": ORANGE}.get(text, BLUE)
        box(panel, x, y, text, 2.2, color=color, fill="white" if y == 1.0 or y > 4.5 else PALE)
    left, right = x - 1.35, x + 1.35
    panel.plot([left, left, right, right, left], [1.6, top, top, 1.6, 1.6], "--", color=GREY, lw=1)
    panel.text(right + 0.08, 1.7, title, rotation=90, color=GREY, fontsize=9)


def search():
    figure, panel = canvas(8.4, 4.2)
    places = {"start": (0.8, 2.1), "A": (3.0, 3.2), "B": (3.0, 1.0)}
    ends = {"A": (("A", 0.25, 3.9), ("B", 0.25, 3.2), ("end", 0.5, 2.5))}
    ends["B"] = (("A", 0.05, 1.7), ("B", 0.05, 1.0), ("end", 0.9, 0.3))
    for word, share in (("A", 0.6), ("B", 0.4)):
        x, y = places[word]
        step(panel, (1.35, 2.1), (x - 0.45, y), share, ORANGE if word == "A" else BLUE, True)
        box(panel, x, y, f"{word}   {share}", 0.9, color=ORANGE if word == "A" else BLUE)
        for follower, next_share, height in ends[word]:
            best = follower == "end"
            color = (ORANGE if word == "A" else BLUE) if best else GREY
            step(panel, (x + 0.45, y), (5.35, height), next_share, color, best)
            text = f"{word} {follower}   {share * next_share:.2f}"
            box(panel, 6.05, height, text, 1.4, 0.42, color, PALE if best else "white")
    box(panel, *places["start"], "start")
    panel.text(6.9, 2.5, "greedy", va="center", color=ORANGE)
    panel.text(6.9, 0.3, "beam of 2", va="center", color=BLUE)
    return figure


def step(panel, start, end, share, color, strong):
    """An arrow to a next word, with its probability in the middle."""
    arrow(panel, start, end, color, lw=2.2 if strong else 1.0)
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    plain = {"fc": "white", "ec": "none", "pad": 1}
    panel.text(x, y, str(share), ha="center", va="center", fontsize=9, bbox=plain)
