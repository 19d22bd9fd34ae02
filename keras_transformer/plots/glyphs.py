"""Makes any text drawable: finds installed fonts for its characters, or writes code points."""

import unicodedata
import warnings
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry

BASE_FONT = "DejaVu Sans"  # comes with matplotlib
NOT_FOR_TEXT = ("Last Resort", "STIX", "cm")  # matplotlib's own, for empty boxes and for formulas
INVISIBLE = {"Cc", "Cs", "Zl", "Zp"}  # categories: controls, surrogates, line and paragraph ends
FORMATS = "Cf"  # a category too: joiners and the like shape what is beside them, and stay there
FILLERS = set("\u034f\u115f\u1160\u2800\u3164\ufe0e\ufe0f\uffa0")  # the same, of other categories
SPACES, SPACE = "Zs", "␣"
KANA, HANGUL = ("JP", 0x3040, 0x30FF), ("KR", 0xAC00, 0xD7A3)  # endings of font names, code points
NAMED = 8  # characters that a warning names


def drawable(
    texts: Iterable[object], longest: int = 18, show_spaces: bool = False
) -> tuple[list[str], list[str]]:
    """Gives the texts as matplotlib can draw them, and the font families that do.

    A character that no installed font has becomes its code point, `U+AC00`, with a `UserWarning`.
    One that nobody could see becomes its code point too, a joiner only where there is nothing to
    join. A text longer than `longest` ends with `…`.
    """
    plain = [t.decode("utf-8", "replace") if isinstance(t, bytes) else str(t) for t in texts]
    if show_spaces:
        plain = [_with_spaces_shown(text) for text in plain]
    shown = {text: {c for c in text if unicodedata.category(c) not in INVISIBLE} for text in plain}
    shown = {text: set() if _is_blank(own) else own for text, own in shown.items()}
    visible: set[str] = set().union(*shown.values())
    families, missing = _families(visible)
    if missing:  # level 4 is the user's line: here, a function that labels, the figure's function
        warnings.warn(_warning(missing), UserWarning, stacklevel=4)
    return [_shorten(_spell(text, shown[text] - missing), longest) for text in plain], families


def _with_spaces_shown(text: str) -> str:
    """Gives a text with a visible sign for each space, of whatever width."""
    return "".join(SPACE if unicodedata.category(c) == SPACES else c for c in text)


def _is_blank(characters: Set[str]) -> bool:
    """Tells whether there is nothing among the characters that anybody could see."""
    return all(c in FILLERS or unicodedata.category(c) == FORMATS for c in characters)


def _families(characters: Set[str]) -> tuple[list[str], set[str]]:
    """Gives installed families that together draw `characters`, and those they cannot draw."""
    families, missing = _cover(characters)
    if missing and _notice_new_fonts():
        families, missing = _cover(characters)
    return families or [BASE_FONT], missing


def _cover(characters: Set[str]) -> tuple[list[str], set[str]]:
    """Gives known families, each for what those before it lack, and what all of them lack."""
    from matplotlib import font_manager

    entries = [entry for entry in font_manager.fontManager.ttflist if entry.style == "normal"]
    families, missing = [], set(characters)
    for entry in sorted(entries, key=_preference(characters)):
        if not missing:
            break
        if entry.name in families or entry.name.startswith(NOT_FOR_TEXT):
            continue
        found = missing & _covered(entry)
        if found:
            families.append(entry.name)
            missing -= found
    return families, missing


def _preference(characters: Set[str]) -> Callable[["FontEntry"], tuple[Any, ...]]:
    """Gives the key that orders fonts: that of every figure, then plain ones without serifs.

    Of fonts for East Asia those for the region of the text come first: a Chinese character may look
    different in Japan and Korea.
    """
    from matplotlib import font_manager

    codes = {ord(character) for character in characters}
    regions = [region for region, *ends in (KANA, HANGUL) if _within(codes, *ends)]
    region = regions[0] if regions else "SC"

    weights: dict[Any, Any] = font_manager.weight_dict  # numbers stay as they are

    def key(entry: "FontEntry") -> tuple[Any, ...]:
        name, weight = entry.name, weights.get(entry.weight, entry.weight)
        plain = abs(weight - 400), "Sans" not in name, "Mono" in name
        return name != BASE_FONT, *plain, not name.endswith(region), name

    return key


def _within(codes: Iterable[int], first: int, last: int) -> bool:
    """Tells whether one of the code points is between the two."""
    return any(first <= code <= last for code in codes)


def _covered(entry: "FontEntry") -> set[str]:
    """Gives the characters that the outlines of a font draw."""
    from matplotlib import font_manager

    try:
        font = font_manager.get_font(font_manager.FontPath(entry.fname, entry.index))
    except (OSError, RuntimeError):  # not for matplotlib, such as fonts of bitmaps
        return set()
    return {chr(code) for code in font.get_charmap()} if font.scalable else set()


def _notice_new_fonts() -> bool:
    """Makes known what was installed since matplotlib listed the fonts; tells whether it found any.

    Matplotlib keeps its list in a file from one process to the next, and does not renew it.
    """
    from matplotlib import font_manager

    manager = font_manager.fontManager
    before = len(manager.ttflist)
    known = {entry.fname for entry in manager.ttflist}
    for path in set(font_manager.findSystemFonts()) - known:
        try:
            manager.addfont(path)
        except (OSError, RuntimeError, ValueError):  # not for matplotlib
            continue
    return len(manager.ttflist) > before


def _warning(missing: Iterable[str]) -> str:
    """Writes which characters no font has, and what to install."""
    named = [f"{character} (U+{ord(character):04X})" for character in sorted(missing)]
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return (
        f"No installed font can draw {', '.join(named[:NAMED])}{more}: written as code points. "
        "Install a font that has them. On Debian and Ubuntu: fonts-noto-cjk for Chinese, Japanese "
        "and Korean, fonts-noto-core for other scripts, fonts-symbola for emoji."
    )


def _spell(text: str, drawn: Set[str]) -> str:
    """Writes the characters that are not `drawn` as code points, set off by spaces."""
    pieces: list[str] = []
    for character in text:
        if character in drawn:
            if pieces and not pieces[-1].startswith("U+"):
                pieces[-1] += character
            else:
                pieces.append(character)
        else:
            pieces.append(f"U+{ord(character):04X}")
    return " ".join(pieces)


def _shorten(text: str, longest: int) -> str:
    """Cuts a text that is too long for a label, but no code point in two."""
    if len(text) <= longest:
        return text
    kept = text[: longest - 1]
    start = kept.rfind("U+")
    return (kept[:start] if start > 0 and " " not in kept[start:] else kept).rstrip() + "…"
