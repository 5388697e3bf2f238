"""Figures of notebooks 14 and 23: which rows a cache has, what is left in a state, what the model knows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, digits, plain, shorten, text_width
from helpers.plots.measured import log_axes

LEAST = 0.1  # weight that is written
Point = tuple[float, float]
HIGH, ROOM, LONGEST = 210, 17, 200  # px of the plot, from one line of names to the next, and of a name


def kept_rows(words: Sequence[str], caches: Mapping[str, tuple[Mapping[int, float], str]]) -> Picture:
    """Draw a text once for each cache: filled boxes where rows are left, the weights on them, the reply.

    Args:
        words: the text.
        caches: by its name, the places of the rows that each has left with their weights, and the reply, as
            `recording.kept` gives them. A weight of LEAST and more is written.
    """

    def draw(sheet: Sheet) -> None:
        y = 18.0
        for name, (weights, says) in caches.items():
            sheet.text(8, y, shorten(name, sheet.width - 16, bold=True), bold=True)
            x, y = 8.0, y + 16
            for at, word in enumerate(words):
                wide = text_width(word, SMALL) + 12
                if x + wide > sheet.width - 8:
                    x, y = 8.0, y + 46
                if at in weights:
                    sheet.box(x, y, wide, 26, fill="value fill", edge="value")
                else:
                    sheet.box(x, y, wide, 26, edge="line", dashed=True)
                sheet.note(x + wide / 2, y + 13, word, at="center", colour="ink" if at in weights else "soft")
                if weights.get(at, 0) >= LEAST:
                    sheet.note(
                        x + wide / 2, y + 36, f"{weights[at]:.2f}", at="center", colour="query", bold=True
                    )
                x += wide + 4
            sheet.arrow(8, y + 62, 34, y + 62, "soft")
            sheet.text(42, y + 62, shorten(says, sheet.width - 50, bold=True), bold=True, colour="generated")
            y += 104

    sentences = []
    for name, (weights, says) in caches.items():
        gone = ", ".join(word for at, word in enumerate(words) if at not in weights) or "nothing"
        looks = ", ".join(f"{words[at]} {w:.2f}" for at, w in weights.items() if w >= LEAST)
        sentences.append(
            f"{plain(name)}: {gone} is gone, {words[-1]} looks at {looks}; the model says {says}"
        )
    return Picture(draw, f"{' '.join(words)}. {'. '.join(sentences)}.")


def variants(dots: Mapping[str, tuple[float, float, float]], most: int, own: str | None = None) -> Picture:
    """Draw the loss against the bytes a token, one named dot a variant, hollow if it does not sign them all.

    Args:
        dots: (bytes a token, loss, diaries signed right) of each variant, by its name.
        most: diaries there are.
        own: the reader's variant, drawn in another colour; None has none.
    """
    all_bytes, losses, _ = zip(*dots.values(), strict=True)

    def draw(sheet: Sheet) -> None:
        left, right = 44.0, sheet.width - 20.0
        fewest, widest = min(all_bytes) / 1.3, max(all_bytes) * 1.3
        low, high = min(losses) - 0.06, max(losses) + 0.1
        across, up = (right - left) / math.log(widest / fewest), HIGH / (high - low)
        dots_at = {
            name: (left + across * math.log(nbytes / fewest), up * (high - loss))
            for name, (nbytes, loss, _) in dots.items()
        }
        names_at = flags(dots_at, right)
        top = 52 - min(0.0, *(y for _, y in names_at.values()))  # names may stand above the plot
        sheet.heading(f"loss; a filled dot signs all {most}")
        axes = sheet.plot(left, top, right, top + HIGH, "bytes a token")
        log_axes(axes.xaxis, base=2)
        axes.set(xlim=(fewest, widest), ylim=(low, high))
        for name, (x, y) in names_at.items():
            pole, foot = dots_at[name]
            sheet.line((pole, top + foot), (pole, top + y + (9 if x < pole else -6)), colour="line", width=1)
            sheet.note(x, top + y, shorten(name, LONGEST, SMALL), colour=_colour(name, own))
        for name, (x, y) in dots_at.items():
            colour = _colour(name, own)
            sheet.disc(x, top + y, 5, colour if dots[name][2] == most else "paper", colour)

    sentence = "; ".join(
        f"{plain(name)}: {nbytes:,} bytes a token, loss {loss:.2f}, {count:g} signed"
        for name, (nbytes, loss, count) in sorted(dots.items(), key=lambda item: item[1])
    )
    return Picture(draw, f"The loss against bytes a token; diaries signed right, of {most}. {sentence}.")


def _colour(name: str, own: str | None) -> str:
    return "generated" if name == own else "query"


def flags(dots: Mapping[str, Point], right: float) -> dict[str, Point]:
    """Return where each name begins: at the right of a pole on its dot, which no other name crosses."""
    found: dict[str, Point] = {}
    for name in sorted(dots, key=lambda name: (-dots[name][0], dots[name][1])):
        x, y = dots[name]
        wide = min(text_width(name, SMALL), LONGEST)
        start = min(x + 4, right - wide)
        y -= ROOM
        reached = sorted(
            (dots[one][1], found[one][1])
            for one in found
            if min(dots[one][0], found[one][0]) < start + wide + 6
        )
        for foot, top in reversed(reached):  # from the lowest up
            y = top - ROOM if top - ROOM < y < foot + ROOM else y
        found[name] = start, y
    return found


def fading(g: float, tokens: int = 3) -> Picture:
    """Draw which share each query finds of each token.

    Args:
        g: the share that one step leaves, between 0 and 1.
        tokens: that came in, 1 to 3.
    """
    powers = ("1", "g", "g²")
    heads = [f"token {n}" for n in range(1, tokens + 1)]
    rows = [f"query {n}" for n in range(1, tokens + 1)]
    ages = [[*range(n, -1, -1)] for n in range(tokens)]

    def draw(sheet: Sheet) -> None:
        left, wide = (80.0, 62.0) if sheet.narrow else (126.0, 112.0)
        sheet.heading(f"what is left, with g = {digits(g, 2)}")
        for column, head in enumerate(heads):
            x = left + wide * column + wide / 2 - 3
            for line, word in enumerate(head.split()):
                sheet.note(x, 50 + 16 * line, word, at="center", colour="ink")
        for row, (name, own) in enumerate(zip(rows, ages, strict=True)):
            y = 80.0 + 50 * row
            sheet.note(left - 8, y + 22, name, at="right", colour="ink")
            for column in range(len(heads)):
                x = left + wide * column
                if column >= len(own):
                    sheet.box(x, y, wide - 6, 44, edge="line", dashed=True)
                    sheet.note(x + wide / 2 - 3, y + 22, "0", at="center")
                    continue
                sheet.box(x, y, wide - 6, 44, fill="value fill", edge="value")
                sheet.text(x + wide / 2 - 3, y + 14, powers[own[column]], at="center", bold=True)
                sheet.note(x + wide / 2 - 3, y + 32, digits(g ** own[column], 2), at="center", colour="ink")

    output = (
        f"{row}: {', '.join(f'{powers[n]} of {head}' for n, head in zip(own, heads, strict=False))}"
        for row, own in zip(rows, ages, strict=True)
    )
    return Picture(draw, f"What is left, with g = {digits(g, 2)}. {'; '.join(output)}.")
