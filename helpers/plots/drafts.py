"""Figures of speculation: what one pass makes of drafted words; two distributions laid over each other."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, counted, need, shorten, text_width, told
from helpers.sampling import accept

BAR, WIDEST = 24, 120  # px: height of a bar, width of a word's place at most


def judged(text: Sequence[str], drafted: Sequence[str], chosen: Sequence[str]) -> Picture:
    """Draw what one pass makes of drafted words: taken, struck out, or dropped behind that.

    Args:
        text: the last words so far.
        drafted: k words, up to 4.
        chosen: what the model chooses in the place of each, and after the last: k + 1 words.
    """
    need(len(drafted) <= 4, f"{len(drafted)} words were drafted; expected at most 4 to draw")
    said = accept(drafted, chosen)  # type: ignore[arg-type]
    a = len(said) - 1
    new = f"1 pass, {counted(len(said), 'new word')}"

    def draw(sheet: Sheet) -> None:
        step = min(WIDEST, (sheet.width - 36) / (len(drafted) + 1))
        sheet.note(18, 18, shorten(f"… {' '.join(text)}", sheet.width - 36, SMALL), colour="ink")
        for y, name, words in ((48, "guessed", drafted), (118, "the model, in one pass", chosen)):
            sheet.note(18, y, name)
            for n, word in enumerate(words):
                own = n == a and words is chosen
                fill, edge = ("key fill", "key") if n < a else ("generated fill", "generated")
                fill, edge = (fill, edge) if n < a or own else ("none", "line")
                x = 18 + step * n
                sheet.box(x, y + 14, step - 6, 30, fill=fill, edge=edge, line=2 if own else 1)
                shown = shorten(word, step - 12, SMALL, bold=own)
                middle = x + (step - 6) / 2
                sheet.note(middle, y + 29, shown, at="center", colour="ink" if n <= a else "soft", bold=own)
                if n == a and words is drafted:
                    reach = text_width(shown, SMALL) / 2 + 5
                    sheet.line((middle - reach, y + 29), (middle + reach, y + 29), width=1.6)
        sheet.text(18, 190, new, bold=True)

    struck = (
        f"{told(drafted[a])} is struck out and {told(chosen[a])} put in" if a < len(drafted) else "all taken"
    )
    alt = (
        f"Behind {' '.join(map(told, text))}. Guessed: {' '.join(map(told, drafted))}. "
        f"The model, in one pass: {' '.join(map(told, chosen))}. {a} taken; {struck}. {new}."
    )
    return Picture(draw, alt)


def laid_over(words: Sequence[str], p: Sequence[Fraction], q: Sequence[Fraction]) -> Picture:
    """Draw the chances of the model and of a draft over each other: what both give, and what is left over.

    Args:
        words: one for each chance.
        p: the model's chances.
        q: the draft's.
    """
    lines = [(word, a, b, min(a, b)) for word, a, b in zip(words, p, q, strict=True)]
    kinds = {"both give: taken": "key", "q over p: refused": "", "p over q: left over": "generated"}

    def draw(sheet: Sheet) -> None:
        y = 20.0
        for name, fill in kinds.items():
            part(sheet, 18, y - 6, 12, 12, fill)
            sheet.note(38, y, name, colour="ink")
            y += 22
        scale = (sheet.width - 36) / float(max(*p, *q)) * 0.94
        for word, mine, drafted, both in lines:
            y += 22
            sheet.text(18, y, word, bold=True)
            sheet.note(sheet.width - 18, y, f"p = {mine}, q = {drafted}", at="right")
            wide, rest = scale * float(both), scale * float(abs(mine - drafted))
            part(sheet, 18, y + 14, wide, BAR, "key")
            if rest:
                part(sheet, 18 + wide, y + 14, rest, BAR, "generated" if mine > drafted else "")
            y += BAR + 20

    told_lines = "; ".join(
        f"{told(word)}: p {mine}, q {drafted}, both give {both}"
        + (f", left over {mine - drafted}" if mine > drafted else "")
        + (f", refused {drafted - mine}" if mine < drafted else "")
        for word, mine, drafted, both in lines
    )
    return Picture(draw, f"{told_lines}. Both together give {sum((x[3] for x in lines), Fraction(0))}.")


def part(sheet: Sheet, x: float, y: float, wide: float, high: float, colour: str) -> None:
    """Draw a part of a bar in a colour's fill, or dashed where there is none."""
    fill, edge = (f"{colour} fill", colour) if colour else ("none", "ink")
    sheet.box(x, y, wide, high, fill=fill, edge=edge, line=1.4, radius=0, dashed=not colour)
