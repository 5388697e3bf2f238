"""Format words, phrases and counts for figures and text alternatives, and measure their width."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import TextToPath

FONT = "DejaVu Sans"  # comes with matplotlib, and is wider than the fonts that browsers use instead
TEXT, SMALL, LARGE = 15.0, 14.0, 22.0  # font sizes, px


def require(condition: bool, message: str) -> None:
    """Raise ValueError with this message if `condition` is false. Figures check their arguments with it."""
    if not condition:
        raise ValueError(message)


def printable(text: str) -> str:
    """Return a token's text, cut to 40 characters, with unprintable characters escaped."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:41])
    return shown if len(shown) <= 40 else shown[:39] + "…"


@cache
def _glyphs() -> set[int]:
    return set(get_font(findfont(FONT)).get_charmap())


def drawable(text: str) -> str:
    """Return a version of a text that can be drawn on one line.

    Unprintable characters, such as line breaks, are escaped. Characters that the font lacks become boxes.
    """
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return "".join(c if ord(c) in _glyphs() else "□" for c in shown)


@lru_cache(10_000)
def text_width(text: str, size: float = TEXT, *, bold: bool = False) -> float:
    """Return the width of a text in the font of all figures, in px."""
    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]


def shorten(text: str, width: float, size: float = TEXT, *, bold: bool = False) -> str:
    """Shorten a text to at most 100 characters and `width` px, ending it with "…" if anything is cut.

    Characters that cannot be drawn become escapes or boxes. At least one character is kept, even if it does
    not fit.
    """
    shown = drawable(text[:100])
    if len(text) <= 100 and text_width(shown, size, bold=bold) <= width:
        return shown
    kept = len(shown)
    while kept > 1 and text_width(shown[:kept] + "…", size, bold=bold) > width:
        kept -= 1
    return shown[:kept] + "…"


def number_repeated(words: Sequence[str]) -> list[str]:
    """Number the occurrences of each word that occurs more than once: Today, nice 1, nice 2."""
    return [f"{w} {words[: n + 1].count(w)}" if words.count(w) > 1 else w for n, w in enumerate(words)]


def join_words(items: Sequence[str]) -> str:
    """Join items with commas and a final "and": "a, b and c"."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def pluralize(n: int, noun: str) -> str:
    """Return a count with its noun: "1 pass", "2 passes"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('s') else 's'}"
