"""A figure of measured steps, each compared with its lower bound."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import digits
from helpers.drawing.words import SMALL, plain, shorten, text_width

Point = tuple[float, float]


def waterfall(steps: Mapping[str, tuple[Mapping[str, Point], float]], title: str) -> Picture:
    """Draw how long steps take: a bar for each, made of its known parts.

    Args:
        steps: by name, in order: the parts, each with its start and end in milliseconds, and the measured
            milliseconds. Parts that run at the same time share the bar's height. The part "rest" is grey; up
            to 4 others may have any names.
        title: the heading.
    """
    most = max(_end(parts, measured) for parts, measured in steps.values())
    names = [*dict.fromkeys(name for parts, _ in steps.values() for name in parts)]
    known = [name for name in names if name != "rest"]
    first = known[:1] == ["reading"]  # which has its colour without launches before it, too
    colours = dict(zip(known, ("generated", "key", "value", "query")[first:], strict=False))
    colours |= {name: "soft" for name in names if name not in colours}

    def draw(sheet: Sheet) -> None:
        left, row = (18.0, 58.0) if sheet.narrow else (236.0, 40.0)
        scale = (sheet.width - left - 96) / most
        sheet.heading(title)
        top = _legend(sheet, colours) if names else 44.0
        for n, (name, (parts, measured)) in enumerate(steps.items()):
            y = top + row * n + 18 * sheet.narrow
            if sheet.narrow:
                sheet.note(left, y - 10, shorten(name, sheet.width - 36, SMALL), colour="ink")
            else:
                sheet.note(left - 12, y + 12, shorten(name, left - 24, SMALL), at="right", colour="ink")
            for part, (start, end) in (parts or {"": (0.0, measured)}).items():
                down, high = _lane(part, parts)
                x, fill = left + start * scale, colours.get(part, "query")
                sheet.box(x, y + down, (end - start) * scale, high, fill=fill, radius=0)
            ms = f"{digits(measured)} ms"
            sheet.text(left + _end(parts, measured) * scale + 8, y + 12, ms, bold=True)

    sentence = "; ".join(
        f"{plain(name)}: "
        + "".join(f"{part} {digits(start)} to {digits(end)}, " for part, (start, end) in parts.items())
        + f"measured {digits(measured)}"
        for name, (parts, measured) in steps.items()
    )
    return Picture(draw, f"{plain(title)}, milliseconds. {sentence}.")


def _end(parts: Mapping[str, Point], measured: float) -> float:
    return max(measured, *(end for _, end in parts.values())) if parts else measured


def _lane(part: str, parts: Mapping[str, Point]) -> tuple[int, int]:
    """Return the top and the height of a part in its bar: half of the bar if another part runs meanwhile."""
    start, end = parts.get(part, (0, 0))
    beside = [other for other, (a, b) in parts.items() if other == part or min(end, b) - max(start, a) > 1e-9]
    return (12 * beside.index(part), 12) if len(beside) > 1 else (0, 24)


def _legend(sheet: Sheet, colours: Mapping[str, str]) -> float:
    """Draw the legend; return its lower end."""
    x, y = 18.0, 44.0
    for name, colour in colours.items():
        if x + 20 + text_width(name, SMALL) > sheet.width - 8:
            x, y = 18.0, y + 20
        sheet.square(x + 6, y, 12, colour)
        sheet.note(x + 18, y, name)
        x += 36 + text_width(name, SMALL)
    return y + 24
