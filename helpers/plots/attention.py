"""Figures of attention: who weighs what, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers import toy
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, digits, listed, plain, shorten, text_width
from helpers.trace import Trace


def name_weights(words: Sequence[str], weights: Sequence[float] | np.ndarray, then: str = "") -> Picture:
    """Draw one row of attention weights under the words that it weighs, the large ones with their numbers.

    Args:
        words: the tokens that the query sees, itself last; up to 80.
        weights: of one head, one a word, summing to 1.
        then: the word that came out, if it is to be shown.

    Returns:
        The text in lines, under each word a bar whose height is its weight.
    """
    row = [float(w) for w in weights]

    def draw(sheet: Sheet) -> None:
        name_asking(sheet, words[-1])
        words_over_weights(sheet, words, row, then, 52)

    most = int(np.argmax(row))
    alt = (
        f"Attention weights of {plain(words[-1])} over {len(row)} words: {' '.join(map(plain, words))}. "
        f"The largest, {digits(row[most], 2)}, is on {plain(words[most])}, word {most + 1}."
        + (f" Then comes {plain(then)}." if then else "")
    )
    return Picture(draw, alt)


def name_asking(sheet: Sheet, word: str) -> None:
    """Write whose weights the bars are."""
    sheet.note(18, 20, "bar: the attention weight of")
    sheet.note(222, 20, shorten(word, 100, SMALL, bold=True), colour="query", bold=True)


def words_over_weights(
    sheet: Sheet, words: Sequence[str], row: Sequence[float], then: str, y: float
) -> float:
    """Write a text from height y on, its last word the query, a bar under each word; return where it ends."""
    most, x, deep = int(np.argmax(row)), 18.0, 0.0
    for n, (word, weight) in enumerate(zip(words, row, strict=True)):
        shown, bold = shorten(word, sheet.width - 40, bold=True), n in (most, len(row) - 1)
        width = max(14.0, text_width(shown, bold=bold))
        if x + width > sheet.width - 14:
            x, y, deep = 18.0, y + 40 + deep, 0.0
        sheet.text(x, y, shown, bold=bold, colour="query" if n == len(row) - 1 else "ink")
        sheet.line((x, y + 13), (x + width, y + 13), colour="line", width=1)
        if weight >= 0.01:
            sheet.box(x, y + 13, width, 30 * weight, fill="query", radius=0)
            deep = max(deep, 30 * weight + 22)
        if n == most or weight >= 0.1:
            sheet.note(x + width / 2, y + 24 + 30 * weight, f"{weight:.2f}", at="center", colour="ink")
        x += width + 8
    if then:
        width = text_width(shorten(then, 120)) + 16
        x, y, deep = (x, y, deep) if x + width <= sheet.width - 14 else (18.0, y + 40 + deep, 0.0)
        sheet.chip(x + width / 2, y, then, width=width, fill="generated fill", edge="generated")
    return y + 12 + deep


def picked_and_seen(head: str) -> Picture:
    """Draw who looks at whom as two grids: what a rule of the toy picks, and what the causal mask lets see.

    Args:
        head: a name of the toy's HEADS.
    """
    words, T = toy.PROMPT, len(toy.PROMPT)
    picks = toy.rule_scores(T)[toy.HEADS.index(head)] == 0
    grids = {f"{head} picks": picks, "the mask lets see": toy.causal_mask(T)}

    def draw(sheet: Sheet) -> None:
        left, cell, row = 84.0, 60.0, 30.0
        for n, (name, grid) in enumerate(grids.items()):
            x = left + (0 if sheet.narrow else n * (cell * T + 40))
            top = 92.0 + (n * (row * T + 98) if sheet.narrow else 0)
            sheet.text(x + cell * T / 2, top - 72, name, at="center", bold=True)
            sheet.note(x + cell * T / 2, top - 42, "is looked at", at="center")
            if n == 0 or sheet.narrow:
                sheet.note(left - 10, top - 16, "looks", at="right")
            for i, word in enumerate(words):
                sheet.note(x + cell * (i + 0.5), top - 16, word, at="center", colour="ink")
                if n == 0 or sheet.narrow:
                    sheet.note(left - 10, top + row * (i + 0.5), word, at="right", colour="query", bold=True)
            for (i, j), yes in np.ndenumerate(grid):
                fill, edge = ("query fill", "query") if yes else ("panel", "line")
                corner = x + cell * j + 1, top + row * i + 1
                sheet.box(*corner, cell - 2, row - 2, fill=fill, edge=edge, radius=3)
                middle = corner[0] + cell / 2 - 1, corner[1] + row / 2 - 1
                sheet.note(*middle, "yes" if yes else "·", at="center", colour="ink" if yes else "soft")

    output = [
        f"{name}, "
        + "; ".join(
            f"from {word}: {listed([to for to, yes in zip(words, line, strict=True) if yes])}"
            for word, line in zip(words, grid, strict=True)
        )
        for name, grid in grids.items()
    ]
    return Picture(draw, f"A line looks, a column is looked at. {'. '.join(output)}.")


def looked_at(trace: Trace, word: str, layer: int, head: int) -> Picture:
    """Draw where one head looked when a word ran, and the word that came out.

    Args:
        trace: has the word once.
        word: the query.
        layer: from 0, as head.
        head: whose weights are drawn.
    """
    words = [token.text for token in trace.sequences[0].tokens]
    at = words.index(word)
    return name_weights(words[: at + 1], trace.attention_weights(at, layer, head), then=words[at + 1])
