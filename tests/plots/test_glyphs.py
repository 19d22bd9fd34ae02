"""Texts of any script are drawn with fonts that have it, or said to be drawn otherwise."""

import io
import re
import warnings

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib import font_manager, image
from matplotlib.figure import Figure

from keras_transformer import plots
from keras_transformer.plots import glyphs
from tests.figure_files import saved_png, saved_svg, texts_of, weights_of

EAST_ASIA = {
    "Korean": "8월 10일 토요일",
    "Japanese": "八月十日、土曜日",
    "Chinese": "八月十日星期六",
}


def panel_of(tokens, title=None):
    """Gives the figure of as many weights as tokens, and its first panel."""
    figure = plots.attention_heads(weights_of(1, *[len(tokens)] * 2), tokens, tokens, title)
    return figure, figure.axes[0]


def pixels_of(text):
    """Gives the pixels of a text in the font of all figures."""
    figure, file = Figure(figsize=(4, 1)), io.BytesIO()
    figure.text(0.1, 0.4, text, fontsize=20, fontfamily=["DejaVu Sans"])
    figure.savefig(file, format="png")
    return image.imread(io.BytesIO(file.getvalue()))


def characters_of(families):
    """Gives the characters of the fonts that matplotlib takes for these families."""
    chosen = [font_manager.FontProperties(family=[family]) for family in families]
    fonts = [font_manager.get_font(font_manager.findfont(properties)) for properties in chosen]
    return {chr(code) for font in fonts for code in font.get_charmap()}


def only_fonts(monkeypatch, *names):
    """Leaves matplotlib the fonts of these names, and no other to find."""
    only = [entry for entry in font_manager.fontManager.ttflist if entry.name in names]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", only)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)


@pytest.fixture
def hangul_font(tmp_path):
    """Writes a font that can draw one letter, U+AC00, and gives its path."""
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
    return tmp_path / "hangul.ttf"


def test_tokens_no_font_can_draw_are_code_points_with_a_warning(monkeypatch):
    only_fonts(monkeypatch, "DejaVu Sans")
    tokens = ["가", "금요일날", "a가b", "👍", "\n"]
    with pytest.warns(UserWarning, match="No installed font can draw") as caught:
        figure, panel = panel_of(tokens, title="한")
    labels = ["U+AC00", "U+AE08 U+C694…", "a U+AC00 b", "U+1F44D", "U+000A"]
    assert texts_of(panel.get_xticklabels()) == labels
    assert figure.get_suptitle() == "U+D55C"
    tokens, title = (str(warning.message) for warning in caught)
    assert "가 (U+AC00), 금 (U+AE08), 날 (U+B0A0), 요 (U+C694), 일 (U+C77C), 👍 (U+1F44D)" in tokens
    assert "U+000A" not in tokens  # no font is missing for what has no look
    assert "한 (U+D55C): written as code points" in title
    assert "fonts-noto-cjk" in tokens
    saved_png(figure)


def test_warning_names_the_first_characters_and_points_at_the_users_line(monkeypatch):
    only_fonts(monkeypatch, "DejaVu Sans")
    hangul = [chr(0xAC00 + number) for number in range(11)]
    with pytest.warns(UserWarning, match=r"갇 \(U\+AC07\) and 3 more: ") as caught:
        panel_of(hangul)
    with pytest.warns(UserWarning, match=r"가 \(U\+AC00\): ") as caught_legend:
        plots.schedule({"가": lambda step: 0.1}, num_steps=2)
    assert [warning.filename for warning in (*caught, *caught_legend)] == [__file__, __file__]


def test_installed_font_is_found_for_what_the_first_font_lacks(hangul_font, monkeypatch):
    only_fonts(monkeypatch, "DejaVu Sans")
    font_manager.fontManager.addfont(hangul_font)
    assert glyphs.drawable(["a가"]) == (["a가"], ["DejaVu Sans", "Test Hangul"])
    assert glyphs.drawable(["a"]) == (["a"], ["DejaVu Sans"])
    with pytest.warns(UserWarning, match=r"draw 나 \(U\+B098\): "):
        assert glyphs.drawable(["나가"])[0] == ["U+B098 가"]
    saved_png(panel_of(["가", "a가"])[0])


def test_font_that_matplotlib_does_not_know_yet_is_found(hangul_font, monkeypatch):
    only_fonts(monkeypatch, "DejaVu Sans")
    broken = hangul_font.with_name("broken.ttf")
    broken.write_text("no font", encoding="utf-8")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(broken), str(hangul_font)])
    assert glyphs.drawable(["가"]) == (["가"], ["Test Hangul"])


@pytest.mark.parametrize("language", EAST_ASIA)
def test_east_asia_is_drawn_with_an_installed_font(language, tmp_path):
    text = EAST_ASIA[language]
    families, missing = glyphs._families(set(text))
    if missing:
        pytest.skip(f"no font for {language}; on Debian: apt-get install fonts-noto-cjk")
    figure, panel = panel_of([text, "a"], title=text)
    label = panel.get_xticklabels()[0]
    assert label.get_text() == text.replace(" ", "␣")
    assert set(families) <= set(label.get_fontfamily())
    assert set(text) - {" "} <= characters_of(label.get_fontfamily())
    saved_png(figure)  # matplotlib warns of each glyph that it cannot find
    _, texts = saved_svg(figure, tmp_path / "heads.svg")
    assert text in texts


def test_the_font_is_that_of_the_texts_region():
    glyphs._notice_new_fonts()
    names = {entry.name for entry in font_manager.fontManager.ttflist}
    if not {"Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans CJK SC"} <= names:
        pytest.skip("needs Noto Sans CJK; on Debian: apt-get install fonts-noto-cjk")
    assert glyphs.drawable(["一月"])[1] == ["Noto Sans CJK SC"]
    assert glyphs.drawable(["一月", "の"])[1] == ["Noto Sans CJK JP"]
    assert glyphs.drawable(["一月", "월"])[1] == ["Noto Sans CJK KR"]


def test_hebrew_is_drawn_from_the_right():
    override = "\u202d"  # from here on from the left, whatever the letters
    np.testing.assert_array_equal(pixels_of("שבת"), pixels_of(override + "תבש"))
    assert not np.array_equal(pixels_of("שבת"), pixels_of(override + "שבת"))


def test_arabic_letters_are_joined_and_drawn_from_the_right():
    # Alif alone, lam at the beginning, sin and ba in the middle, ta at the end of what is joined:
    # Unicode has a code point for each of these forms.
    joined = "\ufe8d\ufedf\ufeb4\ufe92\ufe96"
    np.testing.assert_array_equal(pixels_of("السبت"), pixels_of(joined))
    np.testing.assert_array_equal(pixels_of("السبت"), pixels_of("\u202d" + joined[::-1]))
    assert not np.array_equal(pixels_of("السبت"), pixels_of("\u200c".join("السبت")))


@pytest.mark.parametrize("tokens", [["שבת", "עשרה", "יום"], ["السبت", "أغسطس", "يوم"]])
def test_right_to_left_tokens_keep_their_places(tokens, tmp_path):
    figure, panel = panel_of(tokens)
    assert texts_of(panel.get_xticklabels()) == tokens
    assert panel.get_xlim() == (-0.5, 2.5)  # token 0 is on the left
    assert panel.get_yticklabels()[0].get_fontfamily() == ["DejaVu Sans"]
    saved_png(figure)
    assert set(tokens) < set(saved_svg(figure, tmp_path / "heads.svg")[1])


def test_texts_of_many_scripts_draw_without_a_missing_glyph():
    tokens = ["가나", "👍🏽", "日本", "السبت", "\u200d", "\x00", "\ud800", "", "∑", "𝛼"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No installed font can draw")  # depends on the machine
        figure, _ = panel_of(tokens, title=" ".join(tokens))
    saved_png(figure)


UNSEEN = {
    "zero-width space": ("\u200b", "U+200B"),
    "byte order mark": ("\ufeff", "U+FEFF"),
    "override of the direction": ("\u202e", "U+202E"),
    "joiners alone": ("\u200c\u200d", "U+200C U+200D"),
    "variation selector": ("\ufe0f", "U+FE0F"),
    "no-break space": ("\u00a0", "␣"),
    "ideographic space": ("\u3000", "␣"),
    "spaces around a control": (" \u0007\u00a0", "␣ U+0007 ␣"),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_token_that_nobody_could_see_is_written_so_that_one_can(name):
    token, label = UNSEEN[name]
    figure, panel = panel_of([token, "a"])
    assert texts_of(panel.get_xticklabels()) == [label, "a"]
    saved_png(figure)


def test_joiners_inside_a_word_stay_in_it():
    words = ["می\u200cروم", "co\u00adoperate", "a\u2060b"]
    _, panel = panel_of(words)
    assert texts_of(panel.get_xticklabels()) == words


def test_long_tokens_are_cut():
    assert glyphs.drawable(["a" * 18, "b" * 19])[0] == ["a" * 18, "b" * 17 + "…"]


def test_the_warning_names_a_package_for_each_kind_of_text():
    text = glyphs._warning({"가"})
    assert re.findall(r"fonts-[\w-]+", text) == [
        "fonts-noto-cjk",
        "fonts-noto-core",
        "fonts-symbola",
    ]
