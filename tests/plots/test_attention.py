"""Weights are drawn as they are, with the right token at the right row and column."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from keras_transformer import plots
from tests.figure_files import saved_png, saved_svg, texts_of, weights_of


def panels_of(figure):
    return [axes for axes in figure.axes if axes.get_title().startswith("head")]


def test_attention_has_a_panel_a_head_and_tokens_on_the_outer_axes():
    figure = plots.attention_heads(weights_of(7, 2, 3), ["le", "chat"], ["the", "cat", "."])
    panels = panels_of(figure)
    assert [panel.get_title() for panel in panels] == [f"head {n}" for n in range(1, 8)]
    # 2 rows of 4, the last place empty: heads 1 and 5 are on the left, 4 to 7 are the lowest.
    for number, panel in enumerate(panels, 1):
        queries = ["le", "chat"] if number in (1, 5) else ["", ""]
        keys = ["the", "cat", "."] if number >= 4 else ["", "", ""]
        assert texts_of(panel.get_yticklabels()) == queries
        assert texts_of(panel.get_xticklabels()) == keys
    saved_png(figure)


def test_attention_panels_show_the_weights_on_one_colour_scale():
    weights = weights_of(3, 5, 2)
    figure = plots.attention_heads(weights, list("abcde"), list("xy"))
    images = [panel.images[0] for panel in panels_of(figure)]
    for image, expected in zip(images, weights, strict=True):
        np.testing.assert_allclose(image.get_array(), expected, rtol=1e-6)
        np.testing.assert_allclose(image.get_clim(), (0, weights.max()), rtol=1e-6)
    assert len(figure.axes) == 4  # one colour bar


def test_attention_title_is_written_as_it_is():
    figure = plots.attention_heads(weights_of(1, 1, 1), ["a"], ["b"], title="layer 2: $5 a_1")
    assert figure.get_suptitle() == "layer 2: $5 a_1"
    saved_png(figure)


def test_tokens_are_no_formulas_and_spaces_are_seen(tmp_path):
    tokens = ["$x$", "$", " the", "\\frac", b"caf\xc3\xa9", "\u2581day"]
    figure = plots.attention_heads(weights_of(1, 6, 6), tokens, tokens)
    expected = ["$x$", "$", "␣the", "\\frac", "café", "\u2581day"]
    assert texts_of(panels_of(figure)[0].get_xticklabels()) == expected
    saved_png(figure)
    _, texts = saved_svg(figure, tmp_path / "heads.svg")
    assert set(expected) < set(texts)


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 2, 3), (0, 2, 3)])
def test_attention_of_another_rank_raises(shape):
    with pytest.raises(ValueError, match="heads, query, key.*Received: shape"):
        plots.attention_heads(np.zeros(shape), ["a", "b"], ["x", "y", "z"])


NO_WEIGHTS = {
    "nan to nan": [np.nan, 0.5],
    "0 to inf": [np.inf, 0.0],
    "-0.5 to 1": [-0.5, 1.0],
    "0 to 3": [3.0, 0.0],
}


@pytest.mark.parametrize("shown", NO_WEIGHTS)
def test_numbers_that_are_no_weights_raise(shown):
    rows = [[0.5, 0.5], NO_WEIGHTS[shown]]
    message = rf"`weights` must be .* at most 1\. Received: a row from {shown} that sums"
    with pytest.raises(ValueError, match=message):
        plots.attention_heads([rows], ["a", "b"], ["x", "y"])
    with pytest.raises(ValueError, match=message):
        plots.alignment(rows, ["a", "b"], ["x", "y"])


def test_weights_cut_to_some_of_the_keys_are_drawn():
    saved_png(plots.alignment([[0.5, 0.2], [0.0, 1.005]], ["a", "b"], ["x", "y"]))


@pytest.mark.parametrize(
    ("queries", "keys", "name"),
    [
        (["a"], ["x", "y", "z"], "query_tokens"),
        (["a", "b"], ["x", "y"], "key_tokens"),
        ("ab", ["x", "y", "z"], "query_tokens"),
    ],
)
def test_tokens_that_do_not_fit_the_weights_raise(queries, keys, name):
    with pytest.raises(
        ValueError, match=rf"`{name}` must be a list .*\(1, 2, 3\).*Received: {name}="
    ):
        plots.attention_heads(weights_of(1, 2, 3), queries, keys)


def test_alignment_has_a_row_a_target_token_and_dots_at_the_strongest():
    weights = [[0.2, 0.7, 0.1], [0.0, 0.0, 0.0], [0.3, 0.3, 0.4], [0.9, 0.1, 0.0], [0.4, 0.5, 0.1]]
    figure = plots.alignment(weights, list("abcde"), list("xyz"), title="a pair")
    panel = figure.axes[0]
    np.testing.assert_allclose(panel.images[0].get_array(), weights, rtol=1e-6)
    assert texts_of(panel.get_yticklabels()) == list("abcde")
    assert texts_of(panel.get_xticklabels()) == list("xyz")
    assert (panel.get_ylabel(), panel.get_xlabel()) == ("target", "source")
    # The row of zeros, number 1, has no dot.
    dots = panel.collections[0].get_offsets().tolist()
    assert dots == [[1, 0], [2, 2], [0, 3], [1, 4]]
    assert figure.get_suptitle() == "a pair"


def test_alignment_is_the_same_picture_in_a_png_file_and_whole_in_an_svg_file(tmp_path):
    figure = plots.alignment(weights_of(2, 3), ["le", "chat"], ["the", "cat", "."])
    from_file = saved_png(figure, tmp_path / "alignment.png")
    np.testing.assert_array_equal(from_file, saved_png(figure))
    root, texts = saved_svg(figure, tmp_path / "alignment.svg")
    assert {"le", "chat", "the", "cat", ".", "source", "target"} < set(texts)
    width, height = (float(root.get(side).removesuffix("pt")) / 72 for side in ("width", "height"))
    assert from_file.shape[:2] == (round(height * 100), round(width * 100))  # 100 dots an inch


def test_alignment_of_zeros_is_drawn():
    figure = plots.alignment(np.zeros((2, 3)), ["a", "b"], ["x", "y", "z"])
    assert len(figure.axes[0].collections[0].get_offsets()) == 0
    saved_png(figure)


def test_alignment_of_another_rank_raises():
    with pytest.raises(ValueError, match=r"\(target, source\).*Received: shape \(5, 2, 3\)"):
        plots.alignment(np.zeros((5, 2, 3)), ["a", "b"], ["x", "y", "z"])


@pytest.mark.parametrize(
    ("targets", "sources", "name"),
    [(["a"], ["x", "y", "z"], "target_tokens"), (["a", "b"], "xyz", "source_tokens")],
)
def test_tokens_that_do_not_fit_the_alignment_raise(targets, sources, name):
    with pytest.raises(ValueError, match=rf"`{name}` .* shape \(2, 3\). Received: {name}="):
        plots.alignment(weights_of(2, 3), targets, sources)
