"""The figure of notebook 14: what a cache takes against what the model still knows."""

from __future__ import annotations

import math
from collections.abc import Mapping

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, digits, shorten, text_width, told
from helpers.plots.measured import log_axes

Point = tuple[float, float]
HIGH, ROOM, LONGEST = 210, 17, 200  # px of the plot, from one line of names to the next, and of a name


def variants(dots: Mapping[str, Point], most: int, own: str | None = None) -> Picture:
    """Draw bytes a token, logarithmic, against diaries signed right, one named dot a variant.

    Args:
        dots: (bytes a token, diaries signed right) of each variant, by its name.
        most: diaries there are.
        own: the reader's variant, drawn in another colour; None has none.
    """
    sizes = [nbytes for nbytes, _ in dots.values()]

    def draw(sheet: Sheet) -> None:
        left, right = 44.0, sheet.width - 20.0
        low, high = min(sizes) / 1.5, max(sizes) * 2.5
        across = (right - left) / math.log(high / low)
        dots_at = {
            name: (left + across * math.log(nbytes / low), HIGH * (1.0 - count / most))
            for name, (nbytes, count) in sorted(dots.items(), key=lambda item: item[1])
        }
        names_at = flags(dots_at, right)
        top = 52 - min(0.0, *(y for _, y in names_at.values()))  # names may stand above the plot
        sheet.heading(f"signed right, of {most}")
        axes = sheet.plot(left, top, right, top + HIGH * 1.04)
        log_axes(axes.xaxis, base=2, most=8)
        axes.set(xlim=(low, high), ylim=(-most * 0.04, most))
        sheet.note(right, top + HIGH + 50, "bytes a token", at="right")
        for name, (x, y) in names_at.items():
            pole, foot = dots_at[name]
            sheet.line((pole, top + foot), (pole, top + y - 6), colour="line", width=1)
            sheet.note(x, top + y, shorten(name, LONGEST, SMALL), colour=_colour(name, own))
        for name, (x, y) in dots_at.items():
            sheet.disc(x, top + y, 5, _colour(name, own))

    said = "; ".join(
        f"{told(n)}: {digits(dots[n][0])} bytes, {dots[n][1]:g} signed"
        for n in sorted(dots, key=lambda name: dots[name])
    )
    alt = f"Bytes a token, logarithmic, against diaries signed right, of {most}. {said}."
    return Picture(draw, alt)


def _colour(name: str, own: str | None) -> str:
    return "generated" if name == own else "query"


def flags(dots: Mapping[str, Point], right: float) -> dict[str, Point]:
    """Return where each name begins: at the right of a pole on its dot, which no other name crosses."""
    found: dict[str, Point] = {}
    for name in sorted(dots, key=lambda name: (-dots[name][0], dots[name][1])):
        x, y = dots[name]
        wide = min(text_width(name, SMALL), LONGEST)
        start = min(x + 4, right - wide)
        y -= ROOM
        reached = sorted((dots[one][1], found[one][1]) for one in found if dots[one][0] < start + wide + 6)
        for foot, top in reversed(reached):  # from the lowest up
            y = top - ROOM if top - ROOM < y < foot + ROOM else y
        found[name] = start, y
    return found
