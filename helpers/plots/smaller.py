"""The figure of notebook 23: what is left in a state."""

from __future__ import annotations

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import digits


def fading(g: float, tokens: int = 3) -> Picture:
    """Draw which share each query finds of each token.

    Args:
        g: the share that one step leaves, between 0 and 1.
        tokens: that came in, 1 to 3.
    """
    powers = ("1", "g", "g²")
    heads = [f"token {n}" for n in range(1, tokens + 1)]
    rows = [f"query {n}" for n in range(1, tokens + 1)]
    ages = [[*range(n, -1, -1)] for n in range(tokens)]

    def draw(sheet: Sheet) -> None:
        left, wide = (80.0, 62.0) if sheet.narrow else (126.0, 112.0)
        sheet.heading(f"what is left, with g = {digits(g, 2)}")
        for column, head in enumerate(heads):
            x = left + wide * column + wide / 2 - 3
            for line, word in enumerate(head.split()):
                sheet.note(x, 50 + 16 * line, word, at="center", colour="ink")
        for row, (name, own) in enumerate(zip(rows, ages, strict=True)):
            y = 80.0 + 50 * row
            sheet.note(left - 8, y + 22, name, at="right", colour="ink")
            for column in range(len(heads)):
                x = left + wide * column
                if column >= len(own):
                    sheet.box(x, y, wide - 6, 44, edge="line", dashed=True)
                    sheet.note(x + wide / 2 - 3, y + 22, "0", at="center")
                    continue
                sheet.box(x, y, wide - 6, 44, fill="value fill", edge="value")
                sheet.text(x + wide / 2 - 3, y + 14, powers[own[column]], at="center", bold=True)
                sheet.note(x + wide / 2 - 3, y + 32, digits(g ** own[column], 2), at="center", colour="ink")

    output = (
        f"{row}: {', '.join(f'{powers[n]} of {head}' for n, head in zip(own, heads, strict=False))}"
        for row, own in zip(rows, ages, strict=True)
    )
    return Picture(draw, f"What is left, with g = {digits(g, 2)}. {'; '.join(output)}.")
