"""Figures of notebook 21: which shapes share an order of sums, and two words that nearly tie."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import listed, need, told

MOST = 24


class Tie(Protocol):
    """Two words at the top of a step, and the logit of each in three runs."""

    @property
    def words(self) -> list[str]: ...
    @property
    def exact(self) -> list[float]: ...
    @property
    def alone(self) -> list[float]: ...
    @property
    def beside(self) -> list[float]: ...


def same_bits(strips: Mapping[str, Sequence[Sequence[int]]]) -> Picture:
    """Draw a cell for each size, with a letter for the bits that come out: sizes with one letter agree.

    Args:
        strips: groups of sizes, as `measure.order.same_bits` gives them, by what was run; 24 sizes at most.
    """
    letters = {
        name: {n: k for k, group in enumerate(groups) for n in group} for name, groups in strips.items()
    }
    need(max(map(len, letters.values())) <= MOST, f"more than {MOST} sizes came in")

    def draw(sheet: Sheet) -> None:
        a_line, y = (12 if sheet.narrow else MOST), 0.0
        size = (sheet.width - 36) / a_line
        for name, of in letters.items():
            sheet.text(18, y + 18, name, bold=True)
            for i, n in enumerate(sorted(of)):
                x, top = 18 + size * (i % a_line), y + 36 + 48 * (i // a_line)
                fill = ("query fill", "panel", "generated fill", "key fill")[of[n] % 4]
                sheet.box(x + 1, top, size - 2, 24, fill=fill, edge="line", radius=3)
                sheet.text(x + size / 2, top + 12, chr(ord("a") + of[n]), at="center", bold=True)
                sheet.note(x + size / 2, top + 35, str(n), at="center")
            y += 52 + 48 * math.ceil(len(of) / a_line)

    said = " ".join(
        f"{told(name)}: " + "; ".join(_sizes(group) for group in groups) + "."
        for name, groups in strips.items()
    )
    return Picture(draw, f"Sizes that give the same bits, in groups. {said}")


def _sizes(group: Sequence[int]) -> str:
    in_a_row = len(group) > 2 and group[-1] - group[0] == len(group) - 1
    return f"{group[0]} to {group[-1]}" if in_a_row else listed([str(n) for n in group])


def ties(found: Sequence[Tie], gap: float) -> Picture:
    """Draw two words on a line of numbers, exactly and on the ticks that bfloat16 has.

    Args:
        found: one or two ties.
        gap: between two neighbours in bfloat16, where the logits lie.
    """
    lanes = ["float32", "bfloat16, alone", "bfloat16, beside seven"]

    def draw(sheet: Sheet) -> None:
        left, right = (34.0, sheet.width - 34) if sheet.narrow else (210.0, sheet.width - 60)
        y = 0.0
        for tie in found:
            runs = (tie.exact, tie.alone, tie.beside)
            low = math.floor(min(map(min, runs)) / gap - 0.6) * gap
            high = math.ceil(max(map(max, runs)) / gap + 0.6) * gap
            unit = (right - left) / (high - low)
            sheet.square(24, y + 20, 12, "query")
            sheet.text(38, y + 20, tie.words[0])
            sheet.square(144, y + 20, 12, "generated")
            sheet.text(158, y + 20, tie.words[1])
            for name, run in zip(lanes, runs, strict=True):
                if sheet.narrow:
                    y += 22
                    sheet.note(18, y + 28, name)
                y += 44
                sheet.line((left, y + 14), (right, y + 14), colour="line", width=1)
                if not sheet.narrow:
                    sheet.note(18, y + 14, name)
                for tick in range(round((high - low) / gap) + 1):
                    x = left + unit * gap * tick
                    sheet.line((x, y + 9), (x, y + 19), colour="soft", width=1)
                    if name == lanes[-1]:
                        sheet.note(x, y + 36, f"{low + gap * tick:.4f}".rstrip("0").rstrip("."), at="center")
                for logit, dy, colour in zip(run, (-7, 7), ("query", "generated"), strict=True):
                    sheet.disc(left + unit * (logit - low), y + 14 + dy, 5, colour)
            y += 72

    said = " ".join(
        f"{told(tie.words[0])} and {told(tie.words[1])}: "
        + "; ".join(
            f"{name} {run[0]:.4f} and {run[1]:.4f}"
            for name, run in zip(lanes, (tie.exact, tie.alone, tie.beside), strict=True)
        )
        + "."
        for tie in found
    )
    return Picture(draw, f"Logits of the two likeliest words of a step, in three runs. {said}")
