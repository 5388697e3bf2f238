"""The figure of notebooks 06 to 08: how much each part of a model adds to the logit of a name.

The parts are the embedding, and each layer's attention and MLP.
"""

from __future__ import annotations

from collections.abc import Mapping

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, printable, shorten, text_width

PredictionAndContributions = tuple[str, Mapping[str, float]]
TITLE = "what each part adds to the logit of"
ROW = 22.0  # px from one bar to the next
SHOWN = 0.05  # a smaller value is written as 0.0 and has no bar


def logit_contributions(name: str, models: Mapping[str, PredictionAndContributions]) -> Picture:
    """Draw how much each part of a model adds to the logit of a name.

    A contribution is relative to the mean contribution to the logits of the other names.

    Args:
        name: the name to whose logit the parts contribute.
        models: maps the title of each model, one to four, to a pair: (predicted word, contribution of each
            part by the part's name). All models have the same parts, in the same order.
    """
    parts = list(next(iter(models.values()))[1])
    values = [value for _, adds in models.values() for value in adds.values()]
    low, high = min(0.0, *values), max(1.0, *values)

    def draw(sheet: Sheet) -> None:
        a_line, left = 3 if len(models) == 3 else min(2, len(models)), 92.0
        pitch = (sheet.width - left) / a_line
        unit = (pitch - 62) / (high - low)  # px for a logit of 1; 62 for the number
        sheet.note(18, 20, TITLE)
        after = 24 + text_width(TITLE, SMALL)
        sheet.note(after, 20, shorten(name, 78, SMALL, bold=True), colour="generated", bold=True)
        sheet.note(18, 39, "over the mean of the other names")
        for n, (title, (says, adds)) in enumerate(models.items()):
            x, y = left + pitch * (n % a_line), 72 + (ROW * len(parts) + 100) * (n // a_line)
            sheet.note(x, y, shorten(title, pitch - 6, SMALL, bold=True), colour="ink", bold=True)
            sheet.note(x, y + 20, shorten(f"says {says}", pitch - 6, SMALL), colour="generated")
            zero, y = x - unit * low, y + 46
            for part, value in adds.items():
                if n % a_line == 0:
                    sheet.note(left - 8, y, part, at="right", colour="ink")
                fill = "query" if part.startswith("attention") else "ink"  # as in every figure
                start, wide = zero + unit * min(0.0, value), unit * abs(value)
                if abs(value) >= SHOWN:
                    sheet.box(start, y - 7, wide, 14, fill=fill, radius=0)
                sheet.note(zero + unit * max(0.0, value) + 6, y, format_signed(value), colour="ink")
                y += ROW
            sheet.line((zero, y - ROW * len(parts) - 11), (zero, y - 11), colour="line")
            sheet.line((x, y - 11), (x + pitch - 12, y - 11), colour="line")
            if n % a_line == 0:
                sheet.note(left - 8, y + 2, "together", at="right", colour="ink", bold=True)
            sheet.note(zero + 6, y + 2, format_signed(sum(adds.values())), colour="ink", bold=True)

    output = [
        f"{printable(title)}, says {printable(says)}: "
        f"{', '.join(f'{part} {format_signed(value)}' for part, value in adds.items())}, "
        f"together {format_signed(sum(adds.values()))}"
        for title, (says, adds) in models.items()
    ]
    title = f"{TITLE.capitalize()} {printable(name)} over the mean of the other names"
    return Picture(draw, f"{title}. {'. '.join(output)}.")


def format_signed(value: float) -> str:
    """Format a number with a sign and one decimal place: +10.5 or −0.1; 0.0 has no sign."""
    return f"{value:+.1f}".replace("-", "−") if abs(value) >= SHOWN else "0.0"
