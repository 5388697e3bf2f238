"""A figure of a card's memory, a square for each GiB."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import listed, need, text_width
from helpers.plots.batches import FILLS


def squares(parts: Mapping[str, int]) -> Picture:
    """Draw a card as squares, one for each GiB, in the colour of what takes it.

    Args:
        parts: whole GiB, by what takes them, in the order of the squares; at most four.
    """
    need(len(parts) <= len(FILLS), f"{len(parts)} parts came in; expected at most {len(FILLS)}")
    taken = [colour for n, colour in zip(parts.values(), FILLS, strict=False) for _ in range(n)]

    def draw(sheet: Sheet) -> None:
        x, y, line = 18.0, 18.0, 10 if sheet.narrow else 20
        for (name, n), colour in zip(parts.items(), FILLS, strict=False):
            message = f"{n}: {name}"
            if sheet.narrow and x > 18:
                x, y = 18, y + 25
            sheet.square(x + 7, y, 14, colour)
            sheet.text(x + 22, y, message)
            x += 52 + text_width(message)
        side = (sheet.width - 36) / line
        for n, colour in enumerate(taken):
            left, top = 18 + n % line * side, y + 24 + n // line * side
            sheet.box(left, top, side - 3, side - 3, fill=colour, radius=2)

    sentence = listed([f"{n} of them {name}" for name, n in parts.items()])
    return Picture(draw, f"{len(taken)} squares of 1 GiB: {sentence}.")
