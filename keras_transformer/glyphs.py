"""Makes any text drawable: finds installed fonts for its characters, or writes code points."""

import unicodedata

BASE_FONT = "DejaVu Sans"  # comes with matplotlib
NOT_FOR_TEXT = ("Last Resort", "STIX", "cm")  # matplotlib's own, for empty boxes and for formulas
INVISIBLE = {"Cc", "Cs", "Zl", "Zp"}  # categories: controls, surrogates, line and paragraph ends


def drawable(texts, longest=18):
    """Gives the texts as matplotlib can draw them, and the font families that do.

    A character that no installed font has, or that nobody could see, becomes its code point,
    `U+AC00`; a text longer than `longest` ends with `…`.
    """
    texts = [t.decode("utf-8", "replace") if isinstance(t, bytes) else str(t) for t in texts]
    visible = {c for t in texts for c in t if unicodedata.category(c) not in INVISIBLE}
    families, missing = _families(visible)
    drawn = visible - missing
    return [_shorten(_spell(text, drawn), longest) for text in texts], families


def _families(characters):
    """Gives installed families that together draw `characters`, and those they cannot draw."""
    from matplotlib import font_manager

    entries = [entry for entry in font_manager.fontManager.ttflist if entry.style == "normal"]
    entries.sort(key=_preference)
    families, missing = [], characters
    for entry in entries:
        if not missing:
            break
        if entry.name in families or entry.name.startswith(NOT_FOR_TEXT):
            continue
        found = missing & _covered(entry.fname)
        if found:
            families.append(entry.name)
            missing = missing - found
    return families or [BASE_FONT], missing


def _preference(entry):
    """Orders fonts: the one every figure uses, then plain regular ones without serifs."""
    from matplotlib import font_manager

    weight = font_manager.weight_dict.get(entry.weight, entry.weight)
    return entry.name != BASE_FONT, abs(weight - 400), "Sans" not in entry.name, entry.name


def _covered(path):
    """Gives the characters that the outlines of a font file draw."""
    from matplotlib import font_manager

    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):  # not for matplotlib, such as fonts of bitmaps
        return set()
    return {chr(code) for code in font.get_charmap()} if font.scalable else set()


def _spell(text, drawn):
    """Writes the characters that are not `drawn` as code points, set off by spaces."""
    pieces = []
    for character in text:
        if character in drawn:
            if pieces and not pieces[-1].startswith("U+"):
                pieces[-1] += character
            else:
                pieces.append(character)
        else:
            pieces.append(f"U+{ord(character):04X}")
    return " ".join(pieces)


def _shorten(text, longest):
    """Cuts a text that is too long for a label, but no code point in two."""
    if len(text) <= longest:
        return text
    kept = text[: longest - 1]
    start = kept.rfind("U+")
    return (kept[:start] if start > 0 and " " not in kept[start:] else kept).rstrip() + "…"
