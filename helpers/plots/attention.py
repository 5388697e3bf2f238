"""Figures of one query's attention weights, followed by the word that the model predicts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import SMALL, printable, shorten, text_width

TokensAndWeights = tuple[Sequence[str], Sequence[float] | np.ndarray]


def attention_in_text(words: Sequence[str], weights: Sequence[float] | np.ndarray, next_word: str) -> Picture:
    """Draw one query's attention weights as bars under the words of a text.

    Args:
        words: the words that the query may attend to. The last one is the query itself.
        weights: the query's attention weights in one head, one per word.
        next_word: the predicted word.
    """
    return attention_in_texts([([*words, next_word], weights)])


def attention_in_texts(texts: Sequence[TokensAndWeights]) -> Picture:
    """Draw one query's attention weights as bars under the words of several texts.

    The weight is written under a bar if it is at least 0.1 or the largest of its text.

    Args:
        texts: one pair per text: (tokens, attention weights in one head). The tokens, up to 80, are the
            context, then the query, then the predicted word. All texts have the same query. There is one
            weight per token, except for the predicted word, and the weights of a text sum to 1.
    """

    def draw(sheet: Sheet) -> None:
        asks, y = texts[0][0][-2], 52.0
        sheet.note(18, 20, "bar: the attention weight of")
        sheet.note(222, 20, shorten(asks, 100, SMALL, bold=True), colour="query", bold=True)
        for words, row in texts:
            y = _words_over_weights(sheet, words[:-1], row, words[-1], y) + 34

    alt = []
    for (*words, then), row in texts:
        most = int(np.argmax(row))
        alt.append(
            f"Attention weights of {printable(words[-1])} over {len(row)} words: "
            f"{' '.join(map(printable, words))}. The largest, {format_digits(float(row[most]), 2)}, "
            f"is on {printable(words[most])}, word {most + 1}. Then comes {printable(then)}."
        )
    return Picture(draw, " ".join(alt))


def _words_over_weights(
    sheet: Sheet, words: Sequence[str], row: Sequence[float] | np.ndarray, then: str, y: float
) -> float:
    """Draw the words of one text with bars under them. Return the y coordinate of the lower end, in px.

    Args:
        words: the context, then the query.
        row: the attention weights, one per word.
        then: the predicted word.
        y: the y coordinate of the first line of words, in px.
    """
    most, x, deep = int(np.argmax(row)), 18.0, 0.0
    for n, (word, weight) in enumerate(zip(words, map(float, row), strict=True)):
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
    width = text_width(shorten(then, 120)) + 16
    x, y, deep = (x, y, deep) if x + width <= sheet.width - 14 else (18.0, y + 40 + deep, 0.0)
    sheet.chip(x + width / 2, y, then, width=width, fill="generated fill", edge="generated")
    return y + 12 + deep
