"""Figures of what a pass runs: the tokens of several texts, padding among them, and who may look at whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, counted, digits, need, text_width

FILLS = ("query", "key", "value", "generated")  # of the first texts, the second, …
MOST = 14  # squares in a line, so that a letter can be read in each


def bars(
    lines: Mapping[str, Sequence[float]], parts: Sequence[str], unit: str, whole: bool = False
) -> Picture:
    """Draw a bar for each line, its parts one behind the other, and the first part's size beside it.

    Args:
        lines: sizes of the parts, by the line's name.
        parts: their names, at most two.
        unit: of all.
        whole: the size beside it is that of all parts.
    """
    longest = max(map(sum, lines.values()))
    message = {name: f"{digits(sum(sizes[: 1 + whole]), 2)} {unit}" for name, sizes in lines.items()}
    room = max(text_width(text, SMALL, bold=True) for text in message.values())

    def draw(sheet: Sheet) -> None:
        y, x = (20.0 if parts[1:] else -8.0), 18.0
        for name, colour in zip(parts[1:] and parts, ("query", "value"), strict=False):
            sheet.square(x + 6, y, 12, colour)
            sheet.note(x + 18, y, name)
            x += 150
        for name, sizes in lines.items():
            y, left = y + 34, 18.0
            sheet.text(left, y, name)
            y += 26
            scale = (sheet.width - 46 - room) / longest
            for size, colour in zip(sizes, ("query", "value"), strict=False):
                sheet.box(left, y - 11, max(scale * size, 1), 22, fill=colour, radius=2)
                left += scale * size
            sheet.text(left + 10, y, message[name], size=SMALL, bold=True)

    sentence = "; ".join(
        f"{name}: " + ", ".join(f"{digits(size, 2)} {part}" for part, size in zip(parts, sizes, strict=True))
        for name, sizes in lines.items()
    )
    return Picture(draw, f"Bars: {sentence}.")


def batches(passes: Mapping[str, Sequence[str]]) -> Picture:
    """Draw the tensors of passes: a square for each token, with the letter of its text; padding is hatched.

    Args:
        passes: by name, the lines of a tensor: a letter a token, a space for padding; at most 14 in a line.
    """
    longest = max(len(line) for lines in passes.values() for line in lines)
    need(longest <= MOST, f"{longest} columns in the longest line; expected at most {MOST} to draw")
    texts = sorted({letter for lines in passes.values() for line in lines for letter in line} - {" "})
    message = {name: _padding(lines) for name, lines in passes.items()}

    def draw(sheet: Sheet) -> None:
        y = 18.0
        side = min(30.0, (sheet.width - 36) / longest)
        for name, lines in passes.items():
            sheet.text(18, y, name, bold=True)
            sheet.note(18, y + 21, message[name])
            y += 38
            for line in lines:
                for n, letter in enumerate(line):
                    _square(sheet, 18 + n * side, y, side - 3, letter, texts)
                y += side
            y += 26

    sentence = (f"{name}: {', '.join(lines)}; {message[name]}" for name, lines in passes.items())
    return Picture(draw, ". ".join(sentence) + ".")


def _padding(lines: Sequence[str]) -> str:
    """Say how many squares are padding."""
    pads, all_of = (sum(map(count, lines)) for count in (lambda line: line.count(" "), len))
    return f"{counted(all_of, 'square')}, {pads or 'none'} of them padding"


def _square(sheet: Sheet, x: float, y: float, side: float, letter: str, texts: Sequence[str]) -> None:
    """One token of a text, or padding."""
    if letter == " ":
        sheet.box(x, y, side, side, edge="line", radius=2)
        return sheet.line((x, y + side), (x + side, y), colour="line", width=1)
    colour = FILLS[texts.index(letter) % len(FILLS)]
    sheet.box(x, y, side, side, fill=f"{colour} fill", edge=colour, radius=2)
    sheet.text(x + side / 2, y + side / 2, letter, at="center", size=SMALL)
