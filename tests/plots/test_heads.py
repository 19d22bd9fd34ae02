"""Entropy, distance and offset of each head, worked out by hand, and their picture."""

import math

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from keras_transformer import plots
from tests.figure_files import saved_png, saved_svg, weights_of


def test_statistics_by_hand():
    # Head 1, of 2 queries and 3 keys: query 0 sees key 2 alone: no entropy, distance and offset 2.
    # Query 1 sees keys 0 and 1 with 1/4 and 3/4: 1/4 * 2 + 3/4 * log2(4/3) bits, distance 1/4.
    # Head 2 is even: log2(3) bits, distances `(0 + 1 + 2) / 3` and `(1 + 0 + 1) / 3`, offsets 1, 0.
    third = [1 / 3, 1 / 3, 1 / 3]
    weights = [[[0.0, 0.0, 1.0], [0.25, 0.75, 0.0]], [third, third]]
    entropy, distance, offset = plots.head_statistics(weights)
    bits = 0.25 * 2 + 0.75 * math.log2(4 / 3)
    np.testing.assert_allclose(entropy, [bits / 2, math.log2(3)], rtol=1e-6)
    np.testing.assert_allclose(distance, [(2 + 0.25) / 2, (1 + 2 / 3) / 2], rtol=1e-6)
    np.testing.assert_allclose(offset, [(2 - 0.25) / 2, (1 + 0) / 2], rtol=1e-6)


def test_statistics_of_a_batch_are_the_mean_over_all_queries():
    weights = weights_of(7, 3, 5, 2)
    alone = [plots.head_statistics(sentence) for sentence in weights]
    for together, *each in zip(plots.head_statistics(weights), *alone, strict=True):
        assert together.shape == (3,)
        np.testing.assert_allclose(together, np.mean(each, axis=0))


def test_padding_changes_no_statistic():
    short = weights_of(3, 5, 5)
    padded = np.zeros((2, 3, 7, 7))
    padded[0, :, :5, :5] = short
    padded[0, :, 5:, 0] = 1.0  # a padded query looks anywhere
    padded[1] = 1 / 7
    mask = np.array([[True] * 5 + [False] * 2, [False] * 7])
    for ours, expected in zip(
        plots.head_statistics(padded, mask), plots.head_statistics(short), strict=True
    ):
        np.testing.assert_allclose(ours, expected)
    assert plots.head_statistics(padded).distance[0] != plots.head_statistics(short).distance[0]


def test_queries_that_attend_to_nothing_do_not_count():
    weights = np.zeros((1, 3, 3))
    weights[0, 2, 1] = 1.0
    assert [float(value[0]) for value in plots.head_statistics(weights)] == [0.0, 1.0, -1.0]


def test_weights_of_16_bits_are_taken():
    weights = weights_of(3, 5, 7).astype("float16")
    expected = plots.head_statistics(weights_of(3, 5, 7))
    np.testing.assert_allclose(plots.head_statistics(weights).entropy, expected.entropy, rtol=0.01)


@pytest.mark.parametrize("shape", [(2, 3), (1, 1, 2, 2, 3), (0, 2, 3)])
def test_weights_of_another_rank_raise(shape):
    with pytest.raises(ValueError, match="`weights` must be .heads, query, key.*Received: shape"):
        plots.head_statistics(np.zeros(shape))


@pytest.mark.parametrize(
    ("row", "total"), [([2.0, -1.0], "1"), ([0.5, 0.6], "1.1"), ([np.nan, 1.0], "nan")]
)
def test_what_is_no_softmax_raises(row, total):
    with pytest.raises(ValueError, match=f"softmax.*Received: a row from .* that sums to {total}$"):
        plots.head_statistics([[[0.5, 0.5], row]])


@pytest.mark.parametrize("mask", [np.ones(5), np.ones((1, 5), bool), np.ones(3, bool)])
def test_mask_of_another_shape_or_type_raises(mask):
    with pytest.raises(ValueError, match=rf"`query_mask` must be boolean.*Received: {mask.dtype}"):
        plots.head_statistics(weights_of(2, 3, 5, 7), mask)


def test_an_integer_mask_counts_as_a_boolean_one():
    weights, mask = weights_of(2, 3, 5, 7), np.arange(5) < [[5], [2]]
    found, wanted = (plots.head_statistics(weights, m) for m in (mask.astype("int32"), mask))
    np.testing.assert_array_equal(found, wanted)


def test_head_without_a_query_raises():
    with pytest.raises(ValueError, match=r"a query that attends.*by head \[5, 0\]"):
        plots.head_statistics(np.stack([weights_of(5, 7), np.zeros((5, 7))]))


def test_head_focus_has_a_row_a_layer_and_writes_each_number(tmp_path):
    diagonal = np.eye(7)[None, :5].repeat(3, axis=0)
    layers = [plots.head_statistics(weights) for weights in (weights_of(3, 5, 7), diagonal)]
    figure = plots.head_focus(layers, title="two layers")
    names = ["entropy in bits", "distance in tokens", "offset in tokens, below 0: to the tokens"]
    for panel, name, values in zip(figure.axes, names, zip(*layers, strict=True), strict=True):
        assert panel.get_title(loc="left").startswith(name)
        (image,) = panel.images
        np.testing.assert_allclose(image.get_array(), np.stack(values))
        written = {text.get_position(): text.get_text() for text in panel.texts}
        assert written == {
            (head, layer): f"{values[layer][head]:.1f}" for layer in range(2) for head in range(3)
        }
        assert [text.get_text() for text in panel.get_yticklabels()] == ["1", "2"]
        assert [text.get_text() for text in panel.get_xticklabels()] == ["1", "2", "3"]
    assert figure.get_suptitle() == "two layers"
    assert figure.axes[2].images[0].get_clim()[0] == -figure.axes[2].images[0].get_clim()[1]
    saved_png(figure)
    assert "entropy in bits" in saved_svg(figure, tmp_path / "heads.svg")[1]


def test_head_focus_takes_one_layer():
    figure = plots.head_focus(plots.head_statistics(weights_of(3, 5, 7)))
    assert figure.axes[0].images[0].get_array().shape == (1, 3)


def test_head_focus_of_no_layer_or_of_different_ones_raises():
    few, many = (plots.head_statistics(weights_of(heads, 5, 7)) for heads in (2, 3))
    with pytest.raises(ValueError, match=r"the same number of heads.*heads \[2, 3\]"):
        plots.head_focus([few, many])
    with pytest.raises(ValueError, match=r"of one layer or more.*Received: numbers of heads \[\]"):
        plots.head_focus([])


@pytest.mark.parametrize("statistics", [None, np.ones((2, 3)), [weights_of(2, 5, 7)], "heads", 3])
def test_head_focus_of_what_are_no_statistics_raises(statistics):
    with pytest.raises(ValueError, match="`statistics` must be what `head_statistics` gives"):
        plots.head_focus(statistics)
