"""Figures of what a machine can do at most: the staircase, the roofline, a decode step's way to its floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet, apart
from helpers.drawing.words import SMALL, digits, shorten, text_width, told
from helpers.plots.measured import curves, log_axes

Point = tuple[float, float]


def staircase(nbytes: Sequence[int], series: Mapping[str, Sequence[float]]) -> Picture:
    """Draw bytes a second against the size of the buffer that is read.

    Args:
        nbytes: sizes, growing.
        series: bytes a second at each size, by the name of who read; up to 4.
    """
    gigabytes = {name: [one / 1e9 for one in y] for name, y in series.items()}
    mib = [n / 2**20 for n in nbytes]
    return curves("GB read in a second", "GB/s", "MiB in the buffer", mib, gigabytes, "x")


def time_by_tokens(
    tokens: Sequence[int], measured: Sequence[float], memory: float, arithmetic: float
) -> Picture:
    """Draw the time of a product against the tokens in it, measured, over the two lines that bound it.

    Args:
        tokens: T of each product, growing.
        measured: milliseconds of each.
        memory: milliseconds to read the matrix once, the same for any T.
        arithmetic: milliseconds of the operations of one token.
    """
    ends = tokens[0], tokens[-1]
    lines = {
        "read the matrix": [(t, memory) for t in ends],
        "do the arithmetic": [(t, arithmetic * t) for t in ends],
    }
    dots = {f"T = {t:,}": (t, y) for t, y in zip(tokens, measured, strict=True)}
    return _log_log("milliseconds of a matrix times T tokens", "tokens at once, T", lines, dots)


def roofline(
    flops_per_second: float, bytes_per_second: float, dots: Mapping[str, Point], title: str
) -> Picture:
    """Draw work under the roof of a machine: operations a second against operations a byte.

    Args:
        flops_per_second, bytes_per_second: the machine at its best.
        dots: (operations a byte, operations a second) of what was measured, by name.
        title: which machine.
    """
    ridge = flops_per_second / bytes_per_second
    xs = [x for x, _ in dots.values()] + [ridge]
    low, high = min(xs) / 2, 3 * max(xs)
    peak = flops_per_second / 1e9
    lines = {
        "memory": [(low, low * bytes_per_second / 1e9), (ridge, peak)],
        "arithmetic": [(ridge, peak), (high, peak)],
    }
    scaled = {name: (x, y / 1e9) for name, (x, y) in dots.items()}
    return _log_log(f"{title}: GFLOP in a second", "operations a byte", lines, scaled, named=True)


def _log_log(
    title: str,
    across: str,
    lines: Mapping[str, Sequence[Point]],
    dots: Mapping[str, Point],
    named: bool = False,
) -> Picture:
    """Draw named lines, and dots with or without their names, on logarithmic axes."""
    every = [*dots.values(), *(point for line in lines.values() for point in line)]
    (left_x, right_x), (low, high) = ((min(axis), max(axis)) for axis in zip(*every, strict=True))

    def draw(sheet: Sheet) -> None:
        top, right = 44.0 + 22 * len(lines) * sheet.narrow, sheet.width - (20 if sheet.narrow else 150)
        sheet.heading(title)
        axes = sheet.plot(66, top, right, top + 270, across)
        log_axes(axes.xaxis, axes.yaxis)
        axes.set(xlim=(left_x / 1.3, right_x * 1.3), ylim=(low / 2, high * 2))
        for k, (name, points) in enumerate(lines.items()):
            dashes = ("-", (0, (5, 2.5)))[k % 2]
            axes.plot(*zip(*points, strict=True), color="ink", lw=1.6, ls=dashes)
            if sheet.narrow:
                sheet.line((18, 46 + 22 * k), (46, 46 + 22 * k), width=1.6, dashes=dashes)
                sheet.note(56, 46 + 22 * k, name, colour="ink")
        if not sheet.narrow:
            _name_lines(sheet, {name: [sheet.at(axes, *p) for p in line] for name, line in lines.items()})
        for x, y in dots.values():
            axes.plot([x], [y], "o", color="query", ms=8)
        if named:
            _name_dots(sheet, {name: sheet.at(axes, *dot) for name, dot in dots.items()}, 66, right)

    alt = "; ".join(f"{told(name)} {digits(y)} at {digits(x)}" for name, (x, y) in dots.items())
    drawn = "; ".join(
        f"{name} from {digits(p[0][1])} at {digits(p[0][0])} to {digits(p[-1][1])} at {digits(p[-1][0])}"
        for name, p in lines.items()
    )
    return Picture(draw, f"{told(title)}, against {across}. Dots: {alt}. Lines: {drawn}.")


def _name_lines(sheet: Sheet, lines: Mapping[str, Sequence[Point]]) -> None:
    """Name a line at its right end, or left of its middle where it ends before the others."""
    right = max(line[-1][0] for line in lines.values())
    ends = {name: line[-1][1] for name, line in lines.items() if line[-1][0] > right - 1}
    heights = dict(zip(ends, apart(list(ends.values()), 20, 40, 400), strict=True))
    for name, ((x, y), *_, (end, top)) in lines.items():
        if name in ends:
            sheet.note(right + 22, heights[name], name, colour="ink")
        else:
            sheet.note((x + end) / 2 - 10, (y + top) / 2 - 8, name, at="right", colour="ink")


def _name_dots(sheet: Sheet, places: Mapping[str, Point], left: float, right: float) -> None:
    """Write each name beside its dot, below or above it: where it covers no dot and no other name."""
    taken = [(x - 6, x + 6, y) for x, y in places.values()]
    for name, (x, y) in places.items():
        wide = text_width(name, SMALL)
        middle = min(max(x - wide / 2, left + 4), right - wide)
        spots = [(x + 12, y + 3), *((middle, y + down) for down in (18, 37, 56, -17))]
        free = [
            (start, height)
            for start, height in spots
            if start + wide <= right
            and all(start + wide < a or b < start or abs(height - c) > 14 for a, b, c in taken)
        ]
        start, height = (free or spots)[0]
        taken.append((start, start + wide, height))
        sheet.note(start, height, name, colour="query")


def waterfall(steps: Mapping[str, Point], floor: float, title: str) -> Picture:
    """Draw a decode step's way to its floor: for each change a bar measured, an outline predicted.

    Args:
        steps: (predicted, measured) milliseconds after each change, by its name, in order.
        floor: milliseconds that the bytes of the last take at the least.
        title: of which model.
    """
    most = max(floor, *(x for pair in steps.values() for x in pair))
    written = [f"{digits(measured)} ms" for _, measured in steps.values()]

    def draw(sheet: Sheet) -> None:
        left, row = (18.0, 60.0) if sheet.narrow else (236.0, 44.0)
        room = max(text_width(words, bold=True) for words in written) + 24
        scale = (sheet.width - left - room) / most
        sheet.heading(title)
        sheet.note(18, 42, "filled: measured, outline: predicted")
        for n, (name, (predicted, measured)) in enumerate(steps.items()):
            y = 64.0 + row * n + 18 * sheet.narrow
            if sheet.narrow:
                sheet.note(left, y - 12, shorten(name, sheet.width - 36, SMALL), colour="ink")
            else:
                sheet.note(left - 12, y + 11, shorten(name, left - 24, SMALL), at="right", colour="ink")
            sheet.box(left, y + 4, max(1.0, measured * scale), 14, fill="query", radius=0)
            sheet.box(left, y, max(1.0, predicted * scale), 22, edge="ink", radius=0, line=1.4)
            mark = left + floor * scale
            sheet.line((mark, y - 3), (mark, y + 25), colour="soft", width=2)
            end = left + max(predicted, measured, floor) * scale
            sheet.text(end + 8, y + 11, written[n], bold=True)
        sheet.note(18, sheet.bottom + 18, f"grey mark: the floor, {digits(floor)} ms")

    said = "; ".join(
        f"{told(name)}: predicted {digits(p)}, measured {digits(m)}" for name, (p, m) in steps.items()
    )
    return Picture(draw, f"{told(title)}, milliseconds a step. {said}; floor {digits(floor)}.")
