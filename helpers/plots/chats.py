"""A figure of a chat: two turns as strips, what the second uses again of the first, and what it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, text_width

Parts = Sequence[tuple[str, int]]  # names, and tokens of each
HIGH, GAP = 26, 6  # px of a strip, and between two


def two_turns(
    chats: Mapping[str, tuple[Parts, Parts, int, int]], notes: Mapping[str, str] | None = None
) -> Picture:
    """Draw for each chat the text of one turn over that of the next, and where they begin to differ.

    Widths are not to scale: a part is as wide as its name and the root of its tokens say.

    Args:
        chats: by name, the parts of both texts, the tokens they begin alike with, and those used again.
        notes: what is written under a chat.
    """
    strips = [strip for before, now, *_ in chats.values() for strip in (before, now)]

    def draw(sheet: Sheet) -> None:
        left, turn = (34.0, "") if sheet.narrow else (70.0, "turn ")
        names = max(_width(strip, 0) for strip in strips)
        unit = (sheet.width - left - 18 - names) / max(
            _width(strip, 1) - _width(strip, 0) for strip in strips
        )
        for x, colour, name in ((18, "value", "used again"), (134, "query", "run")):
            sheet.box(x, 13, 14, 14, fill=f"{colour} fill", edge=colour, radius=2)
            sheet.note(x + 20, 20, name)
        sheet.line((206, 12), (206, 28), width=3)
        sheet.note(216, 20, "texts differ")
        y = 38.0
        for chat, (before, now, alike, found) in chats.items():
            sheet.text(18, y + 14, chat, bold=True)
            y += 30
            mark = left + _width(now, unit, alike)
            sheet.line((mark, y - 6), (mark, y + 2 * HIGH + GAP + 6), width=3)
            for number, strip in enumerate((before, now), 1):
                sheet.note(left - 8, y + HIGH / 2, f"{turn}{number}", at="right")
                if number == 2:
                    end, again = left + _width(now, unit), left + _width(now, unit, found)
                    sheet.box(left, y, again - left, HIGH, fill="value fill", radius=0)
                    sheet.box(again, y, end - again, HIGH, fill="query fill", radius=0)
                _names(sheet, strip, left, y, unit, fill="paper" if number == 1 else "none")
                y += HIGH + GAP
            if notes and chat in notes:
                sheet.note(18, y + 12, notes[chat], colour="ink")
                y += 18
            y += 10

    return Picture(draw, " ".join(_told(name, *pair) for name, pair in chats.items()))


def _width(strip: Parts, unit: float, tokens: float = float("inf")) -> float:
    """Px of the first tokens of a strip."""
    wide = 0.0
    for name, n in strip:
        wide += (text_width(name, SMALL) + 4 + unit * n**0.5) * max(0, min(tokens, n)) / n
        tokens -= n
    return wide


def _names(sheet: Sheet, strip: Parts, x: float, y: float, unit: float, fill: str) -> None:
    """The parts of a strip as boxes with their names."""
    for part in strip:
        wide = _width([part], unit)
        sheet.box(x, y, wide, HIGH, fill=fill, edge="soft", radius=0)
        sheet.text(x + wide / 2, y + HIGH / 2, part[0], at="center", size=SMALL)
        x += wide


def _told(chat: str, before: Parts, now: Parts, alike: int, found: int) -> str:
    """One chat of the figure in words."""
    first, second = (", ".join(name for name, _ in strip) for strip in (before, now))
    return f"{chat}: {first}, then {second}. The first {alike:,} tokens are alike; {found:,} are used again."
