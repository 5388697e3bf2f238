"""Figures of notebook 21: hidden keys along a reply, two words that nearly tie, blocks of one size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, counted, digits, plain, shorten
from helpers.plots.measured import log_axes
from helpers.trace import Place


def hidden_keys(
    words: Sequence[str], keys: int, hidden: int, at_once: int, differ: Sequence[int], level: Sequence[bool]
) -> Picture:
    """Draw a line for each word: the keys of the pass that chose it, and the hidden ones behind them.

    Keys are worked on so many at a time; where hidden keys fill up the last group, its keys are inked.

    Args:
        words: one a pass; the last says both words of two runs.
        keys: of the first pass; each later one has a key more.
        hidden: behind them.
        differ: how many logits differ, for each word.
        level: whether two words were exactly level there.
    """
    left = [(n % at_once if n % at_once + hidden >= at_once else 0) for n in range(keys, keys + len(words))]
    widest = keys + len(words) - 1 + hidden

    def draw(sheet: Sheet) -> None:
        first, side = (100.0, 8.6) if sheet.narrow else (140.0, 23.0)
        top, line = 74.0, 26.0
        for x, fill, edge, label in (
            (18.0, "query fill", "query", "Carla's keys"),
            (18.0 + (sheet.width - 36) / 2, "none", "line", "hidden keys"),
        ):
            sheet.box(x, 12, 14, 14, fill=fill, edge=edge, radius=2)
            sheet.note(x + 22, 19, label)
        sheet.box(18, 34, 14, 14, fill="generated", edge="generated", radius=2)
        sheet.note(40, 41, "alone one by one, beside Bram at once")
        sheet.note(sheet.width - 18, 63, "differ", at="right")
        for n, (word, tail) in enumerate(zip(words, left, strict=True)):
            y, own = top + line * n, keys + n
            sheet.note(18, y + 9, word, colour="ink", bold=level[n])
            for i in range(own + hidden):
                inked = own - tail <= i < own
                fill = "generated" if inked else "query fill" if i < own else "none"
                edge = "generated" if inked else "query" if i < own else "line"
                sheet.box(first + side * i, y, side - 2, 18, fill=fill, edge=edge, radius=2)
            sheet.note(sheet.width - 18, y + 9, str(differ[n]), at="right")
        for at in range(at_once, widest + 1, at_once):
            x = first + side * at - 1
            sheet.line((x, top - 4), (x, top + line * len(words)), colour="ink", width=1.4)
            sheet.note(x, 63, str(at), at="center")

    sentence = "; ".join(
        f"{plain(word)}: {keys + n} keys, {f'{tail} of them filled up' if tail else 'none filled up'}, "
        f"{differ[n]} logits differ{', two words level' if level[n] else ''}"
        for n, (word, tail) in enumerate(zip(words, left, strict=True))
    )
    return Picture(draw, f"{hidden} hidden keys behind Carla's, {at_once} keys at a time. {sentence}.")


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

    sentence = "; ".join(f"{name} {' and '.join(f'{x:g}' for x in run)}" for name, run in runs.items())
    return Picture(draw, f"Logits of {plain(words[0])} and {plain(words[1])} in bfloat16: {sentence}.")


def suspect(places: Sequence[Place], line: float | None = None) -> Picture:
    """Draw for each word of a reply how far two runs differ, and half the margin: what would change the word.

    Args:
        places: of `compare(plain, suspect)`, or of two servers' logprobs.
        line: a difference above which rounding cannot be the cause, as `rounding` gives it.
    """
    series = {"half the margin": [p.margin / 2 for p in places], "difference": [p.difference for p in places]}
    sizes = [x for x in (*series["half the margin"], *series["difference"], line or 0) if x > 0] or [1.0]
    low, high = min(sizes) / 3, max(sizes) * 3  # what is 0 lies on the axis
    other = [p for p in places if p.words[0] != p.words[1]]

    def draw(sheet: Sheet) -> None:
        right, base = sheet.width - 18, 344.0
        sheet.heading("difference, and half the margin")
        for n, (name, fill) in enumerate(zip(series, ("paper", "generated"), strict=True)):
            sheet.disc(30, 48 + 22 * n, 5, fill, "ink" if fill == "paper" else "none", 1.2)
            sheet.note(48, 48 + 22 * n, name)
        axes = sheet.plot(74, 124, right, base, "word of the reply")
        log_axes(axes.yaxis)
        axes.set(xlim=(0.4, len(places) + 0.6), ylim=(low, high))
        if line is not None:
            dashes: dict[str, Any] = {"colour": "soft", "dashes": (0, (5, 4))}
            sheet.line((18, 92), (42, 92), **dashes)
            sheet.note(48, 92, "above it rounding is not the cause")
            y = sheet.at(axes, 1, line)[1]
            sheet.line((74, y), (right, y), **dashes)
        for n, place in enumerate(places):
            half, off = (sheet.at(axes, n + 1, max(numbers[n], low)) for numbers in series.values())
            sheet.line(half, off, colour="line", width=1.2)
            sheet.disc(*half, 4.5, "paper", "ink", 1.2)
            sheet.disc(*off, 4.5, "generated")
            if place in other:
                sheet.note(half[0], 114, shorten(place.words[1], 60, SMALL), at="center", colour="generated")

    most = max(p.difference for p in places)
    sentence = f"{counted(len(places), 'word')}: the logits differ by {digits(most, 2)} at most"
    if line is not None:
        above = sum(p.difference > line for p in places)
        sentence += f"; rounding explains {digits(line, 2)}, above it lie {above or 'none'}"
    changed = [f"{plain(p.words[0])} becomes {plain(p.words[1])}" for p in other]
    alt = f"Half the margin and the difference at {sentence}. {'; '.join(changed) or 'No word changes'}."
    return Picture(draw, alt)
