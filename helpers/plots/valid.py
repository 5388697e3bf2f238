"""Figures of texts with a form: which words were chosen; how likely each text is, written in two ways."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, counted, need, shorten, text_width, told

COLOURS = ("generated", "query")  # of two ways


def chosen(words: Sequence[str], places: Collection[int]) -> Picture:
    """Draw a text of a form: the chosen words in boxes, the others, which had to come, plain.

    Args:
        words: the text, up to 120 words.
        places: where the chosen ones stand, from 0.
    """
    need(len(words) <= 120, f"{len(words)} words came; expected at most 120 to draw")
    n = len(places)
    heads = f"{counted(n, 'word')} chosen", f"{len(words) - n} had to come"

    def draw(sheet: Sheet) -> None:
        sheet.box(18, 11, 26, 18, fill="generated fill", edge="generated", radius=5)
        sheet.text(52, 20, heads[0], bold=True)
        sheet.text(52 + text_width(heads[0], bold=True) + 22, 20, heads[1], colour="soft")
        x, y = 18.0, 56.0
        for place, word in enumerate(words):
            shown = shorten(word, sheet.width - 52)
            width = text_width(shown) + (16 if place in places else 0)
            if x + width > sheet.width - 14:
                x, y = 18.0, y + 30
            if place in places:
                sheet.box(x, y - 12, width, 24, fill="generated fill", edge="generated", radius=6)
            sheet.text(x + width / 2, y, shown, at="center", colour="ink" if place in places else "soft")
            x += width + 7

    marked = (f"[{told(word)}]" if i in places else told(word) for i, word in enumerate(words))
    return Picture(draw, f"{heads[0]}, in brackets; {heads[1]}: {' '.join(marked)}")


def two_ways(texts: Mapping[str, tuple[float, float]], ways: tuple[str, str]) -> Picture:
    """Draw the probability of each text in two ways to write it, one bar over the other.

    Args:
        texts: both probabilities, by the text.
        ways: their names.
    """

    def percent(p: float) -> str:
        return f"{100 * p:.1f}%"

    def draw(sheet: Sheet) -> None:
        y, longest = 20.0, (sheet.width - 36 - text_width("100.0%", SMALL, bold=True) - 12)
        for name, colour in zip(ways, COLOURS, strict=True):
            sheet.square(24, y, 12, colour)
            sheet.note(38, y, name, colour="ink")
            y += 22
        for text, both in texts.items():
            y += 14
            sheet.text(18, y, shorten(text, sheet.width - 36, bold=True), bold=True)
            for p, colour in zip(both, COLOURS, strict=True):
                y += 26
                sheet.box(18, y - 10, max(longest * p, 1), 20, fill=colour, radius=2)
                sheet.note(18 + longest * p + 8, y, percent(p), colour="ink", bold=True)
            y += 22

    said = [f"{told(text)}: {percent(a)} and {percent(b)}" for text, (a, b) in texts.items()]
    return Picture(draw, f"Probability of a text, {ways[0]} and {ways[1]}. {'; '.join(said)}.")
