"""A figure of the measured durations of steps, each divided into its known parts."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import SMALL, printable, shorten, text_width

StartEnd = tuple[float, float]
PartsAndMeasuredMs = tuple[Mapping[str, StartEnd], float]


def waterfall(steps: Mapping[str, PartsAndMeasuredMs], title: str) -> Picture:
    """Draw the duration of each step as a bar made of its known parts.

    Args:
        steps: maps the label of each step, in the order of drawing, to its parts and its measured duration
            in milliseconds. The parts are a mapping from names to (start, end) in milliseconds; parts that
            overlap share the bar's height. Without parts, the bar is as long as the measured duration. The
            part "rest" is grey. Up to 4 other parts may have any names, or up to 3 if the first is "reading".
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
            ms = f"{format_digits(measured)} ms"
            sheet.text(left + _end(parts, measured) * scale + 8, y + 12, ms, bold=True)

    sentence = "; ".join(
        f"{printable(name)}: "
        + "".join(
            f"{part} {format_digits(start)} to {format_digits(end)}, " for part, (start, end) in parts.items()
        )
        + f"measured {format_digits(measured)}"
        for name, (parts, measured) in steps.items()
    )
    return Picture(draw, f"{printable(title)}, milliseconds. {sentence}.")


def _end(parts: Mapping[str, StartEnd], measured: float) -> float:
    return max(measured, *(end for _, end in parts.values())) if parts else measured


def _lane(part: str, parts: Mapping[str, StartEnd]) -> tuple[int, int]:
    """Return a part's offset from the top of its bar, and its height, in px.

    A part has half of the bar's height if it overlaps another part, else the whole height.
    """
    start, end = parts.get(part, (0, 0))
    beside = [other for other, (a, b) in parts.items() if other == part or min(end, b) - max(start, a) > 1e-9]
    return (12 * beside.index(part), 12) if len(beside) > 1 else (0, 24)


def _legend(sheet: Sheet, colours: Mapping[str, str]) -> float:
    """Draw the legend, and return the y of its lower end in px."""
    x, y = 18.0, 44.0
    for name, colour in colours.items():
        if x + 20 + text_width(name, SMALL) > sheet.width - 8:
            x, y = 18.0, y + 20
        sheet.square(x + 6, y, 12, colour)
        sheet.note(x + 18, y, name)
        x += 36 + text_width(name, SMALL)
    return y + 24
