"""Figures of a cache: the rows it copies, what it changes by rounding, the bytes it takes."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.plots.axes import Frame, room_for, tenths
from helpers.plots.canvas import (
    INK,
    KEY,
    KEY_FILL,
    LARGE,
    LINE,
    SMALL,
    VALUE,
    VALUE_FILL,
    Picture,
    Sheet,
    counted,
    listed,
    shorten,
    text_width,
    told,
    with_settings,
)


@with_settings
def copied_rows(growing: Sequence[int], static: Sequence[int]) -> Picture:
    """Draw the rows that one layer writes in each decode step, with either cache.

    Args:
        growing: rows written in each step by the cache that grows, up to 120 steps.
        static: the same for the preallocated cache.

    Returns:
        Two bar charts on one scale, their totals above; dark is the new row, pale a row copied again.

    Raises:
        ValueError: the lists are of different lengths, too long, or empty.
    """
    both = {"growing": [int(n) for n in growing], "preallocated": [int(n) for n in static]}
    steps = len(both["growing"])
    if steps != len(both["preallocated"]) or not 1 <= steps <= 120 or min(map(min, both.values())) < 1:
        raise ValueError(
            f"{steps} and {len(both['preallocated'])} steps; expected the same number, from 1 to 120, "
            "and a row written in each"
        )
    most = 1.04 * max(map(max, both.values()))
    first, across = 22 + room_for(most), 314 - room_for(most)
    sheet = Sheet(700, 324)
    for left, (name, rows) in zip((first, first + 350), both.items(), strict=True):
        frame = Frame(left, left + across, 86, 264, 0, steps, most)
        sheet.text(left, 24, name, bold=True)
        sheet.text(left, 52, f"{sum(rows):,}", size=LARGE, bold=True)
        sheet.note(left + text_width(f"{sum(rows):,}", LARGE) * 1.16 + 8, 54, "rows written")
        _step_bars(sheet, frame, left, across, rows)
    sheet.square(first + 6, 305, 12, INK)
    sheet.note(first + 18, 305, "the new row")
    sheet.square(first + 130, 305, 12, LINE)
    sheet.note(first + 142, 305, "old rows, copied again")
    totals = {name: sum(rows) for name, rows in both.items()}
    alt = (
        f"Rows written in one layer over {counted(steps, 'decode step')}. The growing cache writes "
        f"{both['growing'][0]} in the first and {both['growing'][-1]} in the last, {totals['growing']:,} in "
        f"all; the preallocated one {both['preallocated'][0]} and {both['preallocated'][-1]}, "
        f"{totals['preallocated']:,} in all."
    )
    return Picture(sheet.figure, alt, {**both, "totals": totals})


def _step_bars(sheet: Sheet, frame: Frame, left: float, across: float, rows: Sequence[int]) -> None:
    """A bar for each step, the new row dark at its foot, and the axis of steps under them."""
    frame.draw(sheet, [])
    wide = across / len(rows)
    for n, row in enumerate(rows):
        x, gap = left + wide * n, min(2.0, wide / 4)
        top, new = frame.y(row), frame.y(1)
        if row > 1:
            sheet.box(x, top, wide - gap, new - top, fill=LINE, radius=0)
        sheet.box(x, new, wide - gap, frame.base - new, fill=INK, radius=0)
    sheet.note(left, 281, "1")
    if len(rows) > 1:
        sheet.note(left + across, 281, str(len(rows)), at="right")
    sheet.note(left + across / 2, 281, "decode step", at="center")


@with_settings
def cache_bytes(models: Sequence[tuple[str, int]], context: int) -> Picture:
    """Draw the cache of each model at so many tokens, in GiB (2^30 bytes).

    Args:
        models: (name, bytes a token), up to 12.
        context: tokens, at least 1.

    Returns:
        Bars on a linear scale, half of each K and half V.

    Raises:
        ValueError: there is nothing to draw, or too much, or a number is not positive.
    """
    if not 1 <= len(models) <= 12 or context < 1 or min(n for _, n in models) < 1:
        raise ValueError(
            f"{len(models)} models at {context} tokens; expected 1 to 12, and sizes of 1 or more"
        )
    gib = {name: n * context / 2**30 for name, n in models}
    most, left, top, row = max(gib.values()), 150.0, 52.0, 36.0
    said = {
        name: (f"{tenths(gib[name])} GiB", f"{tenths(size / 1024).removesuffix('.0')} KiB a token")
        for name, size in models
    }
    longest = 656 - left - max(text_width(a) * 1.16 + text_width(b, SMALL) for a, b in said.values())
    sheet = Sheet(700, top + row * len(gib) + 12)
    sheet.text(18, 24, f"cache at {context:,} tokens", bold=True)
    for n, name in enumerate(gib):
        y, wide = top + row * n, max(1.0, longest * gib[name] / most)
        sheet.text(left - 10, y + 11, shorten(name, left - 24, SMALL), at="right", size=SMALL)
        sheet.box(left, y, wide, 11, fill=KEY_FILL, edge=KEY, radius=0)
        sheet.box(left, y + 11, wide, 11, fill=VALUE_FILL, edge=VALUE, radius=0)
        total, each = said[name]
        sheet.text(left + wide + 8, y + 11, total, bold=True)
        sheet.note(left + wide + 18 + text_width(total) * 1.16, y + 11, each)  # 1.16: it is bold
    told_of = listed([f"{told(name)} {tenths(x)}" for name, x in gib.items()])
    alt = f"GiB of cache at {context:,} tokens, half of it K and half V: {told_of}."
    return Picture(sheet.figure, alt, {name: round(x, 2) for name, x in gib.items()})
