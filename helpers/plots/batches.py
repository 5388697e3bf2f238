"""Bar charts, and figures of a batch's input tensor with each request's tokens and the padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import SMALL, pluralize, text_width

FILLS = ("query", "key", "value", "generated")  # of the first request, the second, …


def stacked_bars(
    bars: Mapping[str, Sequence[float]], parts: Sequence[str], unit: str, n_digits: int = 2
) -> Picture:
    """Draw horizontal bars with one or two stacked parts. The sum of its parts is written after each bar.

    Args:
        bars: maps the label of each bar to the values of its parts.
        parts: the names of the parts, in the order of the values.
        unit: the unit of all values.
        n_digits: the number of significant digits to which values are rounded.
    """
    longest = max(map(sum, bars.values()))
    message = {name: f"{format_digits(sum(sizes), n_digits)} {unit}" for name, sizes in bars.items()}
    room = max(text_width(text, SMALL, bold=True) for text in message.values())

    def draw(sheet: Sheet) -> None:
        y, x = (20.0 if parts[1:] else -8.0), 18.0
        for name, colour in zip(parts[1:] and parts, ("query", "value"), strict=False):
            sheet.square(x + 6, y, 12, colour)
            sheet.note(x + 18, y, name)
            x += 150
        for name, sizes in bars.items():
            y, left = y + 34, 18.0
            sheet.text(left, y, name)
            y += 26
            scale = (sheet.width - 46 - room) / longest
            for size, colour in zip(sizes, ("query", "value"), strict=False):
                sheet.box(left, y - 11, max(scale * size, 1), 22, fill=colour, radius=2)
                left += scale * size
            sheet.text(left + 10, y, message[name], size=SMALL, bold=True)

    sentence = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{format_digits(size, n_digits)} {part}" for part, size in zip(parts, sizes, strict=True)
        )
        for name, sizes in bars.items()
    )
    return Picture(draw, f"Bars: {sentence}.")


def input_batches(passes: Mapping[str, Sequence[str]]) -> Picture:
    """Draw the input tensor of each pass, with one square per token.

    A square is labelled with the letter of the request that the token belongs to. The squares of padding
    tokens are crossed out.

    Args:
        passes: maps the name of each pass to the rows of its input tensor. A row is a string of up to 14
            characters, one per token: the letter of a request, or a space for padding.
    """
    longest = max(len(line) for lines in passes.values() for line in lines)
    squares = {name: "".join(lines) for name, lines in passes.items()}
    colours = dict(zip(sorted({*"".join(squares.values())} - {" "}), cycle(FILLS), strict=False))
    message = {
        name: f"{pluralize(len(letters), 'square')}, {letters.count(' ') or 'none'} of them padding"
        for name, letters in squares.items()
    }

    def draw(sheet: Sheet) -> None:
        y, pitch = 18.0, min(30.0, (sheet.width - 36) / longest)
        side = pitch - 3
        for name, lines in passes.items():
            sheet.text(18, y, name, bold=True)
            sheet.note(18, y + 21, message[name])
            y += 38
            for line in lines:
                for n, letter in enumerate(line):
                    x = 18 + n * pitch
                    if colour := colours.get(letter):
                        sheet.box(x, y, side, side, fill=f"{colour} fill", edge=colour, radius=2)
                        sheet.text(x + side / 2, y + side / 2, letter, at="center", size=SMALL)
                    else:
                        sheet.box(x, y, side, side, edge="line", radius=2)
                        sheet.line((x, y + side), (x + side, y), colour="line", width=1)
                y += pitch
            y += 26

    sentence = (f"{name}: {', '.join(lines)}; {message[name]}" for name, lines in passes.items())
    return Picture(draw, ". ".join(sentence) + ".")
