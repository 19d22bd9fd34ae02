"""Figures to look at: attention, alignments, learning curves, positional encodings, schedules.

Each function but `head_statistics` returns a `matplotlib.figure.Figure` and touches no global
setting. Save it with `figure.savefig("name.png")` or `"name.svg"`. In a notebook, leave it as the
last line of a cell to see it. Tokens, names and titles may be in any script that an installed font
has.
"""

from keras_transformer.plots.attention import alignment, attention_heads
from keras_transformer.plots.heads import HeadStatistics, head_focus, head_statistics
from keras_transformer.plots.learning import learning_curve, learning_curves
from keras_transformer.plots.positions import dot_product_by_distance, positional_encoding
from keras_transformer.plots.rates import schedule

__all__ = [
    "HeadStatistics",
    "alignment",
    "attention_heads",
    "dot_product_by_distance",
    "head_focus",
    "head_statistics",
    "learning_curve",
    "learning_curves",
    "positional_encoding",
    "schedule",
]
