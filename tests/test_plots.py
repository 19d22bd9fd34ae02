"""Figures show what they are given: tokens on the axes, curves by name, no empty boxes."""

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib import font_manager

from keras_transformer import glyphs, plots

PNG = b"\x89PNG\r\n\x1a\n"


def weights_of(heads, queries, keys):
    """Gives rows of weights that sum to 1, all different."""
    values = np.arange(1.0, heads * queries * keys + 1).reshape(heads, queries, keys)
    return values / values.sum(-1, keepdims=True)


def png_of(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png")  # warnings are errors: no glyph may be missing
    return file.getvalue()


def panels_of(figure):
    return [axes for axes in figure.axes if axes.get_title().startswith("head")]


def texts_of(labels):
    return [label.get_text() for label in labels]


@pytest.fixture
def hangul_font(tmp_path):
    """Installs a font that can draw one letter, U+AC00, for the time of a test."""
    builder = pytest.importorskip("fontTools.fontBuilder").FontBuilder(1000)
    pen = pytest.importorskip("fontTools.pens.ttGlyphPen").TTGlyphPen(None)
    pen.moveTo((0, 0))
    pen.lineTo((0, 700))
    pen.lineTo((700, 0))
    pen.closePath()
    triangle = pen.glyph()
    builder.setupGlyphOrder([".notdef", "ga"])
    builder.setupCharacterMap({0xAC00: "ga"})
    builder.setupGlyf({".notdef": triangle, "ga": triangle})
    builder.setupHorizontalMetrics({".notdef": (800, 0), "ga": (800, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Test Hangul", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWeightClass=400)
    builder.setupPost()
    builder.save(tmp_path / "hangul.ttf")
    before = list(font_manager.fontManager.ttflist)
    font_manager.fontManager.addfont(tmp_path / "hangul.ttf")
    yield "Test Hangul"
    font_manager.fontManager.ttflist[:] = before


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
    assert png_of(figure).startswith(PNG)


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
    assert png_of(figure).startswith(PNG)


def test_tokens_are_no_formulas_and_spaces_are_seen():
    tokens = ["$x$", "$", " the", "\\frac", b"caf\xc3\xa9", "\u2581day"]
    figure = plots.attention_heads(weights_of(1, 6, 6), tokens, tokens)
    expected = ["$x$", "$", "␣the", "\\frac", "café", "\u2581day"]
    assert texts_of(panels_of(figure)[0].get_xticklabels()) == expected
    assert png_of(figure).startswith(PNG)


def test_tokens_no_font_can_draw_are_code_points(monkeypatch):
    def latin_only(path):
        return {chr(code) for code in range(0x250)}

    monkeypatch.setattr(glyphs, "_covered", latin_only)
    tokens = ["가", "금요일날", "a가b", "👍", "\n"]
    figure = plots.attention_heads(weights_of(2, 5, 5), tokens, tokens, title="한")
    labels = ["U+AC00", "U+AE08 U+C694…", "a U+AC00 b", "U+1F44D", "U+000A"]
    assert texts_of(panels_of(figure)[0].get_xticklabels()) == labels
    assert figure.get_suptitle() == "U+D55C"
    assert png_of(figure).startswith(PNG)


def test_tokens_of_many_scripts_draw_without_a_missing_glyph():
    tokens = ["가나", "👍🏽", "日本", "السبت", "\u200d", "\x00", "\ud800", "", "∑", "𝛼"]
    figure = plots.attention_heads(weights_of(1, 10, 10), tokens, tokens, title=" ".join(tokens))
    assert png_of(figure).startswith(PNG)


def test_installed_font_is_found_for_what_the_first_font_lacks(hangul_font, monkeypatch):
    only = [e for e in font_manager.fontManager.ttflist if e.name in (hangul_font, "DejaVu Sans")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", only)
    assert glyphs.drawable(["a가", "나"]) == (["a가", "U+B098"], ["DejaVu Sans", hangul_font])
    assert glyphs.drawable(["a"]) == (["a"], ["DejaVu Sans"])
    assert png_of(plots.attention_heads(weights_of(1, 1, 1), ["가"], ["a가"])).startswith(PNG)


def test_long_tokens_are_cut():
    assert glyphs.drawable(["a" * 18, "b" * 19])[0] == ["a" * 18, "b" * 17 + "…"]


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 2, 3), (0, 2, 3)])
def test_attention_of_another_rank_raises(shape):
    with pytest.raises(ValueError, match="heads, query, key.*Received: shape"):
        plots.attention_heads(np.zeros(shape), ["a", "b"], ["x", "y", "z"])


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


HISTORY = {
    "loss": [4.0, 3.0, 2.0],
    "val_loss": [3.5, 2.5, 2.6],
    "masked_accuracy": [0.1, 0.2, 0.3],
    "val_perplexity": [100.0, 30.0, 5.0],
    "learning_rate": [0.1, 0.2, 0.15],
    "seconds": [60.0, 61.0, 62.0],
}
PANELS = ["loss", "perplexity", "masked accuracy", "learning rate"]


def history_file(folder, columns, start):
    values = zip(range(start, start + 3), *columns.values(), strict=True)
    rows = [",".join(map(str, row)) for row in [["epoch", *columns], *values]]
    path = folder / "history.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["dict", "fit", "rows", "csv from 0", "csv from 1"])
def test_learning_curve_reads_every_form_of_history(form, tmp_path):
    history = {
        "dict": lambda: HISTORY,
        "fit": lambda: SimpleNamespace(history=HISTORY),
        "rows": lambda: [{k: v[i] for k, v in HISTORY.items()} for i in range(3)],
        "csv from 0": lambda: history_file(tmp_path, HISTORY, 0),
        "csv from 1": lambda: str(history_file(tmp_path, HISTORY, 1)),
    }[form]()
    figure = plots.learning_curve(history)
    assert [axes.get_ylabel() for axes in figure.axes] == PANELS
    training, validation = figure.axes[0].lines
    assert training.get_xdata().tolist() == [1, 2, 3]
    assert training.get_ydata().tolist() == [4, 3, 2]
    assert validation.get_ydata().tolist() == [3.5, 2.5, 2.6]
    assert validation.get_label() == "validation (best 2.5)"
    assert figure.axes[2].lines[0].get_label() == "training (best 0.3)"
    assert figure.axes[1].get_yscale() == "log"  # 100 is more than ten times 5
    assert png_of(figure).startswith(PNG)


def test_learning_curve_of_one_epoch_has_one_tick():
    figure = plots.learning_curve({"loss": [2.0], "val_loss": [float("nan")]})
    figure.canvas.draw()
    assert len(figure.axes[0].lines) == 1
    assert 1 in figure.axes[0].get_xticks()
    assert png_of(figure).startswith(PNG)


def test_learning_curve_leaves_a_gap_where_nothing_was_measured():
    rows = [
        {"loss": 3.0, "val_loss": ""},
        {"loss": 2.0, "val_loss": "NA"},
        {"loss": 1.0, "val_loss": 1.5},
    ]
    validation = plots.learning_curve(rows).axes[0].lines[1].get_ydata()
    np.testing.assert_array_equal(validation, [np.nan, np.nan, 1.5])


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ({"val_loss": [1.0]}, "column loss.*Received: {'val_loss': 1}"),
        ([], "column loss.*Received: {}"),
        ({"loss": []}, "column loss.*Received: {}"),
        ({"loss": [1.0, 2.0], "val_loss": [1.0]}, "equal length.*{'loss': 2, 'val_loss': 1}"),
        ({"loss": ["low"]}, "hold numbers. Received: loss='low'"),
    ],
)
def test_history_that_cannot_be_drawn_raises(history, message):
    with pytest.raises(ValueError, match=message):
        plots.learning_curve(history)


def test_positional_encoding_is_a_row_a_position():
    encoding = np.sin(np.arange(35.0)).reshape(7, 5)
    figure = plots.positional_encoding(encoding)
    (image,) = figure.axes[0].images
    np.testing.assert_allclose(image.get_array(), encoding, atol=1e-7)
    assert image.get_clim()[0] == -image.get_clim()[1]  # 0 is the neutral colour
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("dimension", "position")
    assert png_of(figure).startswith(PNG)


def test_positional_encoding_of_another_rank_raises():
    with pytest.raises(ValueError, match=r"\(position, d_model\).*Received: shape \(2, 3, 5\)"):
        plots.positional_encoding(np.zeros((2, 3, 5)))


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
    assert png_of(figure).startswith(PNG)

    (line,) = plots.schedule(warmup).axes[0].lines
    assert line.get_xdata().tolist() == list(range(51))
    np.testing.assert_allclose(line.get_ydata()[:10], np.arange(1, 11) / 10)


@pytest.mark.parametrize("schedules", [{}, 0.1, {"a": 0.1}])
def test_what_is_no_schedule_raises(schedules):
    with pytest.raises(ValueError, match="callable from step to rate.*Received: schedules="):
        plots.schedule(schedules)


@pytest.mark.parametrize("num_steps", [0, -1, 2.5, True])
def test_number_of_steps_is_a_positive_integer(num_steps):
    with pytest.raises(ValueError, match=f"Received: num_steps={num_steps}"):
        plots.schedule(lambda step: 0.1, num_steps)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "keras-transformer-components\[plots\]"'):
        plots.positional_encoding([[0.0]])


def test_no_global_figure_is_left_behind():
    from matplotlib import pyplot

    plots.positional_encoding([[0.0, 1.0]])
    plots.learning_curve(HISTORY)
    assert pyplot.get_fignums() == []
