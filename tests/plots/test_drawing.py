"""Figures need matplotlib when they are drawn, and leave nothing behind in it."""

import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from keras_transformer import plots
from tests.figure_files import weights_of

STATISTICS = plots.HeadStatistics(*np.ones((3, 2)))
CALLS = {
    "alignment": lambda: plots.alignment(weights_of(1, 2), ["a"], ["x", "y"], "title"),
    "attention_heads": lambda: plots.attention_heads(weights_of(1, 1, 2), ["a"], ["x", "y"]),
    "dot_product_by_distance": lambda: plots.dot_product_by_distance({"ones": np.ones((3, 2))}),
    "head_focus": lambda: plots.head_focus(STATISTICS),
    "learning_curve": lambda: plots.learning_curve({"loss": [2.0, 1.0]}),
    "learning_curves": lambda: plots.learning_curves({"run": {"loss": [2.0, 1.0]}}),
    "positional_encoding": lambda: plots.positional_encoding([[0.0, 1.0]]),
    "schedule": lambda: plots.schedule(lambda step: 0.1, num_steps=2),
}


def test_every_figure_is_tried():
    assert {*CALLS, "HeadStatistics", "head_statistics"} == set(plots.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_without_matplotlib_the_error_names_the_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "keras-transformer-components\[plots\]"'):
        CALLS[name]()


@pytest.mark.parametrize("name", CALLS)
def test_no_global_figure_or_setting_is_left_behind(name):
    import matplotlib
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    before = dict(matplotlib.rcParams)
    assert isinstance(CALLS[name](), Figure)
    assert pyplot.get_fignums() == []
    assert dict(matplotlib.rcParams) == before
