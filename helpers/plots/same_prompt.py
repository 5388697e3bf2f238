"""Figures of notebook 21: which shapes share an order of sums, two words that nearly tie, blocks of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import counted, listed, need, told

MOST = 24


def same_bits(strips: Mapping[str, Sequence[Sequence[int]]]) -> Picture:
    """Draw a cell for each size, with a letter for the bits that come out: sizes with one letter agree.

    Those that agree with the smallest are filled.

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
                fill = "panel" if of[n] else "query fill"
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


def tie(words: Sequence[str], runs: Mapping[str, Sequence[float]]) -> Picture:
    """Draw the logits of two words on the ticks that bfloat16 has, a line for each run.

    Args:
        words: two.
        runs: the logit of each, by the run's name.
    """
    logits = [logit for run in runs.values() for logit in run]
    gap = 2.0 ** (math.floor(math.log2(max(map(abs, logits)))) - 7)
    low, high = min(logits) - gap, max(logits) + gap

    def draw(sheet: Sheet) -> None:
        left, right, y = 40.0, sheet.width - 40, 20.0
        unit = (right - left) / (high - low)
        for word, x, colour in zip(words, (18.0, 138.0), ("query", "generated"), strict=True):
            sheet.disc(x + 6, y, 6, colour)
            sheet.text(x + 20, y, word)
        for name, run in runs.items():
            y += 30
            sheet.note(18, y, name)
            y += 30
            sheet.line((left, y), (right, y), colour="line", width=1)
            for n in range(round((high - low) / gap) + 1):
                x = left + unit * gap * n
                sheet.line((x, y - 5), (x, y + 5), colour="soft", width=1)
                if name == [*runs][-1]:
                    sheet.note(x, y + 24, f"{low + gap * n:g}", at="center")
            for logit, dy, colour in zip(run, (-7, 7), ("query", "generated"), strict=True):
                sheet.disc(left + unit * (logit - low), y + dy, 6, colour)

    said = "; ".join(f"{name} {' and '.join(f'{x:g}' for x in run)}" for name, run in runs.items())
    return Picture(draw, f"Logits of {told(words[0])} and {told(words[1])} in bfloat16: {said}.")


def in_blocks(tokens: Sequence[int], rows: int) -> Picture:
    """Draw how tokens are cut into blocks of so many rows, the last filled up with zeros: a square a row."""

    def draw(sheet: Sheet) -> None:
        y, side = 20.0, 13.0
        for n in tokens:
            sheet.text(18, y, counted(n, "token"), bold=True)
            for row in range(-(-n // rows) * rows):
                x = 112 + side * row + 10 * (row // rows)
                fill = "query fill" if row < n else "none"
                sheet.box(x, y - 7, side - 2, 13, fill=fill, edge="query" if row < n else "line", radius=2)
            y += 28

    said = (f"{counted(n, 'token')}: {counted(-(-n // rows), 'block')}, {-n % rows} zeros" for n in tokens)
    return Picture(draw, f"Blocks of {rows} rows; what no token fills is zeros. {'; '.join(said)}.")
