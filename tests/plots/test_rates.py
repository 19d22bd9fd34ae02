"""Schedules are drawn over the updates, each with its label."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from keras_transformer import plots
from tests.figure_files import saved_png, saved_svg, texts_of


def test_schedules_are_drawn_over_the_updates():
    def warmup(step):
        return min((step + 1) / 10, 1.0)

    warmup.warmup_steps = 10
    figure = plots.schedule({"warm-up": warmup, "constant": lambda step: 0.5})
    first, second = figure.axes[0].lines
    assert first.get_xdata().tolist() == list(range(20_001))[::40]
    assert first.get_ydata()[0] == 0.1
    assert set(second.get_ydata()) == {0.5}
    assert texts_of(figure.axes[0].get_legend().get_texts()) == ["warm-up", "constant"]
    saved_png(figure)

    (line,) = plots.schedule(warmup).axes[0].lines
    assert line.get_xdata().tolist() == list(range(51))
    np.testing.assert_allclose(line.get_ydata()[:10], np.arange(1, 11) / 10)


@pytest.mark.parametrize("schedules", [{}, 0.1, {"a": 0.1}])
def test_what_is_no_schedule_raises(schedules):
    with pytest.raises(ValueError, match="callable from step to rate.*Received: schedules="):
        plots.schedule(schedules)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint16])
def test_the_number_of_steps_is_an_integer_of_any_kind(kind):
    (line,) = plots.schedule(lambda step: 0.1, kind(100)).axes[0].lines
    assert line.get_xdata().tolist() == list(range(101))


@pytest.mark.parametrize("num_steps", [0, -1, 2.5, True, np.int64(0), np.float32(2.0)])
def test_any_other_number_of_steps_raises(num_steps):
    with pytest.raises(
        ValueError, match="`num_steps` must be a positive integer. Received: num_steps="
    ):
        plots.schedule(lambda step: 0.1, num_steps)


def test_nine_schedules_differ_in_colour_or_dashes(tmp_path):
    schedules = {f"schedule {n}": lambda step, n=n: n * step for n in range(9)}
    figure = plots.schedule(schedules, num_steps=10)
    lines = figure.axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 9
    assert set(schedules) < set(saved_svg(figure, tmp_path / "schedules.svg")[1])


def test_a_label_that_begins_with_an_underscore_is_in_the_legend():
    figure = plots.schedule({"_": lambda step: 0.1, "": lambda step: 0.2, "a": lambda step: 0.3}, 5)
    legend = figure.axes[0].get_legend()
    assert texts_of(legend.get_texts()) == ["_", "a"]  # a curve without a label is left out
    colors = [line.get_color() for line in legend.legend_handles]
    assert colors == [figure.axes[0].lines[n].get_color() for n in (0, 2)]
