"""A figure of a page pool: which request owns each page, and which slots of the page are filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, join_words, pluralize
from helpers.plots.batches import FILLS

SIDE = 4  # number of slots in each line of a page


def page_pool(
    n_entries: Mapping[str, int], block_tables: Mapping[str, Sequence[int]], n_pages: int, page_size: int
) -> Picture:
    """Draw the pages of a pool, with one square per slot.

    A filled slot has the colour of its request. The empty slots of a request's last page are outlined in that
    colour, and the slots of a free page in a neutral one.

    Args:
        n_entries: maps each request's letter to its number of KV entries.
        block_tables: maps each request's letter to its block table: the indices of its pages, from 0.
        n_pages: the number of pages in the pool.
        page_size: the number of slots per page, a multiple of 4, up to 16.
    """
    filled_in: dict[int, tuple[str, int]] = {}  # by page: its request, number of filled slots
    for name, table in block_tables.items():
        for n, page in enumerate(table):
            filled_in[page] = name, min(page_size, n_entries[name] - n * page_size)
    blank = sum(page_size - n for _, n in filled_in.values())
    colours = {name: FILLS[n % len(FILLS)] for n, name in enumerate(block_tables)}

    def draw(sheet: Sheet) -> None:
        y = 22.0
        for name, table in block_tables.items():
            sheet.square(26, y, 14, colours[name])
            sheet.text(42, y, f"{name}: {pluralize(n_entries[name], 'token')}", bold=True)
            sheet.note(165, y, f"table: {' '.join(map(str, table))}", colour="ink")
            y += 27
        line, wide = 6, (sheet.width - 22) / 6
        cell = min(20.0, (wide - 14) / SIDE)
        high = cell * page_size / SIDE + 40
        for page in range(n_pages):
            name, filled = filled_in.get(page, ("", 0))
            x, top = 18 + wide * (page % line), y + 14 + high * (page // line)
            sheet.text(x, top + 4, str(page), size=SMALL, bold=bool(name), colour="ink" if name else "soft")
            colour = colours.get(name, "faint")
            for place in range(page_size):
                left, down = x + cell * (place % SIDE), top + 16 + cell * (place // SIDE)
                fill = colour if place < filled else "none"
                sheet.box(left, down, cell - 2, cell - 2, fill=fill, edge=colour, radius=2)
        below = y + 14 + high * -(-n_pages // line)
        taken = f"{pluralize(len(filled_in), 'page')} taken, {blank} places in them empty"
        sheet.text(18, below, taken, bold=True)

    message = (
        f"{name}: {pluralize(n_entries[name], 'token')} in pages {join_words([*map(str, t)])}"
        for name, t in block_tables.items()
    )
    alt = f"{pluralize(n_pages, 'page')} of {page_size} places. {'; '.join(message)}. "
    return Picture(draw, f"{alt}{len(filled_in)} are taken, {blank} of their places are empty.")
