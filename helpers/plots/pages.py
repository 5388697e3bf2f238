"""Figures of a page pool: which request owns each page, and which of its slots are filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, counted, listed
from helpers.plots.batches import FILLS

SIDE = 4  # number of slots in a line of a page


def pages(
    lengths: Mapping[str, int], tables: Mapping[str, Sequence[int]], n_pages: int, size: int
) -> Picture:
    """Draw each page of a pool with one square per slot: filled by a request, empty, or in a free page.

    Args:
        lengths: maps each request's letter to its number of KV entries.
        tables: maps each request's letter to its block table: page numbers, from 0.
        n_pages: the number of pages in the pool.
        size: the number of slots in a page, a multiple of 4, up to 16.
    """
    rows_in: dict[int, tuple[str, int]] = {}  # for each page, its request and the number of filled slots
    for name, table in tables.items():
        for n, page in enumerate(table):
            rows_in[page] = name, min(size, lengths[name] - n * size)
    blank = sum(size - rows for _, rows in rows_in.values())
    colours = {name: FILLS[n % len(FILLS)] for n, name in enumerate(tables)}

    def draw(sheet: Sheet) -> None:
        y = 22.0
        for name, table in tables.items():
            sheet.square(26, y, 14, colours[name])
            sheet.text(42, y, f"{name}: {counted(lengths[name], 'token')}", bold=True)
            sheet.note(165, y, f"table: {' '.join(map(str, table))}", colour="ink")
            y += 27
        line = 4 if sheet.narrow else 6
        wide = (sheet.width - 22) / line
        cell = min(20.0, (wide - 14) / SIDE)
        high = cell * size / SIDE + 40
        for page in range(n_pages):
            name, filled = rows_in.get(page, ("", 0))
            x, top = 18 + wide * (page % line), y + 14 + high * (page // line)
            sheet.text(x, top + 4, str(page), size=SMALL, bold=bool(name), colour="ink" if name else "soft")
            colour = colours.get(name, "faint")
            for row in range(size):
                left, down = x + cell * (row % SIDE), top + 16 + cell * (row // SIDE)
                fill = colour if row < filled else "none"
                sheet.box(left, down, cell - 2, cell - 2, fill=fill, edge=colour, radius=2)
        below = y + 14 + high * -(-n_pages // line)
        taken = f"{counted(len(rows_in), 'page')} taken, {blank} of their rows blank"
        sheet.text(18, below, taken, bold=True)

    message = (
        f"{name}: {counted(lengths[name], 'token')} in pages {listed([*map(str, t)])}"
        for name, t in tables.items()
    )
    alt = f"{counted(n_pages, 'page')} of {size} rows. {'; '.join(message)}. {len(rows_in)} are taken, "
    return Picture(draw, f"{alt}{blank} of their rows are blank.")
