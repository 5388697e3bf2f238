"""The figure of notebook 11: what a cache takes against what the model still knows."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.ticker import LogLocator, NullLocator

from helpers.plots.canvas import Picture, Sheet
from helpers.plots.measured import checked
from helpers.plots.words import SMALL, digits, need, shorten, text_width, told

Point = tuple[float, float]
HIGH, ROOM, LONGEST = 210, 17, 200  # px of the plot, from one line of names to the next, and of a name


def variants(dots: Mapping[str, Point], most: int, own: str | None = None) -> Picture:
    """Draw bytes a token, logarithmic, against diaries signed right, one named dot a variant.

    Args:
        dots: (bytes a token, diaries signed right) of each variant, by its name.
        most: diaries there are.
        own: the reader's variant, drawn in another colour; None has none.

    Raises:
        ValueError: there are no dots, bytes are not over 0, or more are signed than there are.
    """
    need(bool(dots), "no variants; expected one or more")
    sizes = checked("bytes", [nbytes for nbytes, _ in dots.values()])
    signed = checked("signed", [count for _, count in dots.values()])
    need(bool((sizes > 0).all()), f"bytes are {sizes}; expected numbers over 0")
    need(bool((signed <= most).all()), f"signed are {signed}; expected at most {most}")

    def draw(sheet: Sheet) -> None:
        left, right = 44.0, sheet.width - 20.0
        low, high = sizes.min() / 1.5, sizes.max() * 2.5
        across = (right - left) / math.log(high / low)
        dots_at = {
            name: (left + across * math.log(nbytes / low), HIGH * (1.0 - count / most))
            for name, (nbytes, count) in sorted(dots.items(), key=lambda item: item[1])
        }
        names_at = flags(dots_at, right)
        top = 52 - min(0.0, *(y for _, y in names_at.values()))  # names may stand above the plot
        sheet.text(18, 20, f"signed right, of {most}", bold=True)
        axes = sheet.plot(left, top, right, top + HIGH * 1.04)
        axes.set(xscale="log", xlim=(low, high), ylim=(-most * 0.04, most))
        axes.xaxis.set_major_locator(LogLocator(2, numticks=8))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:,g}")
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
    return Picture(draw, alt, {name: tuple(map(float, dot)) for name, dot in dots.items()})


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
