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


def time_by_users(
    users: Sequence[int], measured: Sequence[float], memory: float, arithmetic: float
) -> Picture:
    """Draw the time of a step against the users in it, measured, over the two lines that bound it.

    Args:
        users: of each step, growing.
        measured: milliseconds of each.
        memory: milliseconds to read the weights once, the same for any number of users.
        arithmetic: milliseconds of the operations of one user's token.
    """
    ends = users[0], users[-1]
    lines = {
        "read the weights": [(n, memory) for n in ends],
        "do the arithmetic": [(n, arithmetic * n) for n in ends],
    }
    dots = {f"{n:,} at once": (n, y) for n, y in zip(users, measured, strict=True)}
    written = {name: digits(y, 2) for name, (_, y) in dots.items()}
    return _log_log("ms, one step of all users", "users at once", lines, dots, written, base=2)


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
        "the road": [(low, low * bytes_per_second / 1e9), (ridge, peak)],
        "the bench": [(ridge, peak), (high, peak)],
    }
    scaled = {name: (x, y / 1e9) for name, (x, y) in dots.items()}
    return _log_log(
        f"GFLOP/s: {title}", "operations a byte", lines, scaled, dict(zip(dots, dots, strict=True))
    )


def _log_log(
    title: str,
    across: str,
    lines: Mapping[str, Sequence[Point]],
    dots: Mapping[str, Point],
    written: Mapping[str, str],
    base: int = 10,
) -> Picture:
    """Draw named lines, and dots with what is written beside each, on logarithmic axes.

    Args:
        written: by the names of the dots.
        base: of the numbers across; of 2, what is written stands above the dots.
    """
    every = [*dots.values(), *(point for line in lines.values() for point in line)]
    (left_x, right_x), (low, high) = ((min(axis), max(axis)) for axis in zip(*every, strict=True))

    def draw(sheet: Sheet) -> None:
        top, right = 44.0 + 22 * len(lines) * sheet.narrow, sheet.width - (20 if sheet.narrow else 150)
        sheet.heading(title)
        axes = sheet.plot(66, top, right, top + 270, across)
        log_axes(axes.xaxis, base=base)
        log_axes(axes.yaxis)
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
        places = [(words, sheet.at(axes, *dots[name])) for name, words in written.items()]
        _name_dots(sheet, places, 66, right, above=base == 2)

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


def _name_dots(
    sheet: Sheet, places: Sequence[tuple[str, Point]], left: float, right: float, above: bool
) -> None:
    """Write each name beside its dot, below or above it: where it covers no dot and no other name."""
    taken = [(x - 6, x + 6, y) for _, (x, y) in places]
    for name, (x, y) in places:
        wide = text_width(name, SMALL)
        middle = min(max(x - wide / 2, left + 4), right - wide)
        beside, ways = [(x + 12, y + 3), (x - 12 - wide, y + 3)], (18, -17, 37, 56)
        spots = [(middle, y - 17)] * above + beside + [(middle, y + down) for down in ways]
        free = [
            (start, height)
            for start, height in spots
            if left <= start <= right - wide
            and all(start + wide < a or b < start or abs(height - c) > 12 for a, b, c in taken)
        ]
        start, height = (free or spots)[0]
        taken.append((start, start + wide, height))
        sheet.note(start, height, name, colour="query")


def waterfall(steps: Mapping[str, tuple[Mapping[str, Point], float]], title: str) -> Picture:
    """Draw how long steps take, a bar each, made of what is known of it, part by part.

    Args:
        steps: by name, in order: its parts, or none, each from one millisecond to another; and how many were
            measured. Parts at the same time share the bar; "rest" is grey, up to 4 have other names.
        title: of what.
    """
    most = max(_end(parts, measured) for parts, measured in steps.values())
    names = [*dict.fromkeys(name for parts, _ in steps.values() for name in parts)]
    colours = dict(zip(names, ("generated", "key", "value", "query", "soft"), strict=False))
    colours |= {name: "soft" for name in names if name == "rest"}

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
                wide = (end - start) * scale
                sheet.box(
                    left + start * scale, y + down, wide, high, fill=colours.get(part, "query"), radius=0
                )
            ms = f"{digits(measured)} ms"
            sheet.text(left + _end(parts, measured) * scale + 8, y + 12, ms, bold=True)

    said = "; ".join(
        f"{told(name)}: "
        + "".join(f"{_in_words(part, *parts[part])}, " for part in parts)
        + f"measured {digits(measured)}"
        for name, (parts, measured) in steps.items()
    )
    return Picture(draw, f"{told(title)}, milliseconds. {said}.")


def _end(parts: Mapping[str, Point], measured: float) -> float:
    return max(measured, *(end for _, end in parts.values())) if parts else measured


def _lane(part: str, parts: Mapping[str, Point]) -> tuple[int, int]:
    """Return how far down in its bar a part lies, and how high it is: half of it beside another part."""
    start, end = parts.get(part, (0, 0))
    beside = [other for other, (a, b) in parts.items() if other == part or (a < end and start < b)]
    return (12 * beside.index(part), 12) if len(beside) > 1 else (0, 24)


def _legend(sheet: Sheet, colours: Mapping[str, str]) -> float:
    """Name the colours; return their end."""
    x, y = 18.0, 44.0
    for name, colour in colours.items():
        if x + 20 + text_width(name, SMALL) > sheet.width - 8:
            x, y = 18.0, y + 20
        sheet.square(x + 6, y, 12, colour)
        sheet.note(x + 18, y, name)
        x += 36 + text_width(name, SMALL)
    return y + 24


def _in_words(part: str, start: float, end: float) -> str:
    return f"{part} {digits(start)} to {digits(end)}"
