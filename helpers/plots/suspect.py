"""Figures that compare the logits of two runs word by word, to distinguish rounding from a bug."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import SMALL, pluralize, printable, shorten, text_width
from helpers.plots.measured import set_log_scale
from helpers.trace import WordComparison

HALF, OFF = "half the margin: another word needs this", "difference of the two runs"
ComparisonsAndLimit = tuple[Sequence[WordComparison], float]
DASHES: dict[str, Any] = {"colour": "soft", "dashes": (0, (5, 4))}


def word_differences_of_pairs(pairs: Mapping[str, ComparisonsAndLimit]) -> Picture:
    """Draw how much the logits or logprobs of two runs differ at each word of a reply, for several pairs.

    Each word's difference is drawn together with half of the word's margin. Only a difference that is larger
    than half the margin can change the word. All pairs are drawn at the same scale.

    Args:
        pairs: maps the name of each pair of runs to a pair: (one comparison per word, the difference above
            which to suspect a bug). `compare_words` and `rounding_limit` return these two.
    """
    sizes = [
        x for comparisons, limit in pairs.values() for p in comparisons for x in (p.margin / 2, p.difference)
    ]
    sizes = [x for x in (*sizes, *(limit for _, limit in pairs.values())) if x > 0] or [1.0]
    scale = min(sizes) / 3, max(sizes) * 3  # a value of 0 is drawn on the axis

    def draw(sheet: Sheet) -> None:
        sheet.heading("two runs, word by word")
        for n, (name, fill) in enumerate(((HALF, "paper"), (OFF, "generated"))):
            sheet.disc(30, 48 + 22 * n, 5, fill, "ink" if fill == "paper" else "none", 1.2)
            sheet.note(48, 48 + 22 * n, name)
        sheet.line((18, 92), (42, 92), **DASHES)
        sheet.note(48, 92, "above it suspect a bug")
        left, top, wide = 74.0, 124.0, sheet.width - 92.0
        high = 220.0 if len(pairs) == 1 else 150.0
        for name, (comparisons, limit) in pairs.items():
            if name:
                sheet.note(left, top, shorten(name, wide, SMALL, bold=True), colour="ink", bold=True)
            _panel(sheet, (left, top + 24 * bool(name), wide, high), comparisons, limit, scale)
            top += high + 92

    return Picture(draw, " ".join(_in_words(name, *pair) for name, pair in pairs.items()))


def _panel(
    sheet: Sheet, box: tuple[float, float, float, float], comparisons: Sequence[WordComparison], limit: float,
    scale: tuple[float, float],
) -> None:  # fmt: skip
    """Draw the chart of one pair of runs.

    Args:
        box: left, top, width and height of the chart, in px.
        comparisons: one comparison per word.
        limit: the difference above which to suspect a bug.
        scale: the lowest and the highest value of the y axis.
    """
    left, top, wide, high = box
    axes = sheet.add_axes(left, top, left + wide, top + high, "word of the reply")
    set_log_scale(axes.yaxis)
    axes.set(xlim=(0.4, len(comparisons) + 0.6), ylim=scale)
    y = sheet.data_to_sheet(axes, 1, limit)[1]
    sheet.line((left, y), (left + wide, y), **DASHES)
    xs = [*range(1, len(comparisons) + 1)]
    both = [[max(x, scale[0]) for x in (p.margin / 2, p.difference)] for p in comparisons]
    for x, pair in zip(xs, both, strict=True):
        axes.plot([x, x], pair, color="line", lw=1.2)
    for ys, fill, edge in zip(zip(*both, strict=True), ("paper", "generated"), ("ink", "none"), strict=True):
        axes.plot(xs, ys, ls="none", marker="o", ms=9, mfc=fill, mec=edge, mew=1.2, clip_on=False)
    free = left  # the x coordinate from which the line is still empty
    for x, place in zip(xs, comparisons, strict=True):
        if place.words[0] != place.words[1]:
            word = shorten(place.words[1], min(60, wide), SMALL)
            half = text_width(word, SMALL) / 2
            at = min(max(sheet.data_to_sheet(axes, x, 1)[0], left + half), left + wide - half)
            if at - half >= free:
                sheet.note(at, top - 10, word, at="center", colour="generated")
                free = at + half + 6


def _in_words(name: str, comparisons: Sequence[WordComparison], limit: float) -> str:
    most = max(p.difference for p in comparisons)
    above = sum(p.difference > limit for p in comparisons)
    sentence = f"{pluralize(len(comparisons), 'word')}: the runs differ by {format_digits(most, 2)} at most"
    sentence += f"; rounding explains {format_digits(limit, 2)}, above it lie {above or 'none'}"
    changed = [
        f"{printable(p.words[0])} becomes {printable(p.words[1])}"
        for p in comparisons
        if p.words[0] != p.words[1]
    ]
    sentence = f"Half the margin and the difference at {sentence}. {'; '.join(changed) or 'No word changes'}."
    return f"{printable(name)}. {sentence}" if name else sentence
