"""Figures of a cache: the rows it copies, the rows that go stale, the bytes it takes."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.plots.canvas import Picture, Sheet
from helpers.plots.words import LARGE, SMALL, counted, listed, need, shorten, tenths, text_width, told


def copied_rows(growing: Sequence[int], static: Sequence[int]) -> Picture:
    """Draw the rows that one layer writes in each decode step, with either cache.

    Args:
        growing: rows written in each step by the cache that grows.
        static: the same for the preallocated cache.

    Returns:
        Two bar charts on one scale, their totals above; dark is the new row, pale a row copied again.
    """
    both = {"growing": list(growing), "preallocated": list(static)}
    most = max(map(max, both.values()))

    def draw(sheet: Sheet) -> None:
        for n, (name, rows) in enumerate(both.items()):
            x, y = (0.0, 290.0 * n) if sheet.narrow else (350.0 * n, 0.0)
            _step_bars(sheet, x, y, name, rows, most)
        x, y = 24.0, sheet.bottom + 20
        for text, fill in (("the new row", "ink"), ("old rows, copied again", "line")):
            sheet.square(x, y, 12, fill)
            sheet.note(x + 12, y, text)
            x += 30 + text_width(text, SMALL)

    totals = {name: sum(rows) for name, rows in both.items()}
    alt = (
        f"Rows written in one layer over {counted(len(growing), 'decode step')}. The growing cache writes "
        f"{growing[0]} in the first and {growing[-1]} in the last, {totals['growing']:,} in "
        f"all; the preallocated one {static[0]} and {static[-1]}, "
        f"{totals['preallocated']:,} in all."
    )
    return Picture(draw, alt, {**both, "totals": totals})


def _step_bars(sheet: Sheet, x: float, y: float, name: str, rows: list[int], most: int) -> None:
    """A bar for each step, the new row dark at its foot, the total above."""
    total = f"{sum(rows):,}"
    sheet.text(x + 18, y + 20, name, bold=True)
    sheet.text(x + 18, y + 48, total, size=LARGE, bold=True)
    sheet.note(x + 26 + text_width(total, LARGE, bold=True), y + 50, "rows written")
    axes = sheet.plot(x + 58, y + 78, x + 326, y + 236)
    axes.set(xlim=(0.5, len(rows) + 0.5), ylim=(0, 1.04 * most))
    edges = [n + 0.5 for n in range(len(rows) + 1)]
    axes.stairs(rows, edges, fill=True, color="line", lw=0)
    axes.stairs([1] * len(rows), edges, fill=True, color="ink", lw=0)
    sheet.note(x + 326, y + 276, "decode step", at="right")


def stale_rows(n: int, j: int) -> Picture:
    """Draw which rows of V a changed token makes stale in two layers, and which may be kept.

    Args:
        n: tokens, 2 to 8.
        j: the token that changes, from 1 to n.

    Returns:
        A band for each layer, a cell for each token's row: in the first layer row j is stale, in the second
        all rows from j on. A bracket holds the rows that may be kept in both.

    Raises:
        ValueError: a number is out of its range.
    """
    need(2 <= n <= 8 and 1 <= j <= n, f"n={n}, j={j}; expected 2 to 8 tokens, and j among them")
    stale = {1: [j], 2: list(range(j, n + 1))}
    kept = f"{_rows_named(range(1, j))} may be kept"

    def draw(sheet: Sheet) -> None:
        left, right = 66.0, sheet.width - 14.0
        cell = min(96.0, (right - left) / n)
        sheet.note(left - 8, 42, "token", at="right")
        sheet.note(left + cell * (j - 0.5), 16, "changed", at="center", colour="query", bold=True)
        for token in range(1, n + 1):
            x, edge = left + cell * (token - 0.5), "query" if token == j else "line"
            sheet.chip(x, 42, str(token), width=min(cell - 4, 40), fill="panel", edge=edge)
        y = 76.0
        for layer, rows in stale.items():
            sources = "its own token alone" if layer == 1 else "all tokens up to its own"
            sheet.note(18, y, f"a row comes from {sources}")
            sheet.note(left - 8, y + 30, f"layer {layer}", at="right", colour="ink", bold=True)
            for token in range(1, n + 1):
                _row_of_v(sheet, left + cell * (token - 1) + 2, y + 14, cell - 4, token in rows)
            y += 70
        _bracket(sheet, left, left + cell * (j - 1), y - 10, kept)

    told_of = [f"layer {layer} {_rows_named(rows)}" for layer, rows in stale.items()]
    alt = f"Rows of V for {n} tokens. When token {j} changes, these are stale: {'; '.join(told_of)}. "
    return Picture(draw, f"{alt}{kept.capitalize()}.", {"stale": stale, "kept": j - 1})


def _row_of_v(sheet: Sheet, x: float, y: float, width: float, stale: bool) -> None:
    if not stale:
        sheet.box(x, y, width, 32, fill="value fill", edge="value")
        return sheet.text(x + width / 2, y + 16, "V", at="center", bold=True)
    sheet.box(x, y, width, 32, edge="soft", dashed=True)
    sheet.text(x + width / 2, y + 16, "stale" if width > 42 else "×", at="center", size=SMALL)


def _bracket(sheet: Sheet, x: float, to: float, y: float, kept: str) -> None:
    """Hold the columns that may be kept, and say so; one sentence where there are none."""
    if to > x:
        sheet.line((x + 3, y - 6), (x + 3, y), (to - 3, y), (to - 3, y - 6), colour="ink", width=1.6)
    sheet.text(x + 2, y + 18, kept, bold=True)


def _rows_named(rows: Sequence[int]) -> str:
    if not rows:
        return "no row"
    return f"row {rows[0]}" if len(rows) == 1 else f"rows {rows[0]} to {rows[-1]}"


def cache_bytes(models: Sequence[tuple[str, int]], context: int) -> Picture:
    """Draw the cache of each model at so many tokens, in GiB (2^30 bytes).

    Args:
        models: (name, bytes a token).
        context: tokens.

    Returns:
        Bars on a linear scale, half of each K and half V.
    """
    gib = {name: n * context / 2**30 for name, n in models}
    totals = [f"{tenths(x)} GiB" for x in gib.values()]
    each = [f"{tenths(size / 1024).removesuffix('.0')} KiB a token" for _, size in models]

    def draw(sheet: Sheet) -> None:
        left, row = (18.0, 54.0) if sheet.narrow else (150.0, 34.0)
        room = max(text_width(total, bold=True) for total in totals) + 8
        if not sheet.narrow:
            room += max(text_width(one, SMALL) for one in each) + 12
        sheet.text(18, 20, f"cache at {context:,} tokens", bold=True)
        for n, (name, x) in enumerate(gib.items()):
            y, wide = 44.0 + row * n, max(1.0, (sheet.width - 14 - left - room) * x / max(gib.values()))
            if sheet.narrow:
                end = (sheet.width - 14.0, y + 10.0, "right")
                sheet.note(left, y + 10, shorten(name, 180, SMALL), colour="ink")
                y += 22
            else:
                sheet.note(left - 10, y + 11, shorten(name, left - 24, SMALL), at="right", colour="ink")
                end = (left + wide + 20 + text_width(totals[n], bold=True), y + 11, "left")
            sheet.note(end[0], end[1], each[n], at=end[2])
            sheet.box(left, y, wide, 11, fill="key fill", edge="key", radius=0)
            sheet.box(left, y + 11, wide, 11, fill="value fill", edge="value", radius=0)
            sheet.text(left + wide + 8, y + 11, totals[n], bold=True)

    told_of = listed([f"{told(name)} {tenths(x)}" for name, x in gib.items()])
    alt = f"GiB of cache at {context:,} tokens, half of it K and half V: {told_of}."
    return Picture(draw, alt, {name: round(x, 2) for name, x in gib.items()})
