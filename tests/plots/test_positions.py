"""Positional encodings: the table as it is, and dot products worked out by hand."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from keras_transformer import plots
from tests.figure_files import saved_png, saved_svg, texts_of


def test_positional_encoding_is_a_row_a_position():
    encoding = np.sin(np.arange(35.0)).reshape(7, 5)
    figure = plots.positional_encoding(encoding)
    (image,) = figure.axes[0].images
    np.testing.assert_allclose(image.get_array(), encoding, atol=1e-7)
    assert image.get_clim()[0] == -image.get_clim()[1]  # 0 is the neutral colour
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("dimension", "position")
    saved_png(figure)


def test_positional_encoding_of_another_rank_raises():
    with pytest.raises(ValueError, match=r"\(position, d_model\).*Received: shape \(2, 3, 5\)"):
        plots.positional_encoding(np.zeros((2, 3, 5)))


def test_dot_products_by_hand():
    # e = (3, 0), (0, 1), (2, 0): products at distance 0 are 9, 1, 4, at 1 are 0, 0, at 2 is 6.
    figure = plots.dot_product_by_distance([[3.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    panel = figure.axes[0]
    curve = panel.lines[0]
    assert curve.get_xdata().tolist() == [0, 1, 2]
    np.testing.assert_allclose(curve.get_ydata(), [14 / 3, 0, 6])
    (band,) = panel.collections
    corners = {tuple(point) for point in band.get_paths()[0].vertices.tolist()}
    assert corners >= {(0, 1), (0, 9), (1, 0), (2, 6)}
    assert panel.get_legend() is None
    saved_png(figure)


def test_dot_products_of_sines_and_cosines_depend_on_the_distance_alone(tmp_path):
    # A pair sin(p w), cos(p w) and another at p + k have the product cos(k w).
    position, rates = np.arange(11)[:, None], np.array([1.0, 0.5, 0.1])
    waves = np.concatenate([np.sin(position * rates), np.cos(position * rates)], axis=1)
    figure = plots.dot_product_by_distance({"waves": waves, "one": np.eye(7)})
    panel = figure.axes[0]
    expected = np.cos(np.arange(11)[:, None] * rates).sum(axis=1)
    np.testing.assert_allclose(panel.lines[0].get_ydata(), expected, atol=1e-6)
    assert panel.lines[1].get_ydata().tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert len(panel.collections) == 0  # no band for either
    assert texts_of(panel.get_legend().get_texts()) == ["waves", "one"]
    _, texts = saved_svg(figure, tmp_path / "products.svg")
    assert {"waves", "distance between the positions"} < set(texts)


def test_an_encoding_whose_label_begins_with_an_underscore_is_in_the_legend():
    figure = plots.dot_product_by_distance({"_a": np.eye(2), "b": np.eye(3)})
    assert texts_of(figure.axes[0].get_legend().get_texts()) == ["_a", "b"]


@pytest.mark.parametrize("encodings", [np.zeros((2, 3, 5)), {"a": np.zeros(3)}])
def test_dot_products_of_another_rank_raise(encodings):
    with pytest.raises(ValueError, match=r"`encodings` must be \(position, d_model\).*shape \("):
        plots.dot_product_by_distance(encodings)


def test_dot_products_of_nothing_raise():
    with pytest.raises(ValueError, match="dict of label to array. Received: encodings={}"):
        plots.dot_product_by_distance({})
