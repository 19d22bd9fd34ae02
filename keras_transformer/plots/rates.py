"""Learning rates over the updates, of one schedule or of several to compare."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_transformer import arguments
from keras_transformer.plots.drawing import add_legend, curve_style, figure_class, labelled, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Schedule: TypeAlias = Callable[[int], Any]
"""From a step to its learning rate, as `WarmupSchedule`."""


def schedule(
    schedules: Schedule | Mapping[str, Schedule], num_steps: int | None = None
) -> "Figure":
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
    new_figure = figure_class()
    schedules = labelled(schedules)
    if not schedules or not all(callable(value) for value in schedules.values()):
        raise ValueError(
            "`schedules` must be a callable from step to rate, or a dict of label to callable. "
            f"Received: schedules={schedules!r}"
        )
    steps = _steps(schedules, num_steps)
    figure = new_figure(figsize=(7.0, 3.8), layout="constrained")
    panel, curves = figure.subplots(), []
    for number, (label, function) in enumerate(schedules.items()):
        rates = [float(function(int(step))) for step in steps]
        (line,) = panel.plot(steps, rates, label=label, **curve_style(number))
        curves.append((label, line))
    if any(schedules):
        add_legend(panel, curves)
    panel.set_xlabel("update")
    panel.set_ylabel("learning rate")
    panel.xaxis.set_major_formatter("{x:,.0f}")
    tidy(panel)
    return figure


def _steps(schedules: Mapping[str, Schedule], num_steps: int | None) -> np.ndarray:
    """Gives at most 501 steps from 0 to `num_steps`, or to what shows every warm-up."""
    longest = max(getattr(value, "warmup_steps", 4000) for value in schedules.values())
    num_steps = 5 * longest if num_steps is None else num_steps
    num_steps = arguments.positive_integer("num_steps", num_steps)
    return np.unique(np.linspace(0, num_steps, 501).astype("int64"))
