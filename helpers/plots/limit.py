"""A figure of measured step durations. Each duration is divided into the parts that are known."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import SMALL, printable, shorten, text_width

StartEnd = tuple[float, float]
PartsAndMeasuredMs = tuple[Mapping[str, StartEnd], float]
# Parts with a fixed colour. Weights are blue in every figure; time that no part explains is grey.
COLOURS = {"reading": "query", "matrices": "query", "rest": "soft", "the whole step": "soft"}


def waterfall(steps: Mapping[str, PartsAndMeasuredMs], title: str, up_to: float = 0.0) -> Picture:
    """Draw the duration of each step as a bar, divided into the parts of the step that are known.

    Parts that overlap in time are drawn one above the other. Below a bar are the milliseconds of its parts.
    "reading" and "matrices" have the colour of weights. "rest" is grey, and so is the whole bar of a step
    without known parts.

    Args:
        steps: maps the label of each step to a pair: (parts, measured duration in milliseconds). The parts
            are a dict from names to (start, end) in milliseconds. Besides the three names above, all steps
            together may have up to 4 others. Bars are drawn in the order of the mapping.
        title: the heading.
        up_to: milliseconds for which there is space, so that several pictures have one scale. If it is less
            than the longest step takes, it has no effect.
    """
    most = max(up_to, *(_end(parts, measured) for parts, measured in steps.values()))
    bars = {name: parts or {"the whole step": (0.0, measured)} for name, (parts, measured) in steps.items()}
    others = iter(("generated", "value", "key", "ink"))
    colours: dict[str, str] = {}
    for part in (part for parts in bars.values() for part in parts):
        colours[part] = colours.get(part) or COLOURS.get(part) or next(others)

    def draw(sheet: Sheet) -> None:
        left, scale = 18.0, (sheet.width - 114) / most
        sheet.heading(title)
        y = _legend(sheet, colours) + 18
        for name, (parts, measured) in steps.items():
            sheet.note(left, y - 10, shorten(name, sheet.width - 36, SMALL), colour="ink")
            for part, (start, end) in bars[name].items():
                down, high = _lane(part, bars[name])
                x, fill = left + start * scale, colours[part]
                sheet.box(x, y + down, (end - start) * scale, high, fill=fill, radius=0)
            ms = f"{format_digits(measured)} ms"
            sheet.text(left + _end(parts, measured) * scale + 8, y + 12, ms, bold=True)
            if parts:
                y += _milliseconds(sheet, y + 38, parts, colours) + 8
            y += 58

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


def _milliseconds(sheet: Sheet, y: float, parts: Mapping[str, StartEnd], colours: Mapping[str, str]) -> float:
    """Write the duration of each part after a square in its colour, and return the height, in px."""
    x = 18.0
    for part, (start, end) in parts.items():
        sheet.square(x + 5, y, 10, colours[part])
        ms = f"{end - start:.2f}"
        sheet.note(x + 14, y, ms)
        x += 26 + text_width(ms, SMALL)
    return 18.0


def _lane(part: str, parts: Mapping[str, StartEnd]) -> tuple[int, int]:
    """Return the offset of a part from the top of its bar, and the height of the part, in px.

    If the part overlaps another one in time, it has half of the bar's height; otherwise it has all of it.
    """
    start, end = parts.get(part, (0, 0))
    beside = [other for other, (a, b) in parts.items() if other == part or min(end, b) - max(start, a) > 1e-9]
    return (12 * beside.index(part), 12) if len(beside) > 1 else (0, 24)


def _legend(sheet: Sheet, colours: Mapping[str, str]) -> float:
    """Draw the legend, and return the y coordinate of its lower end, in px."""
    x, y = 18.0, 44.0
    for name, colour in colours.items():
        if x + 20 + text_width(name, SMALL) > sheet.width - 8:
            x, y = 18.0, y + 20
        sheet.square(x + 6, y, 12, colour)
        sheet.note(x + 18, y, name)
        x += 36 + text_width(name, SMALL)
    return y + 24
