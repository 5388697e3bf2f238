"""A figure of several caches side by side: whose rows they hold, and where a pass puts its tokens."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, need, shorten
from helpers.recording.mistakes import Stored

BOX = 65.0  # px, on a wide sheet
RUN = 22 + 5 * (BOX + 4)  # where the new tokens begin there


def caches(lines: Mapping[str, Stored]) -> Picture:
    """Draw what each cache holds, filled, before the tokens that run; heavy where it is not as in the first.

    Args:
        lines: by their names; the first is the right one.

    Raises:
        ValueError: there is none.
    """
    need(len(lines) > 0, "there are no caches; expected at least one, the right one first")
    right = next(iter(lines.values()))

    def draw(sheet: Sheet) -> None:
        y = 18.0
        if not sheet.narrow:
            sheet.note(8, y, "rows stored")
            sheet.note(RUN, y, "run in one pass")
            sheet.note(RUN + 3 * (BOX + 4), y, "next word")
            y += 32
        for name, line in lines.items():
            sheet.note(8, y, shorten(name, sheet.width - 16, SMALL), colour="ink")
            y = _line(sheet, line, right, y + 16 + 8 * line.ahead) + 70

    return Picture(draw, ". ".join(f"{name}: {line}" for name, line in lines.items()) + ".")


def _line(sheet: Sheet, line: Stored, right: Stored, y: float) -> float:
    """One cache: a box a row, its position below; on a narrow sheet the new tokens come under the rows."""
    wide = 62.0 if sheet.narrow else BOX
    step, x = wide + 4, 8.0
    for n, word in enumerate(line.words):
        wrong = [word] != [*right.words[n : n + 1]]
        _box(sheet, x, y, wide, (word, n + 1), ("value", "value fill"), wrong)
        x += step
    if sheet.narrow:
        x, y = 8.0, y + 54 + 8 * line.ahead
    else:
        x = RUN
    if line.ahead:
        sheet.arrow(x + wide / 2, y - 7, x + step * len(line.new) - wide / 2, y - 7, "ink")
    for word, at, wanted in zip(line.new, line.positions, right.positions, strict=True):
        _box(sheet, x, y, wide, (word, at), ("query", "none"), at != wanted)
        x += step
    sheet.arrow(x, y + 13, x + 22, y + 13, "soft")
    sheet.text(x + 28, y + 13, line.says, bold=line.says != right.says)
    return y


def _box(
    sheet: Sheet,
    x: float,
    y: float,
    wide: float,
    message: tuple[str, int],
    colours: tuple[str, str],
    wrong: bool,
) -> None:
    (word, at), (edge, fill) = message, colours
    edge, heavy = ("ink", 2.2) if wrong else (edge, 1.0)
    sheet.box(x, y, wide, 26, fill=fill, edge=edge, line=heavy)
    sheet.text(x + wide / 2, y + 13, shorten(word, wide - 4, SMALL), at="center", size=SMALL)
    sheet.note(x + wide / 2, y + 36, str(at), at="center")
