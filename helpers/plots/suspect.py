"""Figures of how much two runs of the same words differ, word by word: is it rounding, or a bug?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import digits
from helpers.drawing.words import SMALL, counted, plain, shorten, text_width
from helpers.plots.measured import log_axes
from helpers.trace import WordComparison

HALF, OFF = "half the margin: what another word takes", "difference of the two runs"
DASHES: dict[str, Any] = {"colour": "soft", "dashes": (0, (5, 4))}


def suspect(places: Sequence[WordComparison], line: float) -> Picture:
    """Draw `suspects` for one pair of runs, such as the logprobs of two servers.

    Args:
        places: the comparison of each word.
        line: the difference above which to suspect a bug, as returned by `rounding_limit`.
    """
    return suspects({"": (places, line)})


def suspects(pairs: Mapping[str, tuple[Sequence[WordComparison], float]]) -> Picture:
    """Draw how much two runs differ at each word of a reply, and half the margin: what could change the word.

    Args:
        pairs: maps the name of each pair of runs to the comparison of each word, and to the difference above
            which to suspect a bug, as returned by `rounding_limit`. All pairs are drawn at the same scale.
    """
    sizes = [x for places, line in pairs.values() for p in places for x in (p.margin / 2, p.difference)]
    sizes = [x for x in (*sizes, *(line for _, line in pairs.values())) if x > 0] or [1.0]
    scale = min(sizes) / 3, max(sizes) * 3  # a value of 0 is drawn on the axis

    def draw(sheet: Sheet) -> None:
        sheet.heading("two runs, word by word")
        for n, (name, fill) in enumerate(((HALF, "paper"), (OFF, "generated"))):
            sheet.disc(30, 48 + 22 * n, 5, fill, "ink" if fill == "paper" else "none", 1.2)
            sheet.note(48, 48 + 22 * n, name)
        sheet.line((18, 92), (42, 92), **DASHES)
        sheet.note(48, 92, "above it suspect a bug")
        top, gap = 124.0, 14.0
        n_side = 1 if sheet.narrow else len(pairs)
        wide = (sheet.width - 92 + gap) / n_side - gap
        high = 220.0 if len(pairs) == 1 or n_side > 1 else 150.0
        for n, (name, (places, line)) in enumerate(pairs.items()):
            left, first = 74 + (wide + gap) * (n % n_side), n % n_side == 0
            if name:
                sheet.note(left, top, shorten(name, wide, SMALL, bold=True), colour="ink", bold=True)
            _panel(sheet, (left, top + 24 * bool(name), wide, high), places, line, scale, first)
            top += (high + 92) * (n_side == 1)

    return Picture(draw, " ".join(_in_words(name, *pair) for name, pair in pairs.items()))


def _panel(
    sheet: Sheet, box: tuple[float, float, float, float], places: Sequence[WordComparison], line: float,
    scale: tuple[float, float], labelled: bool,
) -> None:  # fmt: skip
    """Draw one pair of runs.

    Args:
        box: left, top, width and height, in px.
        places: the comparison of each word.
        line: the difference above which to suspect a bug.
        scale: the lowest and the highest value of the y axis.
        labelled: whether the y axis has numbers.
    """
    left, top, wide, high = box
    radius = 4.5 if wide > 300 or len(places) < 13 else 3.0
    axes = sheet.plot(left, top, left + wide, top + high, "word of the reply")
    log_axes(axes.yaxis)
    if not labelled:
        axes.yaxis.set_major_formatter("")
    axes.set(xlim=(0.4, len(places) + 0.6), ylim=scale)
    y = sheet.at(axes, 1, line)[1]
    sheet.line((left, y), (left + wide, y), **DASHES)
    xs = [*range(1, len(places) + 1)]
    both = [[max(x, scale[0]) for x in (p.margin / 2, p.difference)] for p in places]
    for x, pair in zip(xs, both, strict=True):
        axes.plot([x, x], pair, color="line", lw=1.2)
    for ys, fill, edge in zip(zip(*both, strict=True), ("paper", "generated"), ("ink", "none"), strict=True):
        axes.plot(xs, ys, ls="none", marker="o", ms=2 * radius, mfc=fill, mec=edge, mew=1.2, clip_on=False)
    free = left  # the x from which there is no word yet
    for x, place in zip(xs, places, strict=True):
        if place.words[0] != place.words[1]:
            word = shorten(place.words[1], min(60, wide), SMALL)
            half = text_width(word, SMALL) / 2
            at = min(max(sheet.at(axes, x, 1)[0], left + half), left + wide - half)
            if at - half >= free:
                sheet.note(at, top - 10, word, at="center", colour="generated")
                free = at + half + 6


def _in_words(name: str, places: Sequence[WordComparison], line: float) -> str:
    most = max(p.difference for p in places)
    above = sum(p.difference > line for p in places)
    sentence = f"{counted(len(places), 'word')}: the runs differ by {digits(most, 2)} at most"
    sentence += f"; rounding explains {digits(line, 2)}, above it lie {above or 'none'}"
    changed = [f"{plain(p.words[0])} becomes {plain(p.words[1])}" for p in places if p.words[0] != p.words[1]]
    sentence = f"Half the margin and the difference at {sentence}. {'; '.join(changed) or 'No word changes'}."
    return f"{plain(name)}. {sentence}" if name else sentence
