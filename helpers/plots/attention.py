"""Figures of attention: who weighs what, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from helpers import toy
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, digits, listed, need, number, plain, shorten, text_width
from helpers.trace import Trace, spread


def numbers_carried(trace: Trace) -> list[float]:
    """V of the toy's layer 0, one number for each token that ran."""
    return [x for (x,) in (trace.values or [])[0].v]


def contexts_of(trace: Trace, token: int) -> dict[str, float]:
    """The contexts of one token in layer 0, by the head's name, from the pass that first ran it."""
    parts = (event.parts[0] for run in trace.runs for event in run.steps)
    part = next(part for part in parts if token in spread(part.new))
    at = spread(part.new).index(token)
    return {name: part.contexts[f"0.{h}"][at][0] for h, name in enumerate(trace.model.head_names or [])}


def row_strips(trace: Trace, token: int) -> Picture:
    """Draw one query's attention weights, a strip for each head, over the numbers they weigh.

    Args:
        trace: of the toy.
        token: index of the query's token, from 0.

    Returns:
        Squares whose area is the weight, above one strip of V; each head's context at the right.

    Raises:
        ValueError: the token did not run, or looks at more than 8 tokens.
    """
    v, n = numbers_carried(trace), token + 1
    need(0 <= token < len(v), f"token {token} did not run; expected an index from 0 to {len(v) - 1}")
    need(n <= 8, f"token {token} looks at {n} tokens; expected at most 8 to draw")
    contexts = contexts_of(trace, token)
    weights = {name: trace.attention_weights(token, 0, h) for h, name in enumerate(contexts)}

    def draw(sheet: Sheet) -> None:
        left = 62.0 if sheet.narrow else 96.0
        result = {name: number(x) for name, x in contexts.items()}
        widest = max(24 if sheet.narrow else 56, *(text_width(x, bold=True) for x in result.values()))
        cell = min(80.0, (sheet.width - left - widest - 10 if sheet.narrow else 372) / n)
        row, top = 62.0 if sheet.narrow else 44.0, 92.0
        right = sheet.width - 8 if sheet.narrow else left + cell * n + widest + 6
        sheet.note(18, 22, "attention weights of")
        asked = shorten(trace.sequences[0].tokens[token].text, 80, bold=True)
        sheet.text(166, 22, asked, colour="query", bold=True)
        sheet.note(right, 22 if sheet.narrow else 60, "context", at="right")
        for h, name in enumerate(contexts):
            y = top + row * (h + (0.35 if sheet.narrow else 0.5))
            line, how = top + row * (h + 1), _how(weights[name], v, 682 - right)
            sheet.note(left - 8, y, shorten(name, left - 12, SMALL), at="right", colour="ink")
            sheet.line((left, line), (left + cell * n, line), colour="faint")
            _strip(sheet, weights[name], left, cell, y)
            sheet.text(right, y, result[name], at="right", bold=True)
            if sheet.narrow:
                sheet.note(right, y + 25, how, at="right")
            else:
                sheet.note(right + 10, y, how)
        _tokens_over_numbers(sheet, trace, token, left, cell, top + row * len(contexts) + 10)

    return Picture(draw, _strips_in_words(trace, token, weights, contexts))


def _tokens_over_numbers(
    sheet: Sheet, trace: Trace, token: int, left: float, cell: float, bottom: float
) -> None:
    """The heads of the columns and, at their feet, the strip of V."""
    v = numbers_carried(trace)
    sheet.text(left - 8, bottom + 20, "V", at="right", colour="value", bold=True)
    for j, head in enumerate(trace.sequences[0].tokens[: token + 1]):
        x, edge = left + cell * (j + 0.5), "query" if j == token else "line"
        if sheet.narrow:
            sheet.note(x, 60, shorten(head.text, cell, SMALL), at="center", colour="ink")
        else:
            sheet.chip(x, 60, head.text, width=cell - 6, fill="panel", edge=edge)
        sheet.box(x - cell / 2 + 3, bottom + 4, cell - 6, 32, fill="value fill", edge="value")
        sheet.text(x, bottom + 20, shorten(number(v[j]), cell - 8), at="center")
    sheet.note(18, bottom + 52, "V: the number that each token carries")


def _strip(sheet: Sheet, weights: np.ndarray, left: float, cell: float, y: float) -> None:
    """One head's weights as squares, with their digits where there is room."""
    for j, weight in enumerate(weights):
        x = left + cell * (j + 0.5)
        if weight < 0.0005:
            sheet.text(x, y, "·", at="center", colour="soft")
            continue
        beside = cell >= 60
        sheet.square(x - 17 * beside, y, 26 * float(weight) ** 0.5, "query")
        if beside:
            sheet.text(x + 1, y, number(weight), size=SMALL)


def _how(weights: np.ndarray, v: list[float], room: float) -> str:
    """= (20 + 5) / 2: where a context comes from, as a reader would write it in `room` px."""
    picked = [(w, x) for w, x in zip(weights, v, strict=False) if w >= 0.0005]
    if not picked:
        return "nothing to pick"
    if any(abs(w - picked[0][0]) >= 0.0005 for w, _ in picked):
        return "weighted sum"
    terms = " + ".join(number(x) for _, x in picked)
    sentence = f"= 1 × {terms}" if len(picked) == 1 else f"= ({terms}) / {len(picked)}"
    return sentence if text_width(sentence, SMALL) <= room else f"= average of {len(picked)}"


def _strips_in_words(
    trace: Trace, token: int, weights: dict[str, np.ndarray], contexts: dict[str, float]
) -> str:
    tokens, v = trace.sequences[0].tokens[: token + 1], numbers_carried(trace)
    carried = listed([f"{plain(t.text)} ({number(x)})" for t, x in zip(tokens, v, strict=False)])
    output = []
    for name, row in weights.items():
        picked = [(w, plain(t.text)) for w, t in zip(row, tokens, strict=True) if w >= 0.0005]
        looks = listed([f"{number(w)} on {text}" for w, text in picked]) if picked else "nothing to pick"
        output.append(f"{name}: {looks}, context {number(contexts[name])}")
    return (
        f"Attention weights of {plain(tokens[-1].text)} over the numbers that tokens carry: {carried}. "
        f"{'; '.join(output)}."
    )


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
        _asks(sheet, words[-1])
        _words_over_weights(sheet, words, row, then, 52)

    most = int(np.argmax(row))
    alt = (
        f"Attention weights of {plain(words[-1])} over {len(row)} words: {' '.join(map(plain, words))}. "
        f"The largest, {digits(row[most], 2)}, is on {plain(words[most])}, word {most + 1}."
        + (f" Then comes {plain(then)}." if then else "")
    )
    return Picture(draw, alt)


def _asks(sheet: Sheet, word: str) -> None:
    """Write whose weights the bars are."""
    sheet.note(18, 20, "bar: the attention weight of")
    sheet.note(222, 20, shorten(word, 100, SMALL, bold=True), colour="query", bold=True)


def _words_over_weights(
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


def looks(texts: Mapping[str, Sequence[float]]) -> Picture:
    """Draw short texts that end with one query and the word that came of it; under the words its look.

    Args:
        texts: words with blanks between them, the last one the word that came; with the weights of the word
            before it, one for every word but the last.
    """
    each = [(text.split(), row) for text, row in texts.items()]

    def draw(sheet: Sheet) -> None:
        y = 52.0
        _asks(sheet, each[0][0][-2])
        for words, row in each:
            y = _words_over_weights(sheet, words[:-1], row, words[-1], y) + 34

    most = [int(np.argmax(row)) for _, row in each]
    output = [
        f"{' '.join(map(plain, words[:-1]))}: {row[at]:.2f} on {plain(words[at])}, word {at + 1}; then "
        f"comes {plain(words[-1])}."
        for (words, row), at in zip(each, most, strict=True)
    ]
    return Picture(
        draw, f"Attention weights of {plain(each[0][0][-2])} in {len(each)} texts. {' '.join(output)}"
    )


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
