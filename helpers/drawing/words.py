"""Tokens and sentences as a figure writes them, and as its text alternative says them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import TextToPath

FONT = "DejaVu Sans"  # comes with matplotlib, and is wider than what browsers take in its place
TEXT, SMALL, LARGE = 15.0, 13.5, 22.0  # heights of letters, px


def need(right: bool, message: str) -> None:
    """Raise ValueError with this message unless what a figure was given is right."""
    if not right:
        raise ValueError(message)


def plain(text: str) -> str:
    """Return a token's text for a sentence: escapes for what cannot be printed, at most 40 characters."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:41])
    return shown if len(shown) <= 40 else shown[:39] + "…"


@cache
def _glyphs() -> set[int]:
    return set(get_font(findfont(FONT)).get_charmap())


def drawable(text: str) -> str:
    """Return text with what cannot be drawn as one line of glyphs as escapes or boxes."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return "".join(c if ord(c) in _glyphs() else "□" for c in shown)


@lru_cache(10_000)
def text_width(text: str, size: float = TEXT, *, bold: bool = False) -> float:
    """Return how wide a text comes out, px."""
    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]


def shorten(text: str, width: float, size: float = TEXT, *, bold: bool = False) -> str:
    """Cut a token's text to fit `width` px, with an ellipsis where something was cut."""
    shown = drawable(text[:100])
    if len(text) <= 100 and text_width(shown, size, bold=bold) <= width:
        return shown
    kept = len(shown)
    while kept > 1 and text_width(shown[:kept] + "…", size, bold=bold) > width:
        kept -= 1
    return shown[:kept] + "…"


def numbered(words: Sequence[str]) -> list[str]:
    """Number the words that come more than once: Today, nice 1, nice 2."""
    return [f"{w} {words[: n + 1].count(w)}" if words.count(w) > 1 else w for n, w in enumerate(words)]


def listed(items: Sequence[str]) -> str:
    """Join items as a sentence does: a, b and c."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def counted(n: int, noun: str) -> str:
    """Write a count with its noun: 1 pass, 2 passes."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('s') else 's'}"
