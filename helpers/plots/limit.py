"""Figures of what a machine can do at most: the staircase, a sweep of users, a step over its lower bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet, apart
from helpers.drawing.words import SMALL, digits, plain, shorten, text_width
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
    dots = [*zip(users, measured, strict=True)]
    ms = [*measured, *(y for line in lines.values() for _, y in line)]

    def draw(sheet: Sheet) -> None:
        top, right = 44.0 + 22 * len(lines) * sheet.narrow, sheet.width - (20 if sheet.narrow else 150)
        sheet.heading("ms, one step of all users")
        axes = sheet.plot(66, top, right, top + 270, "users at once")
        log_axes(axes.xaxis, base=2)
        log_axes(axes.yaxis)
        axes.set(xlim=(users[0] / 1.3, users[-1] * 1.3), ylim=(min(ms) / 2, max(ms) * 2))
        ends = [sheet.at(axes, *line[-1]) for line in lines.values()]
        heights = apart([y for _, y in ends], 20, 40, 400)
        for k, ((name, points), (x, _)) in enumerate(zip(lines.items(), ends, strict=True)):
            dashes = ("-", (0, (5, 2.5)))[k]
            axes.plot(*zip(*points, strict=True), color="ink", lw=1.6, ls=dashes)
            if sheet.narrow:
                sheet.line((18, 46 + 22 * k), (46, 46 + 22 * k), width=1.6, dashes=dashes)
            place = (56.0, 46.0 + 22 * k) if sheet.narrow else (x + 22, heights[k])
            sheet.note(place[0], place[1], name, colour="ink")
        for x, y in dots:
            axes.plot([x], [y], "o", color="query", ms=8)
        _name_dots(sheet, [(digits(y, 2), sheet.at(axes, x, y)) for x, y in dots], 66, right)

    alt = "; ".join(f"{n:,} at once {digits(y)} at {digits(n)}" for n, y in dots)
    drawn = "; ".join(
        f"{name} from {digits(a)} at {digits(first)} to {digits(b)} at {digits(last)}"
        for name, ((first, a), (last, b)) in lines.items()
    )
    return Picture(draw, f"ms, one step of all users, against users at once. Dots: {alt}. Lines: {drawn}.")


def _name_dots(sheet: Sheet, places: Sequence[tuple[str, Point]], left: float, right: float) -> None:
    """Write each name beside its dot, above or below it: where it covers no dot and no other name."""
    taken = [(x - 6, x + 6, y) for _, (x, y) in places]
    for name, (x, y) in places:
        wide = text_width(name, SMALL)
        middle = min(max(x - wide / 2, left + 4), right - wide)
        beside, ways = [(x + 12, y + 3), (x - 12 - wide, y + 3)], (18, -17, 37, 56)
        spots = [(middle, y - 17), *beside, *((middle, y + down) for down in ways)]
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

    sentence = "; ".join(
        f"{plain(name)}: "
        + "".join(f"{_in_words(part, *parts[part])}, " for part in parts)
        + f"measured {digits(measured)}"
        for name, (parts, measured) in steps.items()
    )
    return Picture(draw, f"{plain(title)}, milliseconds. {sentence}.")


def _end(parts: Mapping[str, Point], measured: float) -> float:
    return max(measured, *(end for _, end in parts.values())) if parts else measured


def _lane(part: str, parts: Mapping[str, Point]) -> tuple[int, int]:
    """Return how far down in its bar a part lies, and how high it is: half of it beside another part."""
    start, end = parts.get(part, (0, 0))
    beside = [other for other, (a, b) in parts.items() if other == part or min(end, b) - max(start, a) > 1e-9]
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
