"""A figure of a chat: two turns as strips, what the second uses again of the first, and what it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, text_width

Parts = Sequence[tuple[str, int]]  # names, and tokens of each
HIGH, GAP = 26, 6  # px of a strip, and between two
EDITED = ("clock", "sum")  # parts that a client adds


def two_turns(
    chats: Mapping[str, tuple[Parts, Parts, int]], number: int, notes: Mapping[str, str]
) -> Picture:
    """Draw for each chat the text of one turn over that of the next, to scale.

    Args:
        chats: by name, the parts of both texts, and the tokens of the second that are used again.
        number: of the second turn.
        notes: what is written under a chat.
    """
    strips = [strip for before, now, _ in chats.values() for strip in (before, now)]
    edited = any(name in EDITED for strip in strips for name, _ in strip)

    def draw(sheet: Sheet) -> None:
        left, turn = (34.0, "") if sheet.narrow else (70.0, "turn ")
        unit = (sheet.width - left - 18) / max(sum(n for _, n in strip) for strip in strips)
        for x, colour, name in ((18, "value", "used again"), (134, "query", "run")):
            sheet.box(x, 13, 14, 14, fill=f"{colour} fill", edge=colour, radius=2)
            sheet.note(x + 20, 20, name)
        if edited:
            sheet.box(206, 12, 4, 16, fill="ink", radius=0)
            sheet.note(218, 20, "clock, summary")
        y = 38.0
        for chat, (before, now, found) in chats.items():
            sheet.text(18, y + 14, chat, bold=True)
            y += 30
            for n, strip in ((number - 1, before), (number, now)):
                sheet.note(left - 8, y + HIGH / 2, f"{turn}{n}", at="right")
                if strip is now:
                    end, again = (left + unit * tokens for tokens in (sum(n for _, n in now), found))
                    sheet.box(left, y, again - left, HIGH, fill="value fill", radius=0)
                    sheet.box(again, y, end - again, HIGH, fill="query fill", radius=0)
                _parts(sheet, strip, left, y, unit)
                y += HIGH + GAP
            sheet.note(18, y + 12, notes[chat], colour="ink")
            y += 28

    message = (_told(name, number, *pair) for name, pair in chats.items())
    return Picture(draw, " ".join(message))


def _parts(sheet: Sheet, strip: Parts, x: float, y: float, unit: float) -> None:
    """The parts of a strip as boxes, with their names where there is room."""
    for name, n in strip:
        wide = unit * n
        if name in EDITED:
            sheet.box(x, y, max(wide, 3), HIGH, fill="ink", radius=0)
        else:
            sheet.box(x, y, wide, HIGH, edge="soft", radius=0)
            if text_width(name, SMALL) < wide:
                sheet.text(x + wide / 2, y + HIGH / 2, name, at="center", size=SMALL)
        x += wide


def _told(chat: str, number: int, before: Parts, now: Parts, found: int) -> str:
    """One chat of the figure in words."""
    first, second = (", ".join(name for name, _ in strip) for strip in (before, now))
    return f"{chat}, turn {number - 1}: {first}; turn {number}: {second}; {found:,} tokens are used again."
